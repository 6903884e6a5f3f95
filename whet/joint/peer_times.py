"""Graphs priced by another runtime: exported, loaded with its optimizations on, and timed.

ONNX Runtime fuses operators by patterns of its own, so a single operator has no price there; what
is timed are whole parts of a model.  A price is a ratio: both parts are called in turns, so that
what the machine does besides hits both of them.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from whet.core.caching import FileCache
from whet.core.digest import digest_text
from whet.core.errors import WhetError, fail
from whet.graph.graph import Graph, Input
from whet.joint.checking import random_inputs
from whet.joint.recipe import form_digest
from whet.measure.onnxruntime_session import open_session, peer_module
from whet.superopt.apply.rewrite import Part

KIND = "peer-turns"
"""The kind of entries in the cache; another way to measure gets another name."""
TURN_SECONDS = 1e-3
"""Calls of one turn take at least so long."""
FEWEST_CALLS, MOST_CALLS = 2, 20
"""The first call of a turn finds the caches as the other graph left them."""
QUICK, CAREFUL, SURE = 3, 9, 25
"""Turns for what is far off, for prices, and before something is taken."""
NEVER = 1e9
"""The price of what cannot run; infinity has no place in JSON."""
FAR_OFF, LONGEST = 1.15, 5.0
"""Ratios above the first are not measured further, nor any for more than so many seconds."""


class Loaded:
    """A graph in a session, with inputs to call it on."""

    def __init__(self, graph: Graph, threads: int) -> None:
        from whet.graph.export_portable import portable_model  # brings onnx

        model: Any = portable_model(graph)
        self.session = open_session(model.SerializeToString(), threads, among_others=True)
        arrays = random_inputs(graph)
        self.feed = {v.name: array for v, array in zip(graph.inputs, arrays)}
        # With one thread, the session computes in the calling one, whose own time is not changed
        # by what else runs on the machine.
        self.clock = time.thread_time if threads == 1 else time.perf_counter
        self.call()
        once = self._timed()
        self.calls = int(min(max(TURN_SECONDS / max(once, 1e-9), FEWEST_CALLS), MOST_CALLS))

    def call(self) -> None:
        self.session.run(None, self.feed)

    def _timed(self) -> float:
        start = self.clock()
        self.call()
        return self.clock() - start

    def turn(self) -> float:
        """The seconds of the fastest call of a turn: what disturbs a call only ever adds."""
        return min(self._timed() for _ in range(self.calls))


@dataclass
class PeerTimes:
    """Ratios of times in ONNX Runtime, kept by the form of both graphs."""

    threads: int
    machine: str
    """The key of the machine: times of another one are not used."""
    cache: FileCache
    measured: int = 0
    """Graphs that were timed."""
    _known: dict[str, dict[str, float]] = field(default_factory=dict)
    """By the form of the graph that was compared with: forms and ratios."""

    def __post_init__(self) -> None:
        self.version: str = peer_module("onnxruntime").__version__

    def load(self, graph: Graph) -> Loaded | None:
        """The graph in a session; None where ONNX Runtime does not take it."""
        try:
            return Loaded(graph, self.threads)
        except (WhetError, MemoryError):
            raise
        except Exception:  # the runtime's own errors have no common class
            return None

    def require(self, graph: Graph) -> Loaded:
        """The graph in a session.

        Raises: `WH3005` where ONNX Runtime does not take it.
        """
        found = self.load(graph)
        if found is None:
            fail("WH3005", "onnxruntime cannot run the model, or a part of it, as exported",
                 hint="--cost whet prices without it")  # fmt: skip
        return found

    def ratio(self, base: Loaded, other: Loaded, turns: int = CAREFUL) -> float:
        """The time of the other graph by that of the base: the median over turns."""
        found: list[float] = []
        start = time.perf_counter()
        for n in range(turns):
            if n % 2:
                after, before = other.turn(), base.turn()
            else:
                before, after = base.turn(), other.turn()
            found.append(after / max(before, 1e-9))
            passed = time.perf_counter() - start
            far_off = n + 1 == QUICK and statistics.median(found) > FAR_OFF
            if far_off or (n + 1 >= QUICK and passed > LONGEST):
                break
        return statistics.median(found)

    # --------------------------------------------------------------------------------- memory
    def prices(self, start: Part) -> Callable[[Part], float] | None:
        """Prices of what a part may become: its own is 1, others are ratios to it.  None where
        ONNX Runtime does not take the part."""
        graph = part_graph(start)
        base = self.load(graph)
        if base is None:
            return None
        key = self._key(graph)
        known = self._ratios(key)

        def price(part: Part) -> float:
            if part is start:
                return 1.0
            made = part_graph(part)
            form = form_digest(made)
            if form not in known:
                self.measured += 1
                loaded = self.load(made)
                known[form] = NEVER if loaded is None else self.ratio(base, loaded)
            return known[form]

        return price

    def _key(self, graph: Graph) -> str:
        return digest_text(form_digest(graph), self.version, str(self.threads), self.machine)

    def _ratios(self, key: str) -> dict[str, float]:
        if key not in self._known:
            data = self.cache.get(KIND, key)
            try:
                found = {} if data is None else dict(json.loads(data))
            except ValueError:
                found = {}
            self._known[key] = found
        return self._known[key]

    def keep(self) -> None:
        """Writes what was measured to the cache."""
        for key, ratios in self._known.items():
            if ratios:
                self.cache.put(KIND, key, json.dumps(ratios).encode())


def part_graph(part: Part) -> Graph:
    """The part as a graph of its own."""
    inputs = tuple(v for v in part.inputs if isinstance(v, Input))
    return Graph(inputs, part.outputs, tuple(f"y{n}" for n in range(len(part.outputs))))
