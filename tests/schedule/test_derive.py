"""Sketches that rules derive: which there are, that their rows are legal and mean the task."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.schedule.small_tasks import (
    TASKS,
    arrays_for,
    check_native,
    check_program,
    convolution,
    make_task,
    matmul,
    matmul_relu,
)
from tests.targets import HOST
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.core.errors import ScheduleError, WhetError
from whet.ir.expr import call, const, select
from whet.ir.tensor import compute, placeholder, reduce_axis, sum_
from whet.schedule.derive.generate import sketches
from whet.schedule.derive.rules import RULES, SketchRule, derivation_rule
from whet.schedule.derive.show import show_sketch
from whet.schedule.derive.sketch import Derived
from whet.schedule.derive.structure import structures
from whet.schedule.derive.tiling import Levels, own_tiles
from whet.schedule.program.show import show_task
from whet.schedule.program.steps import Trace, replay_steps
from whet.schedule.space.registry import SKETCHES, choices
from whet.schedule.space.statements import program_nests
from whet.tasks.task import Task

TARGET = PRESETS["x86-64-v3"]
DERIVED = Derived()


def rules_of(task: Task, cores: int = 2) -> list[tuple[str, ...]]:
    return [s.rules for s in sketches(task, cores)]


def relu_pad_matmul() -> Task:
    """The second example of the paper (figure 5)."""
    a, d, k = (
        placeholder((8, 400), f32, "A"),
        placeholder((512, 4), f32, "D"),
        reduce_axis(512, "k"),
    )
    b = compute((8, 400), lambda i, j: call("max", a[i, j], 0.0), "B")
    c = compute((8, 512), lambda i, k: select(k < 400, b[i, k], const(0, f32)), "C")
    return make_task(compute((8, 4), lambda i, j: sum_(c[i, k] * d[k, j], k), "E"))


def matmul_then_relu() -> Task:
    """The first example of the paper."""
    a, b = placeholder((512, 512), f32, "A"), placeholder((512, 512), f32, "B")
    k = reduce_axis(512, "k")
    c = compute((512, 512), lambda i, j: sum_(a[i, k] * b[k, j], k), "C")
    return make_task(compute((512, 512), lambda i, j: call("max", c[i, j], 0.0), "D"))


def test_the_first_example_of_the_paper(golden: Callable[[str], None]) -> None:
    task = matmul_then_relu()
    shown = [show_sketch(s) for s in sketches(task, 2)]
    golden(f"{show_task(task)}\n\n{shown[1]}")


def test_the_second_example_of_the_paper(golden: Callable[[str], None]) -> None:
    task = relu_pad_matmul()
    wanted = ("add cache write", "tiling with fusion", "skip", "always inline")
    shown = [show_sketch(s) for s in sketches(task, 2) if s.rules == wanted]
    golden(f"{show_task(task)}\n\n{shown[1]}")


def test_a_product_and_what_follows_it() -> None:
    """The sketches that TVM prints for a matrix product with an addition (three of them)."""
    assert rules_of(matmul_relu(512, 512, 512)) == [
        ("skip", "tiling with fusion"),
        ("skip", "tiling with fusion"),
        ("skip", "multi-level tiling"),
    ]


def test_a_product_alone_gets_a_scratch_buffer() -> None:
    assert rules_of(matmul(512, 512, 512)) == [
        ("add cache write", "tiling with fusion"),
        ("add cache write", "tiling with fusion"),
        ("multi-level tiling",),
    ]


def test_padding_is_not_inlined_and_what_is_before_it_is() -> None:
    found = rules_of(relu_pad_matmul())
    assert ("add cache write", "tiling with fusion", "skip", "always inline") in found
    assert all(rules[-1] == "always inline" for rules in found)


def test_long_reductions_are_factored_both_ways() -> None:
    a, k = placeholder((4096,), f32, "a"), reduce_axis(4096, "k")
    task = make_task(compute((1,), lambda i: sum_(a[k], k), "y"))
    steps = [" ".join(str(m.step) for m in s.state.moves) for s in structures(task, 2)]
    assert any("variant=local" in s and "variant=stage" not in s for s in steps)
    assert any("variant=stage" in s and "variant=local" not in s for s in steps)
    assert any("variant=stage" in s and "variant=local" in s for s in steps)


def test_matrices_of_constants_become_code() -> None:
    """A transform of Winograd: its matrix is a tensor that reads nothing."""
    x, r = placeholder((4, 32), f32, "x"), reduce_axis(4, "r")
    matrix = compute((4, 4), lambda i, j: select(i < j, const(1, f32), const(0, f32)), "matrix")
    task = make_task(compute((4, 32), lambda i, j: sum_(matrix[i, r] * x[r, j], r), "y"))
    (made,) = structures(task, 2)
    assert made.sketch.rules == ("simplify constant tensor", "always inline")
    kinds = {str(m.step) for m in made.state.moves}
    assert {"unroll(loop=i_1.0)", "unroll(loop=r)"} <= kinds


def test_structures_for_gpus_are_accepted() -> None:
    state = sketches(matmul(64, 64, 64), 1, [SketchRule("tiles", lambda s: [_gpu_tiles(s)])])[0]
    assert [c.holes[-1] for c in state.chains] == ["i.4", "j.4", "k.2"]
    with pytest.raises(WhetError, match="WH2102"):
        Levels("SRS", 2)


def _gpu_tiles(state: object) -> object:
    return own_tiles(state, state.node, "SSSRRSRS", 3, cached=True).past()  # type: ignore


@pytest.mark.parametrize("name", sorted(TASKS))
def test_rows_are_legal_and_mean_the_task(name: str) -> None:
    rng = np.random.default_rng(len(name))
    task = TASKS[name](*map(int, rng.integers(3, 12, 3)))
    form = DERIVED.fits(task)
    assert form is not None
    population = DERIVED.space(form, HOST, 2)
    assert DERIVED.legal(form, HOST, 2, population).all()
    costs = DERIVED.costs(form, HOST, 2, population)
    assert np.isfinite(costs).all()
    assert (costs > 0).all()
    for row in rng.integers(0, len(costs), 4):
        holes = {h: int(c[row]) for h, c in population.items()}
        kernel = DERIVED.lower(form, holes, "k")
        check_program(kernel.program, task, arrays_for(task))
        check_native(kernel, task, arrays_for(task), HOST)


@pytest.mark.parametrize("name", ["matmul_relu", "convolution", "two_outputs"])
def test_closed_forms_are_what_programs_say(name: str) -> None:
    """Loops, marks and strides of a population against lowered programs, on one thread."""
    rng = np.random.default_rng(3)
    task = TASKS[name](12, 16, 8)
    form = DERIVED.fits(task)
    assert form is not None
    population = DERIVED.space(form, TARGET, 1)
    nests = DERIVED.nests(form, TARGET, 1, population)
    for row in rng.integers(0, len(population["structure"]), 5):
        holes = {h: int(c[row]) for h, c in population.items()}
        known = {_shape(s, 0) for s in program_nests(DERIVED.lower(form, holes, "k").program)}
        own = {_shape(s, int(np.flatnonzero(s.rows == row)[0])) for s in nests if row in s.rows}
        assert own == known


def _shape(s: object, row: int) -> object:
    loops, marks = s.loops[row], s.marks[row]  # type: ignore[attr-defined]
    kept = loops > 1
    places = [(a.buffer, a.is_write, tuple(a.strides[row][kept])) for a in s.accesses]  # type: ignore
    return tuple(loops[kept]), tuple(marks[kept]), frozenset(places)


def test_illegal_rows_are_told() -> None:
    form = DERIVED.fits(matmul(64, 64, 64))
    assert form is not None
    population = DERIVED.space(form, TARGET, 2)
    for hole, value in (("i.1", 65), ("j.lanes", 3), ("structure", 1), ("i.0.parallel", 9)):
        changed = {**population, hole: np.full(len(population["structure"]), value)}
        assert not DERIVED.legal(form, TARGET, 2, changed).any(), hole


def test_a_record_of_unknown_structure_is_refused() -> None:
    form = DERIVED.fits(matmul())
    assert form is not None
    with pytest.raises(ScheduleError, match="WH2120 the rules derive no structure 1 "):
        DERIVED.lower(form, {"structure": 1}, "k")


def test_derived_sketches_do_not_draft_defaults() -> None:
    assert "derived" in SKETCHES
    assert "derived" not in {c.sketch.name for c in choices(matmul(), TARGET, 2, "real")}


def test_a_rule_from_outside_comes_first() -> None:
    task, before = matmul_relu(), list(RULES)
    assert len(list(sketches(task, 1))) > 1
    try:
        derivation_rule("mine", exclusive=True)(lambda state: [state.past()])
        assert [r.name for r in RULES] == ["mine", *(r.name for r in before)]
        assert len(list(sketches(task, 1))) == 1  # it applies everywhere and lets no other follow
        with pytest.raises(WhetError, match="already a rule 'mine'"):
            derivation_rule("mine")(lambda state: [])
    finally:
        RULES[:] = before


def test_steps_of_a_row_are_a_trace() -> None:
    task = convolution(7, 4, 3)
    form = DERIVED.fits(task)
    assert form is not None
    population = DERIVED.space(form, TARGET, 1)
    holes = {h: int(c[0]) for h, c in population.items()}
    made = form.structure(holes["structure"])
    trace = Trace(made.steps(holes), holes)
    again = replay_steps(Trace.from_json(trace.to_json()), task, "k")
    assert again.program is DERIVED.lower(form, holes, "k").program
