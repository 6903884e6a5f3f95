"""Slabs with given tile sizes as a loop nest (see `match` for its shape)."""

from __future__ import annotations

from whet.ir.expr import Axis, Expr, Read, Var, as_expr
from whet.ir.program import Allocate, Loop, Program, Stmt, substitute_block
from whet.schedule.families.contraction.lower import lower_contraction
from whet.schedule.families.contraction.match import Tiling
from whet.schedule.families.slabs.match import Side, Slabs, place_of
from whet.schedule.program.access import address_form, flat_buffer
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop
from whet.schedule.program.transpose import transposed_tiles
from whet.schedule.program.zeros import zeros_around


def lower_slabs(s: Slabs, t: Tiling, name: str) -> Kernel:
    """The kernel with the given tile sizes of the contraction."""
    slab, block, chunk = Var("slab"), Var("block"), Var("chunk")
    groups = s.contraction.batch
    image, group = slab // groups, slab % groups
    multiplied = lower_contraction(s.contraction, t, name)
    (steps,) = multiplied.program.body
    assert isinstance(steps, Loop)
    blocks, chunks = s.steps(t)
    at: dict[Expr, Expr] = {steps.var: (group * blocks + block) * chunks + chunk}
    multiply = loop(chunk, chunks, *substitute_block(steps.body, at))
    body = (
        *zeros_around(s.source.near, s.source.boxes),
        _transposed(s.source, image, group, arrives=True),
        loop(block, blocks, multiply),
        _transposed(s.target, image, group, arrives=False),
    )
    inner = Allocate(s.source.near, (Allocate(s.target.near, body),))
    nest = (loop(slab, s.count, inner, kind="parallel"),)
    bound = zip(multiplied.program.inputs, multiplied.arguments)
    inputs, arguments = arguments_of(s.task, nest, dict(bound))
    target = flat_buffer(s.target.buffer)
    return Kernel(Program(name, inputs, (target,), nest), arguments, s.task.outputs)


def _transposed(side: Side, image: Expr, group: Expr, *, arrives: bool) -> Stmt:
    """The copy between the rows outside and the slab's memory."""
    place = place_of(side, side.tensor.shape)
    axes = [Axis(f"t{n}", extent) for n, extent in enumerate(side.tensor.shape)]
    channel, last = Axis("t", side.members), axes[-1]
    within: list[Expr] = [as_expr(0), *(Var(a.name) for a in axes[1:])]
    member = within[side.channel]
    near = address_form(place, tuple(within)).expr()
    outside: list[Expr] = [image, *within[1:]]
    outside[side.channel] = group * side.members + member
    far = address_form(side.buffer, tuple(outside)).expr()
    memory = flat_buffer(side.buffer)
    channels, columns = (channel, member), (last, within[-1])
    if arrives:
        copied = transposed_tiles(
            side.near, (near,), Read(memory, (far,)), channels, columns, side.tile
        )
    else:
        copied = transposed_tiles(
            memory, (far,), Read(side.near, (near,)), columns, channels, side.tile
        )
    for axis in reversed(side.spatial[:-1]):
        copied = loop(Var(axes[axis].name), axes[axis].extent, copied)
    return copied
