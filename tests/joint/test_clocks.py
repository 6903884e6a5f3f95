"""Searches within their time: repeated blocks, slow machines, and what is always done."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace

import pytest

from tests.joint.toy_search import PARTS, Walk
from whet.core.gpu import PRESETS
from whet.frontend.onnx import import_model
from whet.graph.graph import Graph
from whet.graph.passes import optimize
from whet.joint import clocks
from whet.joint.clocks import Clock, WorkClock
from whet.joint.kept import Rewritten, rewritten_graph, search
from whet.joint.search import Budget, Step, backtrack, descend
from whet.joint.superoptimize import LONG_SEARCH, clock_for
from whet.superopt.apply.rewrite import Part
from zoo import sequential

GPU = dataclasses.replace(PRESETS["cuda-sm_90a"], precision="tf32")
LAYERS = 5


@pytest.fixture(scope="module")
def bert() -> Graph:
    """Layers wide enough for one product to be cheaper than three."""
    model = sequential.bert_base(layers=LAYERS, tokens=64, vocabulary=50, width=256, heads=4)
    return optimize(import_model(model).graph)


def projections(graph: Graph) -> list[int]:
    """For each value that products read: by how many of them it is read."""
    found = []
    for value, users in graph.users.items():
        products = [n for n in users if n.op.name == "matmul" and n.inputs[0] is value]
        found += [len(products)] if products else []
    return found


def ticking(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Makes the time pass by so much at every look at it."""
    ticks = count()
    look = lambda: seconds * next(ticks)
    monkeypatch.setattr(clocks, "time", SimpleNamespace(perf_counter=look, thread_time=look))


@pytest.mark.parametrize("seconds", [0.001, 0.5])
def test_products_of_one_input_are_merged_in_every_layer(bert: Graph, seconds: float) -> None:
    """However little time there is: every kind of block is searched for what mostly pays, and what
    was found is used wherever the kind occurs."""
    assert projections(bert).count(3) == LAYERS
    found = search(bert, GPU, 1, "real", seconds)
    assert max(projections(rewritten_graph(bert, found))) < 3
    assert found.after < found.before


def test_what_was_found_is_taken_when_the_time_is_over(
    bert: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticking(monkeypatch, 1.0)
    found = search(bert, GPU, 1, "real", 1.0, clock=Clock())
    assert max(projections(rewritten_graph(bert, found))) < 3


def test_a_slow_machine_finds_the_same(bert: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[Rewritten] = []
    for tick in (0.0, 1e-4, 2e-4):
        ticking(monkeypatch, tick)
        outcomes.append(search(bert, GPU, 1, "real", 0.5))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_patience_ends(bert: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch, 100.0)
    found = search(bert, GPU, 1, "real", 1.0)
    assert (found.recipe, found.taken) == (None, ())


def test_short_searches_count_work_and_long_ones_time() -> None:
    assert isinstance(clock_for(2.0), WorkClock)
    assert type(clock_for(LONG_SEARCH)) is Clock


def test_work_is_the_only_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch, 1.0)
    clock = WorkClock(5.0)
    assert clock.now() == 0.0
    clock.spend(1.5)
    assert clock.now() == 1.5
    assert [clock.now() for _ in range(4)] == [1.5, 1.5, float("inf"), float("inf")]


# ------------------------------------------------------------------------------------- the way down
PRICES = [10.0, 9.5, 9.0, 8.0, 8.5, 1.0, 7.0, 9.9]
"""Part 5 is behind part 7, a step that pays little."""
NEXT = {0: [1, 2, 7], 1: [], 2: [3, 4], 3: [], 4: [6], 5: [], 6: [], 7: [5]}


def test_the_cheapest_step_is_taken_as_long_as_one_pays() -> None:
    walk = Walk(PRICES, NEXT)
    known = descend(PARTS[0], walk.steps, walk.price, 100, lambda: True)
    assert [PARTS.index(s.part) for s in known] == [0, 1, 2, 7, 3, 4]


def test_the_way_down_has_limits() -> None:
    walk = Walk(PRICES, NEXT)
    assert len(descend(PARTS[0], walk.steps, walk.price, 3, lambda: True)) == 3
    assert len(descend(PARTS[0], walk.steps, walk.price, 100, lambda: False)) == 1


def promising(walk: Walk) -> Callable[[Part], list[Step]]:
    """The steps of the walk but for those to part 7."""
    return lambda part: [step for step in walk.steps(part) if step[1] is not PARTS[7]]


def test_what_is_known_is_not_priced_again_and_the_start_is_looked_at() -> None:
    walk = Walk(PRICES, NEXT)
    known = descend(PARTS[0], promising(walk), walk.price, 100, lambda: True)
    assert min(s.seconds for s in known) == 8.0
    found = backtrack(PARTS[0], walk.steps, walk.price, Budget(100, 10.0), 1.5, known)
    assert found.best.part is PARTS[5]
    assert found.complete
    assert sorted(walk.asked) == sorted(set(walk.asked))


def test_without_time_what_is_known_counts() -> None:
    walk = Walk(PRICES, NEXT)
    known = descend(PARTS[0], promising(walk), walk.price, 100, lambda: True)
    found = backtrack(PARTS[0], walk.steps, walk.price, Budget(100, -1.0), known=known)
    assert found.best.part is PARTS[3]
    assert (found.states, found.complete) == (len(known), False)
