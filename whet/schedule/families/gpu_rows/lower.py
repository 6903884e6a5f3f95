"""Stages along rows with given sizes as code of threads (see `match` for its shape)."""

from __future__ import annotations

from whet.ir.expr import Read, Var, elements
from whet.ir.program import Buffer, Let, Program
from whet.ir.tensor import Tensor
from whet.schedule.families.gpu_rows.match import GpuRows, GpuRowTiling
from whet.schedule.families.gpu_rows.writer import RowThreads, RowWriter
from whet.schedule.families.gpu_spatial.grid import BLOCK, Grid, thread_number
from whet.schedule.program.access import memory_of
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, split_index, start_of


def lower_gpu_rows(r: GpuRows, t: GpuRowTiling, name: str) -> Kernel:
    """The kernel of the task with the given sizes."""
    row, thread, slot = Var("row"), Var("t"), Var("slot")
    per_block, rows = t.threads // t.lanes, elements(r.rows)
    team = RowThreads(t.lanes, t.width, per_block, slot, thread, split_index(row, r.rows))
    places = {
        s.stage: Read(memory_of(s.stage, r.task), (s.address,))
        for s in r.stages
        if s.address is not None
    }
    writer = RowWriter(r, team, places, {})
    code = writer.code()
    number = thread_number(t.threads)
    positions = {
        slot: number // t.lanes,
        thread: number % t.lanes,
        row: start_of(BLOCK, per_block, rows) + slot,
    }
    for var, value in reversed(positions.items()):
        code = [Let(var, value, tuple(code))]
    grid = Grid(-(-rows // per_block), t.threads, t.trigger)
    whole = (grid.around(code, writer.registers, writer.shared),)
    inputs, arguments = arguments_of(r.task, whole, {})
    outputs: dict[Buffer, Tensor] = {memory_of(o, r.task): o for o in r.task.outputs}
    program = Program(name, inputs, tuple(outputs), whole)
    return Kernel(program, arguments, tuple(outputs.values()))
