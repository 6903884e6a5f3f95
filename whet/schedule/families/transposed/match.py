"""The transposing sketch: copies between layouts whose contiguous axes differ.

    y[..., a, ..., b] = x[...]      x contiguous along b, y along a

    parallel p over (other axes, blocks of b):
      for blocks of a:
        tile[i, :] = x at a0 + i, b0 ...          (vectors along b)
        transpose tile
        y at b0 + i, a0 ... = tile[i, :]           (vectors along a)

Both sides move whole vectors, where lanes along one of them would pick the other apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import affine, substitute
from whet.ir.expr import Axis, Expr, Read, Var, call, elements
from whet.ir.program import Allocate, Buffer, Program, Store, Transpose
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import shared_out, traffic_cycles
from whet.schedule.program.flat import FlatStage, flatten_stage
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop, split_index, start_of
from whet.tasks.task import Task

SHUFFLE_CYCLES = 1.0


@dataclass(frozen=True, eq=False)
class Transposed:
    """A copy and the axes along which its two sides are contiguous."""

    task: Task
    stage: FlatStage
    source: Axis
    target: Axis
    outer: tuple[Axis, ...]


@dataclass(frozen=True)
class TransposedTiling:
    """The holes: rows and lanes of the square tile, and blocks of the source axis per step."""

    size: int
    blocks_per_step: int


def find_transposed(task: Task) -> Transposed | None:
    """The task as a copy between layouts, or None."""
    if len(task.outputs) != 1:
        return None
    stage = flatten_stage(task.outputs[0], task)
    body = stage.body
    if not (isinstance(body, Read) and isinstance(body.tensor, Buffer) and len(body.indices) == 1):
        return None
    form = affine(body.indices[0])
    if any(not isinstance(atom, Axis) for atom, _ in form.terms):
        return None
    source = next((a for a in stage.axes if form.coefficient(a) == 1), None)
    target = stage.vector
    if source is None or target is None or source is target:
        return None
    outer = tuple(a for a in stage.axes if a is not source and a is not target)
    return Transposed(task, stage, source, target, outer)


def transposed_holes(t: Transposed, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Tiles that fill half a vector or all of it, where both axes are long enough."""
    bits = max(8, t.stage.target.dtype.bits)
    full = max(1, target.vector_bits // bits)
    room = min(t.source.extent, t.target.extent)
    rows = []
    for size in (full, full // 2):
        # All rows of the tile are alive at once, and the shuffles need a few more.
        if 2 <= size <= room and size <= target.vector_registers // 2:
            blocks = -(-t.source.extent // size)
            rows += [(size, n) for n in {1, max(1, blocks // 4), blocks}]
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 2).T
    return dict(zip(("size", "blocks_per_step"), columns))


def transposed_costs(
    t: Transposed, target: CpuTarget, threads: int, holes: dict[str, Array]
) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    size, per_step = holes["size"], holes["blocks_per_step"]
    blocks, across = -(-t.source.extent // size), -(-t.target.extent // size)
    steps = elements(t.outer) * -(-blocks // per_step)
    tiles = steps * per_step * across
    bits = max(8, t.stage.target.dtype.bits)
    # Rows of a whole line cost less than their operations: 16 x 16 take 0.8 times as long as four
    # of 8 x 8 where those of 512 bits take two passes.
    passes = np.sqrt(rates_of(target).passes(size, bits))
    per_tile = passes * size * (2.0 + SHUFFLE_CYCLES * np.log2(size)) + 8.0
    moving = (*t.task.inputs, *t.task.outputs)
    cycles = np.maximum(tiles * per_tile, traffic_cycles(moving, target))
    return shared_out(cycles, steps, threads, target)


def lower_transposed(t: Transposed, tiling: TransposedTiling, name: str) -> Kernel:
    """The kernel of the copy with the given tile."""
    size = tiling.size
    blocks, across = -(-t.source.extent // size), -(-t.target.extent // size)
    steps = -(-blocks // tiling.blocks_per_step)
    p, io, jo, i, lane = Var("p"), Var("io"), Var("jo"), Var("i"), Var("lane")
    block = (p % steps) * tiling.blocks_per_step + io
    exact = blocks % tiling.blocks_per_step == 0
    source = start_of(block, size, t.source.extent) if exact else _clipped(block, size, t)
    target = start_of(jo, size, t.target.extent)
    outer: dict[Expr, Expr] = dict(split_index(p // steps, t.outer))
    reading: dict[Expr, Expr] = {**outer, t.source: source + lane, t.target: target + i}
    writing: dict[Expr, Expr] = {**outer, t.source: source + i, t.target: target + lane}
    tile = Buffer("tile", (size, size), t.stage.target.dtype, scope="register")
    address = substitute(t.stage.address, writing)
    body = Allocate(tile, (
        loop(i, size, loop(lane, size, Store(tile, (i, lane), substitute(t.stage.body, reading)),
                           kind="vector"), kind="unroll"),
        Transpose(tile),
        loop(i, size, loop(lane, size, Store(t.stage.target, (address,), tile[i, lane]),
                           kind="vector"), kind="unroll"),
    ))  # fmt: skip
    inner = loop(io, tiling.blocks_per_step, loop(jo, across, body))
    total = elements(t.outer) * steps
    nest = (loop(p, total, inner, kind="parallel"),)
    inputs, arguments = arguments_of(t.task, nest, {})
    return Kernel(Program(name, inputs, (t.stage.target,), nest), arguments, t.task.outputs)


def _clipped(block: Expr, size: int, t: Transposed) -> Expr:
    """Where a block starts when the last step may run over: it repeats the last block."""
    return call("min", block * size, t.source.extent - size)
