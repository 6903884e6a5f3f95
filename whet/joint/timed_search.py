"""The search over graphs for another runtime: states are priced by its own times.

    graph   ->   far steps, each timed on the whole model; blocks searched, each kind once, timed
                 by themselves; every step that is taken was faster in the whole model   ->   graph

It is the search of `superoptimize` with another price: nothing is known about the runtime but how
long it takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whet.graph.graph import Graph, Value
from whet.joint.blocks import SMALLEST, Block, Form, form_of, narrow_blocks, transplanted
from whet.joint.far import far_steps
from whet.joint.moves import Moves
from whet.joint.peer_times import CAREFUL, SURE, PeerTimes, part_graph
from whet.joint.search import ALPHA, Budget, Step, backtrack
from whet.superopt.apply.match import Matcher
from whet.superopt.apply.rewrite import CycleError, Part, Rewrite, applied

WORTHWHILE = 0.01
"""Something is taken if it is faster by this share: times are not more precise."""
STATES = 400
"""States of one block in one pass."""

Watch = Callable[[float], None]
"""Told now and then how many seconds the search has taken."""


@dataclass(frozen=True, eq=False)
class TimedStep:
    """Rewrites that were taken together, and the model's time after them by that before."""

    rewrites: tuple[Rewrite, ...]
    places: int
    ratio: float


class TimedSearch:
    """One search on one graph.  `graph` and `taken` are the best so far, also when interrupted."""

    def __init__(
        self,
        graph: Graph,
        times: PeerTimes,
        matcher: Callable[[], Matcher | None],
        seconds: float,
        watch: Watch = lambda seconds: None,
        alpha: float = ALPHA,
    ) -> None:
        self.graph, self.times, self.matcher = graph, times, matcher
        self.seconds, self.watch, self.alpha = seconds, watch, alpha
        self.start = time.perf_counter()
        self.states = 0
        self.taken: list[TimedStep] = []

    @property
    def left(self) -> float:
        passed = time.perf_counter() - self.start
        self.watch(passed)
        return self.seconds - passed

    def run(self) -> None:
        """Searches until nothing better is found or the time is over."""
        try:
            while self.left > 0 and self._far():
                pass
            moves = Moves(self.matcher())
            searched: dict[object, Searched | None] = {}
            for shift in (0, SMALLEST // 2, SMALLEST):
                while self.left > 0 and self._blocks(shift, moves, searched):
                    pass
        finally:
            self.times.keep()

    # ------------------------------------------------------------------------- the whole graph
    def _far(self) -> bool:
        """Takes the best step that concerns the whole graph, if one is faster."""
        base = self.times.require(self.graph)
        best: tuple[float, Step] | None = None
        for step in far_steps(self.graph):
            if self.left <= 0:
                break
            self.states += 1
            loaded = self.times.load(self._with(step[1].outputs))
            if loaded is None:
                continue
            ratio = self.times.ratio(base, loaded)
            if ratio < (best[0] if best else 1 - WORTHWHILE):
                best = ratio, step
        if best is None:
            return False
        rewrites, part = best[1]
        return self._take(rewrites, 1, part.outputs)

    def _take(self, rewrites: tuple[Rewrite, ...], places: int, outputs: Sequence[Value]) -> bool:
        """Takes a step if the whole model is faster by it, in more turns than were needed to find
        it: the best of many noisy prices is better than it is."""
        made = self._with(outputs)
        loaded = self.times.load(made)
        if loaded is None:
            return False
        ratio = self.times.ratio(self.times.require(self.graph), loaded, CAREFUL)
        if ratio > 1 - WORTHWHILE / 2:
            return False
        self.graph = made
        self.taken.append(TimedStep(rewrites, places, ratio))
        return True

    def _with(self, outputs: Sequence[Value]) -> Graph:
        g = self.graph
        return Graph(g.inputs, tuple(outputs), g.output_names, g.names)

    # ------------------------------------------------------------------------------- its blocks
    def _blocks(self, shift: int, moves: Moves, searched: dict[object, Searched | None]) -> bool:
        """Searches new kinds of blocks; takes the first that makes the model faster."""
        blocks = narrow_blocks(self.graph, shift=shift)
        forms = [form_of(block.part, {}) for block in blocks]
        kinds = {form.key: n for n, form in reversed(list(enumerate(forms)))}
        new = [n for key, n in kinds.items() if key not in searched]
        for done, n in enumerate(sorted(new, key=lambda n: -len(blocks[n].part.nodes))):
            if self.left <= 0:
                return False
            share = self.left / (len(new) - done)
            searched[forms[n].key] = self._search(blocks[n], forms[n], moves, share)
        for key in kinds:
            found = searched.get(key)
            if found is None or self.left <= 0:
                continue
            searched[key] = None  # taken or not, it is not looked at again
            same = [n for n, form in enumerate(forms) if form.key == key]
            steps = [
                Rewrite("block", "real", blocks[n].given,
                        transplanted(found.part, found.form, forms[n], blocks[n]))
                for n in same
            ]  # fmt: skip
            try:
                made = applied(Part(self.graph.inputs, self.graph.outputs), steps)
            except CycleError:
                continue
            if self._take(found.rewrites, len(same), made.outputs):
                return True
        return False

    def _search(self, block: Block, form: Form, moves: Moves, seconds: float) -> Searched | None:
        price = self.times.prices(block.part)
        if price is None:
            return None

        def watched(part: Part) -> float:
            self.watch(time.perf_counter() - self.start)
            return price(part)

        found = backtrack(block.part, moves, watched, Budget(STATES, seconds), self.alpha)
        self.states += found.states
        if found.best.seconds > 1 - WORTHWHILE or not self._confirmed(block.part, found.best.part):
            return None
        return Searched(form, found.best.part, found.best.path)

    def _confirmed(self, before: Part, after: Part) -> bool:
        base, other = (self.times.require(part_graph(p)) for p in (before, after))
        return self.times.ratio(base, other, SURE) < 1 - WORTHWHILE


@dataclass(frozen=True, eq=False)
class Searched:
    """The best that was found for a kind of block."""

    form: Form
    part: Part
    rewrites: tuple[Rewrite, ...]
