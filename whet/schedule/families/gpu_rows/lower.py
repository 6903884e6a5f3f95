"""Stages along rows with given sizes as code of threads (see `match` for its shape)."""

from __future__ import annotations

from whet.ir.expr import Expr, Read, Var, as_expr, elements
from whet.ir.program import Buffer, Program
from whet.ir.tensor import Tensor
from whet.schedule.families.gpu_rows.loads import elements_of_thread, loads_of
from whet.schedule.families.gpu_rows.match import GpuRows, GpuRowTiling
from whet.schedule.families.gpu_rows.writer import RowThreads, RowWriter
from whet.schedule.families.gpu_spatial.grid import BLOCK, RANK, Grid, thread_number
from whet.schedule.program.access import memory_of
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, split_index, start_of


def lower_gpu_rows(r: GpuRows, t: GpuRowTiling, name: str) -> Kernel:
    """The kernel of the task with the given sizes."""
    team, positions = _threads(r, t)
    places = {
        s.stage: Read(memory_of(s.stage, r.task), (s.address,))
        for s in r.stages
        if s.address is not None
    }
    loads = loads_of(r, elements_of_thread(r.length, team.together, t.width))
    writer = RowWriter(r, team, places, {}, loads)
    early, code = writer.early(), writer.code()
    grid = Grid(-(-elements(r.rows) // team.slots), t.threads, t.trigger, t.ranks)
    whole = (grid.around(code, writer.registers, writer.shared, early, positions),)
    inputs, arguments = arguments_of(r.task, whole, {})
    outputs: dict[Buffer, Tensor] = {memory_of(o, r.task): o for o in r.task.outputs}
    program = Program(name, inputs, tuple(outputs), whole)
    return Kernel(program, arguments, tuple(outputs.values()))


def _threads(r: GpuRows, t: GpuRowTiling) -> tuple[RowThreads, dict[Var, Expr]]:
    """The threads of a row, and the positions that they are described by.

    What is known is no variable: conditions and addresses are then shorter.
    """
    row, thread, slot = Var("row"), Var("t"), Var("slot")
    slots, rows = t.threads // t.lanes, elements(r.rows)
    number = thread_number(t.threads)
    if slots == 1:
        positions: dict[Var, Expr] = {thread: number, row: BLOCK}
    else:
        first = start_of(BLOCK, slots, rows)
        positions = {slot: number // t.lanes, thread: number % t.lanes, row: first + slot}
    moving = [a for a in r.rows if a.extent > 1]
    where: dict[Expr, Expr] = {a: as_expr(0) for a in r.rows} | split_index(row, moving)
    own = slot if slots > 1 else as_expr(0)
    rank = RANK if t.ranks > 1 else as_expr(0)
    return RowThreads(t.lanes, t.width, slots, own, thread, where, t.ranks, rank), positions
