"""Rows that are reduced, with given sizes, as a loop nest (see `match` for its shape)."""

from __future__ import annotations

from whet.ir.affine import substitute
from whet.ir.expr import Expr, Var, as_expr, elements
from whet.ir.program import Allocate, Buffer, Program, Stmt, Store
from whet.schedule.families.sweeps.match import Sweeps, SweepTiling
from whet.schedule.program.access import map_expr
from whet.schedule.program.accumulate import combine
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import (
    arguments_of,
    identity_element,
    loop,
    split_index,
    start_of,
    within_count,
)


def lower_sweeps(s: Sweeps, t: SweepTiling, name: str) -> Kernel:
    """The kernel of the stage with the given sizes."""
    width, per_chunk = t.nv * t.lanes, t.panels_per_chunk
    panels = -(-s.vector.extent // width)
    chunks = -(-panels // per_chunk)
    p, jo, v, lane = Var("p"), Var("jo"), Var("v"), Var("lane")
    exact = panels % per_chunk == 0
    panel = within_count(p % chunks * per_chunk + jo, panels, exact=exact)
    column = start_of(panel, width, s.vector.extent) + v * t.lanes + lane
    env: dict[Expr, Expr] = {**split_index(p // chunks, s.outer), s.vector: column}
    # Panels that overlap keep sums of their own.
    row = Buffer("row", (per_chunk, t.nv, t.lanes), s.reduce.dtype)
    place = (jo, v, lane)

    def vectors(*body: Stmt) -> Stmt:
        return loop(v, t.nv, loop(lane, t.lanes, *body, kind="vector"), kind="unroll")

    acc = Buffer("acc", (t.nv, t.lanes), s.reduce.dtype, scope="register")
    at = (v, lane)
    variables = [Var(f"k{n}") for n in range(len(s.terms))]
    where: dict[Expr, Expr] = {**env, **dict(zip(s.terms, variables))}
    value = substitute(s.value, where)
    kept, added = Store(acc, at, row[place]), Store(row, place, acc[at])

    def block(first: Expr, count: int) -> Stmt:
        """So many terms added to all panels of the chunk."""
        step = Var("step")
        term = substitute(value, {variables[-1]: first + step})
        update = vectors(Store(acc, at, combine(s.reduce.kind, acc[at], term)))
        terms = loop(step, count, update, kind="unroll")
        return loop(jo, per_chunk, Allocate(acc, (vectors(kept), terms, vectors(added))))

    whole, rest = divmod(s.terms[-1].extent, t.block)
    number = Var("number")
    sweeps: list[Stmt] = [loop(number, whole, block(number * t.block, t.block))]
    if rest:
        sweeps.append(block(as_expr(whole * t.block), rest))
    for var, axis in zip(reversed(variables[:-1]), reversed(s.terms[:-1])):
        sweeps = [loop(var, axis.extent, *sweeps)]
    start = Store(row, place, identity_element(s.reduce.kind, row.dtype))
    body = map_expr(s.stage.body, lambda e: row[place] if e is s.reduce else None)
    address = substitute(s.stage.address, env)
    finish = Store(s.stage.target, (address,), substitute(body, env))
    step = Allocate(
        row, (loop(jo, per_chunk, vectors(start)), *sweeps, loop(jo, per_chunk, vectors(finish)))
    )
    nest = (loop(p, elements(s.outer) * chunks, step, kind="parallel"),)
    inputs, arguments = arguments_of(s.task, nest, {})
    return Kernel(Program(name, inputs, (s.stage.target,), nest), arguments, s.task.outputs)
