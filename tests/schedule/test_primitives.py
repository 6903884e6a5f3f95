"""Every primitive as text, before and after, and the errors of calls that are not legal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.schedule.small_tasks import (
    TASKS,
    arrays_for,
    chain,
    check_native,
    check_program,
    convolution,
    make_task,
    matmul,
    matmul_relu,
    softmax,
    two_outputs,
)
from tests.targets import HOST
from whet.core.dtypes import f32, i64
from whet.core.errors import ScheduleError
from whet.ir.expr import Read, Var, call, cast, const
from whet.ir.program import Buffer, Loop, Program, Store
from whet.ir.tensor import compute, placeholder, reduce_axis, sum_
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.primitives import (
    PRIMITIVES,
    cache_read,
    cache_write,
    compute_at,
    decompose,
    fission,
    fuse,
    inline,
    naive_program,
    parallel,
    register_tile,
    reorder,
    rewrite_layout,
    rfactor,
    split,
    spread,
    tile,
    unroll,
    vectorize,
)
from whet.tasks.task import Task

Schedule = Callable[[Program], Program]

LEVELS = ("i.0", "j.0", "i.1", "j.1", "i.2")
TILED_UPDATE = (
    ("i_1", "j_1", "k"),
    ((2,), (4,), (5,)),
    ("k.0", "i_1.0", "j_1.0", "k.1", "i_1.1", "j_1.1"),
)


def fused(program: Program) -> Program:
    """A product inside tiles that overlap at both edges."""
    order = ("i_1.0", "j_1.0", "i_1.1", "j_1.1")
    return compute_at(tile(program, ("i_1", "j_1"), ((4,), (4,)), order), "y_sum", "j_1.0")


STEPS: dict[str, tuple[Task, Schedule]] = {
    "split-perfect": (matmul(), lambda p: split(p, "i", 3, "perfect")),
    "split-guard": (matmul(), lambda p: split(p, "i", 4, "guard")),
    "split-peel": (matmul(), lambda p: split(p, "i", 4, "peel")),
    "split-overlap": (matmul(), lambda p: split(p, "i", 4, "overlap")),
    "fuse": (matmul(), lambda p: fuse(p, "i", "j")),
    "reorder": (matmul(), lambda p: reorder(p, ("j", "i"))),
    "fission": (matmul(), lambda p: fission(p, "j")),
    "unroll": (matmul(), lambda p: unroll(p, "k")),
    "vectorize": (chain(), lambda p: vectorize(p, "j")),
    "parallel": (matmul(), lambda p: parallel(p, "i")),
    "compute_at": (matmul_relu(), lambda p: compute_at(p, "y_sum", "i_1")),
    "compute_at-window": (convolution(), lambda p: compute_at(p, "p", "i_1")),
    "inline": (chain(), lambda p: inline(inline(p, "t"), "u")),
    "inline-guarded": (convolution(), lambda p: inline(p, "p")),
    "cache_write": (matmul(), lambda p: cache_write(p, "y", "j")),
    "cache_write-loads": (matmul(), lambda p: cache_write(p, "y", "k")),
    "cache_read": (matmul(), lambda p: cache_read(p, "b", "j")),
    "cache_read-packed": (matmul(), lambda p: cache_read(p, "a", None, (1, 0))),
    "rfactor-local": (matmul(k=8), lambda p: rfactor(split(p, "k", 4), "ki")),
    "rfactor-stage": (matmul(k=8), lambda p: rfactor(split(p, "k", 4), "ko", "stage")),
    "tile": (matmul(6, 8, 6), lambda p: tile(p, ("i", "j"), ((4, 2), (4,)), LEVELS)),
    "tile-reduction": (matmul(), lambda p: tile(decompose(p, ("i", "j")), *TILED_UPDATE)),
    "decompose": (matmul(), lambda p: decompose(p, ("i", "j"))),
    "spread": (matmul(), lambda p: spread(p, ("i", "j"))),
    "spread-overlap": (matmul_relu(7, 9, 6), lambda p: spread(fused(p), ("i_1.0", "j_1.0"))),
    "register_tile": (matmul(10, 20, 6), lambda p: register_tile(p, "i", "j", 4, 2, 4)),
}


@pytest.mark.parametrize("case", STEPS)
def test_text(case: str, golden: Callable[[str], None]) -> None:
    task, schedule = STEPS[case]
    before = naive_program(task)
    after = schedule(before)
    check_program(after, task, arrays_for(task))
    golden(f"{before}\n\n{after}")


@pytest.mark.parametrize("case", STEPS)
def test_native(case: str) -> None:
    task, schedule = STEPS[case]
    program = schedule(naive_program(task))
    kernel = Kernel(program, task.inputs, task.outputs)
    check_native(kernel, task, arrays_for(task), HOST)


def test_every_primitive_is_shown() -> None:
    assert {case.split("-")[0] for case in STEPS} == set(PRIMITIVES)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_naive_text(name: str, golden: Callable[[str], None]) -> None:
    golden(str(naive_program(TASKS[name]())))


def test_layouts_of_constants(golden: Callable[[str], None]) -> None:
    task = matmul(n=10)
    (b,) = task.constants
    program, _, packed = rewrite_layout(naive_program(task), "b", b, (1, 0, 2), (1, 4))
    golden(f"{program}\n\n{packed.name}{list(packed.shape)} = {packed.body}")
    kernel = Kernel(program, (task.inputs[0], packed), task.outputs)
    check_native(kernel, task, arrays_for(task), HOST)


def test_a_constant_that_is_split_as_the_loop_is_read_in_rows() -> None:
    task = matmul(n=8)
    (b,) = task.constants
    program = split(naive_program(task), "j", 4, "perfect")
    program, _, _ = rewrite_layout(program, "b", b, (1, 0, 2), (1, 4))
    assert "b_packed[jo, k, ji]" in str(program)


def test_tiles_that_overlap_and_accumulate_in_place_stay_on_one_thread() -> None:
    program = tile(naive_program(matmul(7, 8, 5)), ("i", "j"), ((4,), (4,)), LEVELS[:4])
    with pytest.raises(ScheduleError, match="WH2104"):
        spread(program, ("i.0", "j.0"))


def test_tiles_that_overlap_and_know_their_number_stay_on_one_thread() -> None:
    """What is written depends on the tile, so two tiles would not write the same."""
    y, t, u = Buffer("y", (7,), f32), Var("t"), Var("u")
    store = Store(y, (call("min", t * 4, 3) + u,), cast(t, f32))
    loops = Loop(t, const(2, i64), (Loop(u, const(4, i64), (store,)),))
    with pytest.raises(ScheduleError, match="WH2104"):
        spread(Program("p", (), (y,), (loops,)), ("t",))


# -------------------------------------------------------------------------------------- errors
def prefix_sums() -> Program:
    """Every iteration needs the one before: for i in 4: y[i + 1] = y[i] + 1.0"""
    y, i = Buffer("y", (5,), f32), Var("i")
    return Program("p", (), (y,), (Loop(i, const(4, i64), (Store(y, (i + 1,), y[i] + 1.0),)),))


def dynamic() -> Program:
    """A loop whose extent is read from memory."""
    n, y, i = Buffer("n", (1,), i64), Buffer("y", (9,), f32), Var("i")
    store = Store(y, (i,), const(0, f32))
    return Program("p", (n,), (y,), (Loop(i, Read(n, (const(0, i64),)), (store,)),))


def started_from_one() -> Program:
    """A product that starts from 2, which no neutral element is."""
    program = naive_program(matmul(2, 2, 4))
    return Program(
        "p", program.inputs, program.outputs, _with_start(program), program.workspace
    )  # fmt: skip


def _with_start(program: Program) -> tuple[Loop, ...]:
    (i,) = program.body
    assert isinstance(i, Loop)
    (j,) = i.body
    assert isinstance(j, Loop)
    start = j.body[0]
    assert isinstance(start, Store)
    changed = Store(start.buffer, start.indices, const(2, f32))
    return (Loop(i.var, i.extent, (Loop(j.var, j.extent, (changed, *j.body[1:])),)),)


def nested() -> Task:
    x, k, r = placeholder((3, 4), f32, "x"), reduce_axis(4, "k"), reduce_axis(3, "r")
    return make_task(compute((1,), lambda i: sum_(sum_(x[r, k], k), r), "y"))


ERRORS: dict[str, tuple[Callable[[], object], str, str]] = {
    "no such loop": (
        lambda: unroll(naive_program(matmul()), "z"), "WH2101",
        "there is no loop 'z'"),
    "no such buffer": (
        lambda: inline(naive_program(chain()), "z"), "WH2101",
        "there is no single buffer 'z'"),
    "factor of zero": (
        lambda: split(naive_program(matmul()), "i", 0), "WH2102",
        "loop 'i' cannot be split by 0"),
    "does not divide": (
        lambda: split(naive_program(matmul()), "i", 4, "perfect"), "WH2102",
        "4 does not divide the extent 6 of loop 'i'"),
    "too large to peel": (
        lambda: split(naive_program(matmul()), "i", 7, "peel"), "WH2102",
        "loop 'i' of extent 6 has no whole step of 7"),
    "unknown extent": (
        lambda: split(dynamic(), "i", 2), "WH2102",
        "the extent n[0] of loop 'i' is not known"),
    "marked twice": (
        lambda: unroll(parallel(naive_program(matmul()), "i"), "i"), "WH2102",
        "loop 'i' is parallel already"),
    "scratch of a lane": (
        lambda: compute_at(vectorize(naive_program(chain()), "j_1"), "t", "j_1"), "WH2102",
        "loop 'j_1' is vector already"),
    "no order": (
        lambda: cache_read(naive_program(matmul()), "a", None, (0, 0)), "WH2102",
        "[0, 0] is no order of the 2 axes of 'a'"),
    "position": (
        lambda: fission(naive_program(matmul()), "j", 2), "WH2102",
        "loop 'j' has 2 statements and cannot be split at 2"),
    "not perfectly nested": (
        lambda: fuse(naive_program(matmul()), "j", "k"), "WH2103",
        "loop 'k' is not all that loop 'j' does"),
    "inside out": (
        lambda: fuse(naive_program(matmul()), "j", "i"), "WH2103",
        "loop 'j' lies inside loop 'i'"),
    "the same loop": (
        lambda: reorder(naive_program(matmul()), ("i", "i")), "WH2103",
        "an order needs two or more different loops, not ['i', 'i']"),
    "inner loop in parallel": (
        lambda: parallel(naive_program(matmul()), "j"), "WH2103",
        "loop 'j' is not outermost"),
    "lanes with a loop": (
        lambda: vectorize(naive_program(matmul()), "j"), "WH2103",
        "loop 'j' does more than store, so it cannot be lanes of a vector"),
    "prefix sums in parallel": (
        lambda: parallel(prefix_sums(), "i"), "WH2104",
        "iterations of loop 'i' depend on each other"),
    "a reduction as lanes": (
        lambda: vectorize(naive_program(matmul()), "k"), "WH2104",
        "iterations of loop 'k' depend on each other"),
    "a sum done twice": (
        lambda: split(naive_program(matmul()), "k", 2, "overlap"), "WH2104",
        "steps of loop 'k' cannot be done twice"),
    "an output inlined": (
        lambda: inline(naive_program(chain()), "y"), "WH2105",
        "'y' is not an intermediate stage"),
    "a reduction inlined": (
        lambda: inline(naive_program(softmax()), "total"), "WH2105",
        "'total' is not defined by one expression"),
    "a split stage moved": (
        lambda: compute_at(split(naive_program(chain()), "j", 2), "t", "i_2"), "WH2105",
        "the loops over 't' have been changed already"),
    "read elsewhere too": (
        lambda: compute_at(naive_program(chain()), "t", "i_1"), "WH2105",
        "'t' is not read in loop 'i_1' alone"),
    "not written there": (
        lambda: cache_write(naive_program(chain()), "y", "i"), "WH2105",
        "loop 'i' does not write 'y'"),
    "registers with addresses": (
        lambda: cache_write(naive_program(matmul()), "y", "i", "register"), "WH2105",
        "'y' cannot be in registers: loop 'j' moves through it"),
    "under a condition": (
        lambda: cache_write(split(naive_program(chain()), "j", 2), "t", "i"), "WH2105",
        "'t' is accessed under a condition in loop 'i'"),
    "written while cached": (
        lambda: cache_read(naive_program(matmul()), "y", "i"), "WH2105",
        "'y' is not only read in loop 'i'"),
    "not an input": (
        lambda: rewrite_layout(naive_program(matmul()), "y", matmul().inputs[1], (1, 0)),
        "WH2105", "'y' is not an input"),
    "nothing reduced": (
        lambda: rfactor(naive_program(matmul()), "i"), "WH2106",
        "loop 'i' does not only combine into one element"),
    "a stage inside the reduction": (
        lambda: rfactor(compute_at(naive_program(convolution()), "p", "q"), "s"), "WH2106",
        "the loops around 's' do more than combine into one element"),
    "start that is not neutral": (
        lambda: rfactor(started_from_one(), "k"), "WH2106",
        "the reduction over 'k' starts from 2.0"),
    "start elsewhere": (
        lambda: rfactor(fission(naive_program(matmul()), "j"), "k"), "WH2106",
        "the reduction over loop 'k' has no start value beside it"),
    "a reduction of a reduction": (
        lambda: naive_program(nested()), "WH2106",
        "'y' reduces a reduction: sum(sum(x[r, k] for k in 4) for r in 3)"),
    "a tile without a reduction": (
        lambda: register_tile(naive_program(chain()), "i", "j", 2, 1, 4), "WH2106",
        "loop 'j' is not a start value and a reduction"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str) -> None:
    call, code, message = ERRORS[case]
    with pytest.raises(ScheduleError) as caught:
        call()
    assert (caught.value.code, caught.value.message) == (code, message)


def test_reduced_loops_may_change_places_only_among_themselves() -> None:
    task = convolution()
    program = reorder(naive_program(task), ("s", "q"))
    check_program(program, task, arrays_for(task))


def test_two_outputs_keep_their_order() -> None:
    task = two_outputs()
    program = parallel(naive_program(task), "i")
    check_program(program, task, arrays_for(task))
