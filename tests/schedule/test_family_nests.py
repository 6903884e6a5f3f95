"""The loop nests of the families in closed form against those read off single programs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.small_tasks import TASKS, divided, make_task
from tests.schedule.windows import Windows
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.ir.tensor import compute, guarded_read, max_, placeholder, reduce_axis, sum_
from whet.schedule.space.registry import SKETCHES
from whet.schedule.space.statements import MARKS, Statement, program_nests
from whet.tasks.task import Task

TRANSFORMS = {("winograd", name) for name in ("input", "output", "finish")}
AHEAD = {("staged", "copy ahead"), ("staged", "copy by tiles")}
"""One block or tile further on than its description, which shows where steps are clipped."""
PARALLEL = MARKS["parallel"]
Nest = tuple[int, tuple[tuple[int, int], ...], tuple[tuple[str, bool, tuple[int, ...]], ...]]


def shape_of(s: Statement, row: int) -> Nest:
    """Parallel steps, other loops with their marks, and accesses with the steps of their loops.

    Loops of extent 1 are left out; of parallel loops the innermost speaks for all.
    """
    extents, marks = s.loops[row], s.marks[row]
    wide = np.flatnonzero(extents > 1)
    parallel = [n for n in wide if marks[n] == PARALLEL]
    shown = [n for n in wide if marks[n] != PARALLEL]
    steps = int(np.prod(extents[parallel]))
    moved = [*parallel[-1:], *shown]
    accesses = tuple(
        (a.buffer, a.is_write, tuple(int(x) for x in a.strides[row, moved])) for a in s.accesses
    )
    return steps, tuple((int(extents[n]), int(marks[n])) for n in shown), accesses


def batched(b: int = 3, m: int = 6, n: int = 20) -> Task:
    """Neither operand is constant, and the second is read where it lies or copied."""
    x, y = placeholder((b, m, 5), f32, "x"), placeholder((b, 5, n), f32, "y")
    k = reduce_axis(5, "k")
    return make_task(compute((b, m, n), lambda g, i, j: sum_(x[g, i, k] * y[g, k, j], k), "z"))


def heads(outer: tuple[int, int], m: int, n: int) -> Task:
    """A batch along two axes that cannot be merged, because rows lie between them."""
    x = placeholder((outer[0], m, outer[1], 5), f32, "x")
    y, k = placeholder((outer[0], 5, outer[1], n), f32, "y"), reduce_axis(5, "k")
    value = lambda g, h, i, j: sum_(x[g, i, h, k] * y[g, k, h, j], k)
    return make_task(compute((*outer, m, n), value, "z"))


def transposition(m: int = 20, n: int = 24, _: int = 0) -> Task:
    x = placeholder((m, n), f32, "x")
    return make_task(compute((n, m), lambda j, i: x[i, j], "y"))


def sliding(stride: int, width: int) -> Task:
    """A window down and across, channels first and without a border in memory."""
    x, w = placeholder((3, 9, width), f32, "x"), placeholder((3, 3, 3), f32, "w")
    p, q = reduce_axis(3, "p"), reduce_axis(3, "q")
    return make_task(
        compute(
            (3, -(-9 // stride), -(-width // stride)),
            lambda c, i, j: max_(
                guarded_read(x, (c, i * stride + p - 1, j * stride + q - 1), 0) * w[c, p, q], p, q
            ),
            "y",
        )
    )


def sharing(channels: int, rows: int) -> Task:
    """Several results from the same row: lanes along it, results in a tile."""
    x, w = placeholder((channels, rows, 26), f32, "x"), placeholder((5, channels, 3), f32, "w")
    c, q = reduce_axis(channels, "c"), reduce_axis(3, "q")
    value = lambda o, i, j: max_(x[c, i, j + q] * w[o, c, q], c, q)
    return make_task(compute((5, rows, 24), value, "y"))


def planes(stride: int, width: int) -> Task:
    """A window of which what lies outside can be left out."""
    x, p, q = placeholder((3, 9, width), f32, "x"), reduce_axis(3, "p"), reduce_axis(3, "q")
    place = lambda c, i, j: (c, i * stride + p - 1, j * stride + q - 1)
    value = lambda c, i, j: max_(guarded_read(x, place(c, i, j), float("-inf")), p, q)
    return make_task(compute((3, -(-9 // stride), -(-width // stride)), value, "y"))


CASES = {
    "planes": (planes(1, 20), planes(2, 50), planes(1, 200), planes(2, 9)),
    "sharing": (sharing(4, 3), sharing(20, 2)),
    "sliding": (sliding(1, 20), sliding(2, 50), sliding(1, 200), sliding(2, 9)),
    **{name: (make(9, 20, 11),) for name, make in TASKS.items()},
    "divided": (divided(9, (16, 32), 11), divided(5, (64, 48, 64), 300, constant=False)),
    "batched": (batched(), batched(2, 13, 40)),
    "heads": (heads((2, 3), 6, 20), heads((3, 2), 13, 40)),
    "transposition": (transposition(), transposition(17, 33)),
    "conv": (
        Windows((7, 7), 8, 20, epilogue=True).task,
        Windows((9, 9), 6, 16, stride=2, border=False).task,
        Windows((6, 5), 16, 8, kernel=1, pad=0, batch=3).task,
    ),
    "long_sums": (TASKS["matmul"](5, 20, 300), Windows((8, 8), 150, 16).task),
    "three_axes": (Windows((5, 6, 7), 16, 16).task,),
    "taps": (
        Windows((6, 7), 16, 16, kernel=2, pad=0, batch=2).task,
        Windows((6, 7), 16, 16, kernel=(3, 2), epilogue=True).task,
        Windows((30,), 32, 16, kernel=7, pad=3).task,
    ),
    "dilated": (
        Windows((11, 8), 16, 16, dilation=2, pad=2).task,
        Windows((7, 7), 16, 32, dilation=2, batch=2, groups=2).task,
        Windows((5, 7, 8), 16, 16, dilation=2, pad=2).task,
    ),
    "groups": (
        Windows((9, 9), 8, 8, groups=8).task,
        Windows((9, 21), 40, 40, groups=40, border=False, stride=2).task,
        Windows((6, 6), 16, 16, groups=4).task,
        Windows((6, 6), 16, 48, groups=2).task,
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("preset", ["x86-64-v3", "x86-64-v4"])
def test_closed_forms_are_what_programs_say(name: str, preset: str) -> None:
    rng, target = np.random.default_rng(0), PRESETS[preset]
    compared = 0
    for task in CASES[name]:
        for sketch in (s for s in SKETCHES.values() if s.machine == "cpu"):
            form = sketch.fits(task) if sketch.drafts_default else None
            if form is None:
                continue
            population = sketch.space(form, target, 2)
            count = len(next(iter(population.values())))
            if not count:
                continue
            nests = sketch.nests(form, target, 2, population)
            for row in rng.integers(0, count, 12):
                holes = {hole: int(column[row]) for hole, column in population.items()}
                program = sketch.lower(form, holes, "k").program
                known = {shape_of(s, 0) for s in program_nests(program)}
                for s in nests:
                    (at,) = np.nonzero(s.rows == row)
                    # Transforms are straight-line code in programs: a statement per point.
                    if len(at) and (sketch.name, s.name) not in TRANSFORMS | AHEAD:
                        assert shape_of(s, int(at[0])) in known, (sketch.name, s.name, holes)
                        compared += 1
    assert compared > 0 or name in ("chain", "convolution")
