"""A copy between layouts with a given tile as a loop nest (see `match` for its shape)."""

from __future__ import annotations

from whet.ir.affine import substitute
from whet.ir.expr import Expr, Var, call, elements
from whet.ir.program import Allocate, Buffer, Program, Store, Transpose
from whet.schedule.families.transposed.match import Transposed, TransposedTiling
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop, split_index, start_of


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
    """The start of a block when the last step may run over: it repeats the last block."""
    return call("min", block * size, t.source.extent - size)
