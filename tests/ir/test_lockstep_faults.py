"""Faults that are planted into right programs of threads: every one must be found."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.ir.program_changes import changed, only_if, replaced, with_expressions, without
from tests.ir.thread_programs import (
    B,
    L,
    R,
    W,
    copy,
    elementwise,
    examples,
    exchanged,
    overlapped,
    product,
    refilled,
    ring,
    rotated,
    scaled,
    split_sum,
    store,
    transposed,
    turned_product,
    two_kernels,
    warp_totals,
)
from whet.core.dtypes import f16, f32
from whet.core.errors import WhetError
from whet.ir.expr import Expr, as_expr, cast, const
from whet.ir.lockstep import run_threads
from whet.ir.program import Allocate, Block, Buffer, If, Loop, Program, Stmt, Store, walk
from whet.ir.threads import (
    Arrive,
    AwaitArrivals,
    AwaitInputs,
    Barrier,
    Commit,
    Copy,
    Exchange,
    MatrixLoad,
    MatrixMultiplyAdd,
    Wait,
)

NONE = const(0.0, f32)


@dataclass(frozen=True)
class Fault:
    """A change of a right program, and what must be said about it."""

    name: str
    right: Program
    wrong: Program
    message: str

    def __str__(self) -> str:
        return self.name


def plant(
    name: str, right: Program, change: Callable[..., Program], *given: object, says: str
) -> Fault:
    return Fault(name, right, change(right, *given), says)


def added(at: int, amount: Expr | int) -> Callable[[list[Expr]], None]:
    """Adds to one expression of a statement."""

    def change(expressions: list[Expr]) -> None:
        expressions[at] = expressions[at] + amount

    return change


def set_to(at: int, value: Expr | int) -> Callable[[list[Expr]], None]:
    """Makes one expression of a statement another."""

    def change(expressions: list[Expr]) -> None:
        expressions[at] = as_expr(value)

    return change


def body_alone(stmt: Stmt) -> Block:
    return stmt.blocks[0]


def before(new: Stmt) -> Callable[[Stmt], Block]:
    return lambda stmt: (new, stmt)


def after(new: Stmt) -> Callable[[Stmt], Block]:
    return lambda stmt: (stmt, new)


def with_kind(kind: str) -> Callable[[Stmt], Block]:
    def change(stmt: Stmt) -> Block:
        assert isinstance(stmt, Loop)
        return (dataclasses.replace(stmt, kind=kind),)  # type: ignore[arg-type]

    return change


def with_elements(elements: int) -> Callable[[Stmt], Block]:
    def change(stmt: Stmt) -> Block:
        assert isinstance(stmt, Copy)
        return (dataclasses.replace(stmt, elements=elements),)

    return change


def exchange_with(**changes: object) -> Callable[[Stmt], Block]:
    def change(stmt: Stmt) -> Block:
        assert isinstance(stmt, Exchange)
        return (dataclasses.replace(stmt, **changes),)  # type: ignore[arg-type]

    return change


def into_halves(stmt: Stmt) -> Block:
    halves = Buffer("halves", (2,), f16, scope="register")
    return (Allocate(halves, exchange_with(target=halves)(stmt)),)


def late_barrier(program: Program) -> Program:
    """The ring with the barrier of a round behind its copies, not in front of them."""
    return changed(without(program, Barrier), Commit, 1, after(Barrier("block")))


def scratch(program: Program, name: str) -> Buffer:
    """The buffer with this name that a program allocates."""
    allocations = (s for s in walk(program.body) if isinstance(s, Allocate))
    return next(s.buffer for s in allocations if s.buffer.name == name)


ELEMENTWISE, TRANSPOSED, RING, SPLIT = elementwise(), transposed(), ring(), split_sum()
PRODUCT, ROTATED, OVERLAPPED, TWO = product(f16), rotated(), overlapped(), two_kernels()
TURNED = turned_product(f16)
EXCHANGED, REFILLED, SCALED = exchanged(), refilled(), scaled()
TOTALS = warp_totals()
LEFT = scratch(RING, "left")
RACE = "with no barrier between"
FLIGHT = "is under way"

FAULTS = [
    # barriers
    plant("no barrier", TRANSPOSED, without, Barrier,
          says=rf"WH1306 tile\[\d+, \d+\] is read by thread .*, and written by .* {RACE}"),
    plant("barrier of the warp for the block", TRANSPOSED, replaced, Barrier, 0, Barrier("warp"),
          says=rf"WH1306 tile.* {RACE}"),
    plant("no barrier in a warp", ROTATED, without, Barrier, says=rf"WH1306 row.* {RACE}"),
    plant("no barrier before the ring is read", RING, without, Barrier,
          says=rf"WH1306 left.* is read by .* {RACE}"),
    plant("barrier behind the copies", RING, late_barrier,
          says=rf"WH1306 left.* is written by .*, and read by .* {RACE}"),
    plant("no barrier before tiles are filled again", PRODUCT, without, Barrier, 1,
          says=rf"WH1306 (left|right).* is written by .*, and read by .* {RACE}"),
    plant("no barrier of the cluster", SPLIT, without, Barrier,
          says=rf"WH1306 parts\[0, 8\] is read by thread \(grid 0, rank 1, .* {RACE}"),
    plant("barrier of the block for the cluster", SPLIT, replaced, Barrier, 0, Barrier("block"),
          says=rf"WH1306 parts.* {RACE}"),
    plant("no last barrier of the cluster", SPLIT, without, Barrier, 1,
          says="WH1306 parts of 'parts' are read by other blocks"),
    plant("block barrier that a warp skips", RING, only_if, Barrier, 0, W < 1,
          says=r"WH1308 barrier block: thread \(grid 0, warp 1, lane 0\) does not come here"),
    plant("warp barrier that lanes skip", ROTATED, only_if, Barrier, 0, L < 16,
          says=r"WH1308 barrier warp: .* lane 16\) does not come here"),
    plant("cluster barrier that a block skips", SPLIT, only_if, Barrier, 1, R < 3,
          says=r"WH1308 barrier cluster: .* rank 3"),
    plant("arrival in place of a barrier", SPLIT, replaced, Barrier, 0, Arrive(),
          says=rf"WH1306 parts.* {RACE}"),
    plant("arrival that nobody awaits", SPLIT, replaced, Barrier, 1, Arrive(),
          says="WH1308 .* ends before it has awaited the cluster"),
    plant("arrivals awaited without one's own", SPLIT, replaced, Barrier, 1, AwaitArrivals(),
          says="WH1308 .* awaits the cluster and has not arrived"),
    plant("two arrivals", SPLIT, changed, Barrier, 1, before(Arrive()),
          says="WH1308 .* arrives twice before it awaits the cluster"),
    # stores
    plant("two threads store to one cell of a block", ROTATED, with_expressions, Store, 0,
          set_to(1, 0), says=rf"WH1306 row\[0, 0\] is written by .*, and written by .* {RACE}"),
    plant("tiles overlap with other values", OVERLAPPED, with_expressions, Store, 0,
          added(1, cast(B, f32)),
          says=rf"WH1306 y\[8\] is written .* {RACE}"),
    plant("two threads store different values to memory", ELEMENTWISE, with_expressions, Store, 0,
          set_to(0, 0), says=rf"WH1306 y\[0\] is written .* {RACE}"),
    plant("part of another block", SPLIT, with_expressions, Store, 2, set_to(0, (R + 1) % 4),
          says="WH1308 part 1 of 'parts' is written by .* rank 0, .* belongs to another block"),
    plant("store to an input", ELEMENTWISE, changed, Store, 0,
          before(store(ELEMENTWISE.inputs[0], [0], NONE)), says="WH1308 .* 'x', which is an input"),
    # memory of all threads
    plant("no barrier before memory is read", EXCHANGED, without, Barrier,
          says=rf"WH1306 held.* is read by .* {RACE}"),
    plant("memory of another block", EXCHANGED, with_expressions, Store, 1,
          set_to(1, EXCHANGED.workspace[0][as_expr(127) - (B * 64 + W * 32 + L)]),
          says=rf"WH1306 held.* is read by .* {RACE}"),
    plant("workspace that nobody wrote", TWO, without, Loop, 3,
          says=r"WH1307 squared\[0\] is read by .*nothing was written"),
    # copies
    plant("no wait", RING, without, Wait, says=rf"WH1307 left.* is read by .* {FLIGHT}"),
    plant("wait for one group too few", RING, replaced, Wait, 0, Wait(2),
          says=rf"WH1307 left.* is read by .* {FLIGHT}"),
    plant("no commit", PRODUCT, without, Commit, says=rf"WH1307 left.* is read by .* {FLIGHT}"),
    plant("no commit before the loop", RING, without, Commit, says=rf"WH1307 left.* {FLIGHT}"),
    plant("store upon a copy", RING, changed, Copy, 0,
          after(store(LEFT, [0, L, 0], NONE)), says=rf"WH1307 left.* is written by .* {FLIGHT}"),
    plant("store to where a copy reads", REFILLED, without, Wait,
          says="WH1306 held.* is written by .* while a copy from it is under way"),
    plant("copy out of bounds", RING, with_expressions, Copy, 2, added(4, 4),
          says=r"WH1302 'a' of shape \[16, 20\] is accessed at \[0, 23\]"),
    plant("copy to the next row", RING, with_expressions, Copy, 0, added(2, 4),
          says=r"WH1302 'left' of shape \[3, 8, 4\] is accessed at \[0, 0, 7\]"),
    plant("misaligned copy", RING, with_expressions, Copy, 0, added(4, 1),
          says="WH1308 copy left.*: the run of 'a' is not aligned to 16 bytes"),
    plant("copy of 12 bytes", RING, changed, Copy, 0, with_elements(3),
          says="WH1308 copy left.*: runs have 4, 8 or 16 bytes, not 12"),
    plant("copy to registers", SPLIT, changed, Barrier, 0,
          after(copy(SPLIT.outputs[0], [0], SPLIT.inputs[0], [0, 0], 4)),
          says="WH1308 .* copies go from parameters to shared memory"),
    # inputs
    plant("only one warp awaits inputs", ELEMENTWISE, only_if, AwaitInputs, 0, W < 1,
          says="WH1307 'x' is read by .* warp 1, .* before it has awaited inputs"),
    plant("store before inputs are awaited", ELEMENTWISE, changed, AwaitInputs, 0,
          before(store(ELEMENTWISE.outputs[0], [0], NONE)),
          says="WH1307 'y' is written by .* before it has awaited inputs"),
    plant("copy before inputs are awaited", RING, lambda p: changed(
              without(p, AwaitInputs), Wait, 0, before(AwaitInputs())),
          says="WH1307 'a' is read by .* before it has awaited inputs"),
    # lanes
    plant("exchange in half a warp", TOTALS, only_if, Exchange, 0, L < 16,
          says=r"WH1308 exchange other\[1\] <- total\[0\] of lane \^ 16: .* does not come here"),
    plant("exchange with what nobody wrote", TOTALS, without, Store,
          says=r"WH1307 total\[0\] is read by .* nothing was written"),
    plant("what lanes would exchange", TOTALS, without, Exchange,
          says=r"WH1307 other\[1\] is read by .* nothing was written"),
    plant("exchange with a lane of no warp", TOTALS, changed, Exchange, 1,
          exchange_with(mask=32), says=r"WH1308 exchange other.*: there is no such lane"),
    plant("exchange of registers that differ", TOTALS, with_expressions, Exchange, 1,
          set_to(1, L % 2), says=r"WH1302 'total' of shape \[1\] is accessed at \[1\]"),
    plant("exchange of memory", TOTALS, changed, Exchange, 0,
          exchange_with(source=TOTALS.inputs[0], start=(as_expr(0), as_expr(0), L)),
          says="WH1308 exchange other.*: lanes read registers of each other alone"),
    plant("exchange of another type", TOTALS, changed, Exchange, 0, into_halves,
          says="WH1308 exchange halves.*: the element types differ"),
    # matrices
    plant("product in half a warp", PRODUCT, only_if, MatrixMultiplyAdd, 0, L < 16,
          says=r"WH1308 total\[0\] \+= .*: .* does not come here"),
    plant("matrix load in half a warp", PRODUCT, only_if, MatrixLoad, 0, L < 16,
          says=r"WH1308 load first\[0\].*: .* does not come here"),
    plant("lanes load different matrices", PRODUCT, with_expressions, MatrixLoad, 0,
          added(1, L % 2),
          says=r"WH1308 load first\[0\].* gives another index than its warp"),
    plant("matrix load at odd addresses", PRODUCT, with_expressions, MatrixLoad, 0, added(2, 1),
          says="WH1308 load first.*: rows of 'left' are not aligned"),
    plant("matrix load out of bounds", PRODUCT, with_expressions, MatrixLoad, 0, added(1, 16),
          says=r"WH1302 'left' of shape \[32, 16\] is accessed at \[47, 15\]"),
    plant("turned load out of bounds", TURNED, with_expressions, MatrixLoad, 0, added(2, 32),
          says=r"WH1302 'left' of shape \[16, 32\] is accessed at \[15, 47\]"),
    plant("element in the wrong lane", PRODUCT, changed, Loop, -1, with_kind("serial"),
          says=r"WH1308 double\[0, 0, 0\] is accessed by .* which does not hold it"),
    plant("elements beyond the matrix", PRODUCT, with_expressions, Loop, -1, set_to(0, 512),
          says="WH1308 the loop over e does not run over the elements of a matrix"),
    plant("matrix that nobody wrote", PRODUCT, without, Loop, 3,
          says=r"WH1307 total\[0, 0, 0\] is read by .* nothing was written"),
    plant("number of a matrix that differs", PRODUCT, with_expressions, MatrixMultiplyAdd, 0,
          set_to(0, W), says=r"WH1302 'total' .* is accessed at \[1, 0, 0\]"),
    # indices and values
    plant("no test for the end", ELEMENTWISE, changed, If, 0, body_alone,
          says=r"WH1302 'x' of shape \[1000\] is accessed at \[1000\] by thread \(grid 15, warp 1"),
    plant("register that nobody wrote", SPLIT, without, Store,
          says=r"WH1307 total\[0\] is read by .* nothing was written"),
    plant("shared memory that nobody wrote", TRANSPOSED, with_expressions, Loop, 3, set_to(0, 15),
          says=r"WH1307 tile\[15, 0\] is read by .* nothing was written"),
    plant("a loop of blocks among threads", TRANSPOSED, changed, Loop, 3, with_kind("parallel"),
          says="WH1308 a parallel loop stands inside the code of a thread"),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_is_found(fault: Fault) -> None:
    arrays = examples(fault.right)
    run_threads(fault.right, arrays, fault.right.inputs[1:] if fault.right is SCALED else ())
    assert fault.wrong is not fault.right
    with pytest.raises(WhetError) as caught:
        run_threads(fault.wrong, arrays)
    assert re.search(fault.message, str(caught.value)), caught.value


def test_there_are_faults_of_every_code() -> None:
    assert len(FAULTS) > 20
    assert len({f.name for f in FAULTS}) == len(FAULTS)


def test_only_constants_are_read_before_inputs_are_awaited() -> None:
    _, weight = SCALED.inputs
    arrays = examples(SCALED)
    (y,) = run_threads(SCALED, arrays, constants=[weight])
    assert (y == arrays[0] * arrays[1]).all()
    with pytest.raises(WhetError, match=r"WH1307 'weight' is read by .* before it has awaited"):
        run_threads(SCALED, arrays)


def test_registers_are_indexed_by_what_all_threads_agree_on() -> None:
    pair = dataclasses.replace(scratch(SPLIT, "total"), shape=(2,))
    lanes = changed(
        SPLIT, Store, 0,
        lambda s: (Allocate(pair, (store(pair, [L % 2], NONE),)), s),
    )  # fmt: skip
    with pytest.raises(WhetError, match="WH1308 registers 'total' are indexed by what differs"):
        run_threads(lanes, examples(SPLIT))
