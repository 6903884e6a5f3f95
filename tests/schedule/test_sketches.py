"""The sketch protocol: candidates are legal, prices are comparable, the default is the cheapest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.schedule.small_tasks import (
    TASKS,
    arrays_for,
    check_native,
    convolution,
    make_task,
    matmul,
)
from tests.targets import HOST
from whet.core.cpu import PRESETS, CpuTarget
from whet.core.dtypes import f32
from whet.core.errors import NoCodeError, WhetError
from whet.core.types import Array
from whet.ir.tensor import compute, placeholder, reduce_axis, sum_
from whet.schedule.default import default_choice, default_kernel
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.registry import SKETCHES, add_sketch, choices, find_sketch, sketch
from whet.schedule.space.sketch import Population, Sketch
from whet.schedule.space.trace import Trace, TransformStep, replay_kernel
from whet.tasks.task import Task

TARGETS = list(PRESETS.values())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", sorted(TASKS))
def test_candidates_have_prices(name: str, threads: int) -> None:
    task = TASKS[name](9, 20, 11)
    for target in TARGETS:
        for made in (s for s in SKETCHES.values() if s.machine == "cpu" and s.drafts_default):
            form = made.fits(task)
            if form is None:
                continue
            population = made.space(form, target, threads)
            lengths = {len(column) for column in population.values()}
            costs = made.costs(form, target, threads, population)
            assert lengths == {len(costs)}
            assert np.isfinite(costs).all()
            assert (costs > 0).all()


@pytest.mark.parametrize("name", sorted(TASKS))
@pytest.mark.parametrize("seed", range(2))
def test_candidates_mean_the_task(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    task = TASKS[name](*map(int, rng.integers(3, 20, 3)))
    for made in (s for s in SKETCHES.values() if s.machine == "cpu" and s.drafts_default):
        form = made.fits(task)
        if form is None:
            continue
        population = made.space(form, HOST, 2)
        rows = len(next(iter(population.values())))
        for row in rng.integers(0, rows, min(rows, 3)):
            holes = {hole: int(column[row]) for hole, column in population.items()}
            check_native(made.lower(form, holes, "k"), task, arrays_for(task), HOST)


@pytest.mark.parametrize("name", sorted(set(TASKS) - {"convolution", "chain"}))
def test_the_default_is_the_cheapest(name: str) -> None:
    """No candidate of any sketch is cheaper, and the chosen one has the price that it was given."""
    task, target = TASKS[name](), PRESETS["x86-64-v3"]
    chosen = default_choice(task, target, 2)
    prices = []
    for made in (s for s in SKETCHES.values() if s.machine == "cpu" and s.drafts_default):
        form = made.fits(task)
        if form is not None:
            population = made.space(form, target, 2)
            prices += made.costs(form, target, 2, population).tolist()
    assert chosen.nanoseconds == min(prices)
    alone = {hole: np.array([value]) for hole, value in chosen.holes.items()}
    (price,) = chosen.sketch.costs(chosen.form, target, 2, alone)
    assert price == pytest.approx(chosen.nanoseconds)


def test_no_sketch_fits() -> None:
    with pytest.raises(NoCodeError, match="WH1303 no sketch fits"):
        default_kernel(convolution(), PRESETS["x86-64-v3"], 1, "k")


def test_exact_numerics_leave_out_what_is_only_real() -> None:
    x, w = placeholder((34, 8), f32, "x"), placeholder((3, 8, 16), f32, "w")
    q, c = reduce_axis(3, "q"), reduce_axis(8, "c")
    task = make_task(
        compute((32, 16), lambda i, j: sum_(x[i + q, c] * w[q, c, j], q, c), "y"), constants=[w]
    )
    target = PRESETS["x86-64-v3"]
    everything = {c.sketch.name for c in choices(task, target, 1, "real")}
    exact = {c.sketch.name for c in choices(task, target, 1, "exact")}
    assert everything - exact == {"winograd"}


def test_names_are_taken_once() -> None:
    with pytest.raises(WhetError, match="WH2121 there is already a sketch 'rows'"):
        add_sketch(SKETCHES["rows"])


def test_unknown_names() -> None:
    with pytest.raises(WhetError, match="WH2121 there is no sketch 'melt'"):
        find_sketch("melt")


def test_a_sketch_from_outside_competes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SKETCHES, "added", {})

    @sketch
    class Free(Sketch[Task, CpuTarget]):
        """The naive program, at a price that nobody beats."""

        name = "free"
        numeric = "exact"

        def fits(self, task: Task) -> Task:
            return task

        def space(self, form: Task, target: CpuTarget, threads: int) -> Population:
            return {"size": np.array([1, 2, 4])}

        def costs(
            self, form: Task, target: CpuTarget, threads: int, population: Population
        ) -> Array:
            return 1.0 / population["size"]

        def lower(self, form: Task, holes: Mapping[str, int], name: str) -> Kernel:
            step = TransformStep("split", loop="i", factor=holes["size"], tail="guard")
            return replay_kernel(Trace((step,), {}), form, name)

    task = matmul()
    choice = default_choice(task, HOST, 1)
    assert (choice.sketch.name, choice.holes) == ("free", {"size": 4})
    check_native(choice.kernel("k"), task, arrays_for(task), HOST)


# --------------------------------------------------------------------------- what is preferred
def tasks_by_sketch() -> dict[str, Task]:
    x, k = placeholder((64, 512), f32, "x"), reduce_axis(512, "k")
    t, r = placeholder((128, 64), f32, "t"), reduce_axis(128, "r")
    return {
        "contraction": matmul(64, 64, 64),
        "rows": make_task(compute((64,), lambda i: sum_(x[i, k], k), "y")),
        "spatial": make_task(compute((64,), lambda i: sum_(t[r, i], r), "y")),
    }


@pytest.mark.parametrize("name", sorted(tasks_by_sketch()))
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_structures_find_their_sketch(name: str, target: CpuTarget) -> None:
    """Lanes run along what is contiguous: in the row that is summed, or across the sums."""
    assert default_choice(tasks_by_sketch()[name], target, 1).sketch.name == name
