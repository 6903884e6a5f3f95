"""Graphs and kernels searched together: what is measured decides which graph to search on.

    search graphs by prices  ->  tune the tasks of the best of them together  ->  prices from what
    was measured  ->  search again  ->  ...  ->  the fastest, measured as a whole, is kept, and
    its kernels are chosen again inside it, where kernels alone say too little

TASO prices operators once and for all; here a task that tuning has made cheaper may make another
graph the best one.  Whatever is found is stored at once: an interrupted search loses nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.build.backend import backend_of
from whet.build.native import build
from whet.core.caching import FileCache
from whet.core.errors import InternalError
from whet.core.target import Target
from whet.core.types import Array
from whet.db.place import records_path
from whet.db.store import Database
from whet.graph.graph import Graph
from whet.joint.checking import random_inputs, relative_difference
from whet.joint.clocks import Clock
from whet.joint.kept import UNCHANGED, Rewritten, remember, rewritten_graph, search
from whet.joint.refining import kept_seconds
from whet.joint.tuning import refine_tuned, tune_tasks, weighted_tasks
from whet.ops.base import Numeric
from whet.runtime.executable import Executable
from whet.tune.prices import RecordedPrice
from whet.tune.report import Watch
from whet.tune.schedule import Schedules
from whet.tune.tuner import Budget

ROUNDS = 3
"""Searches over graphs within one budget."""
SEARCH_SHARE, LONGEST_SEARCH = 0.1, 20.0
"""The part of the budget that one search over graphs may take, and the most seconds."""
COMPARE_SHARE, LONGEST_COMPARISON = 0.05, 5.0
"""The same for comparing whole graphs in the end."""
QUARTILES = 1.35
"""Standard deviations between the quartiles of normal noise."""
TOLERANCE = 1e-3
"""Graphs whose results differ by more, relative to the largest, do not compute the same."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The machine that a model is made for, and how."""

    target: Target
    threads: int
    numerics: Numeric
    cache: FileCache


def optimize_together(
    graph: Graph, setting: Setting, seconds: float, watch: Watch | None = None
) -> Rewritten:
    """Searches for a faster graph and faster kernels; later compilations use what was found."""
    kept = kept_seconds(setting.target, seconds)
    end = time.monotonic() + seconds
    until = end - kept
    outcomes = [UNCHANGED]
    for number in range(ROUNDS):
        left = until - time.monotonic()
        if left <= 0:
            break
        longest = min(LONGEST_SEARCH, SEARCH_SHARE * seconds, left)
        found = _search(graph, setting, longest, measured=number > 0)
        if all(found.recipe != o.recipe for o in outcomes):
            outcomes.append(found)
        graphs = [rewritten_graph(graph, o) for o in outcomes]
        share = max(0.0, until - time.monotonic()) * (1 - COMPARE_SHARE) / (ROUNDS - number)
        tasks = weighted_tasks(graphs, setting.target, setting.threads, setting.numerics)
        tune_tasks(tasks, setting.target, setting.threads, Budget(share),
                   numerics=setting.numerics, watch=watch)  # fmt: skip
        best = fastest(graphs, setting, min(LONGEST_COMPARISON, COMPARE_SHARE * seconds))
        remember(graph, setting.target, setting.threads, setting.numerics, setting.cache,
                 outcomes[best])  # fmt: skip
        outcomes = [UNCHANGED, outcomes[best]] if best else [UNCHANGED]
    if kept:
        best_graph = rewritten_graph(graph, outcomes[-1])
        refine_tuned([best_graph], setting.target, setting.threads, end - time.monotonic(),
                     numerics=setting.numerics, watch=watch)  # fmt: skip
    return outcomes[-1]


def _search(graph: Graph, setting: Setting, seconds: float, measured: bool) -> Rewritten:
    """One search over graphs, by what is known about kernels so far."""
    where = (setting.target, setting.threads, setting.numerics)
    if not measured:
        return search(graph, *where, seconds, checked=math.inf, clock=Clock())
    with Database(records_path(None)) as records:
        known = Schedules(*where, records)
        backend = backend_of(setting.target)
        analytic = backend.price(*where, known.faster, graph.constant_bytes)
        price = RecordedPrice(analytic, known, as_tuned=True)
        return search(graph, *where, seconds, price, checked=math.inf, clock=Clock())


# ------------------------------------------------------------------------------------ comparing
def fastest(graphs: Sequence[Graph], setting: Setting, seconds: float) -> int:
    """The number of the graph that runs fastest with the best kernels known, the first if none is
    clearly faster.

    Raises: `InternalError` if two of them do not compute the same.
    """
    if len(graphs) == 1:
        return 0
    made = [_built(g, setting) for g in graphs]
    inputs = random_inputs(graphs[0])
    results = [m(inputs) for m in made]
    for other in results[1:]:
        _require_same(results[0], other)
    times = _interleaved(made, inputs, seconds)
    ratios = [_lower_bound(times[0], t) for t in times[1:]]
    best = int(np.argmax(ratios)) + 1
    return best if ratios[best - 1] > 1.0 else 0


def _built(graph: Graph, setting: Setting) -> Executable:
    with Database(records_path(None)) as records:
        known = Schedules(setting.target, setting.threads, setting.numerics, records)
        return build(
            graph, setting.target, setting.threads, setting.cache, numerics=setting.numerics,
            schedule=known, schedule_key=known.key, in_plan=known.within, evidence=known.faster,
        )  # fmt: skip


def _require_same(left: Sequence[Array], right: Sequence[Array]) -> None:
    off = max((relative_difference(a, b) for a, b in zip(left, right, strict=True)), default=0.0)
    if off > TOLERANCE:
        raise InternalError("WH1007", f"a rewritten graph is off by {off:.1e}")


def _interleaved(made: Sequence[Executable], inputs: list[Array], seconds: float) -> list[Array]:
    """Seconds of calls, taken in turns."""
    times: list[list[float]] = [[] for _ in made]
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(times[0]) < 5:
        for executable, taken in zip(made, times):
            start = time.perf_counter()
            executable(inputs)
            taken.append(time.perf_counter() - start)
    return [np.asarray(t) for t in times]


def _lower_bound(slow: Array, fast: Array) -> float:
    """The ratio of two times taken in turns, less what it may be off by (95 %).

    The spread is that of the middle half: calls that something disturbed say nothing.
    """
    ratios = np.log(slow / fast)
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    error = 1.25 * 1.96 * (high - low) / QUARTILES / np.sqrt(len(ratios))
    return float(np.exp(middle - error))
