"""Inner products with given tile sizes as a loop nest (see `match` for its shape)."""

from __future__ import annotations

from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, Var, const, select
from whet.ir.program import Allocate, Buffer, Program, Stmt, Store
from whet.ir.tensor import Compute, Tensor
from whet.schedule.families.dots.match import Dots, DotTiling
from whet.schedule.program.access import map_expr
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop, split_index, start_of, within_count
from whet.schedule.program.register_tile import nested


def lower_dots(d: Dots, t: DotTiling, name: str) -> Kernel:
    """The kernel of the inner products with the given tile."""
    c = d.c
    tiles, across = -(-c.rows // t.mr), -(-c.columns // t.nc)
    blocks = -(-tiles // t.tiles_per_block)
    p, io, jo, i, j, lane = (Var(n) for n in ("p", "io", "jo", "i", "j", "lane"))
    exact = tiles % t.tiles_per_block == 0
    number = within_count(p % blocks * t.tiles_per_block + io, tiles, exact=exact)
    depth: list[Expr] = [Var(f"k{n}") for n in range(len(c.k_axes))]
    env: dict[Expr, Expr] = {
        **split_index(p // blocks, c.outer),
        **split_index(start_of(number, t.mr, c.rows) + i, c.m_axes),
        c.vector: start_of(jo, t.nc, c.columns) + j,
        **dict(zip(c.k_axes, depth)),
    }
    known: dict[Buffer, Tensor] = {}
    before: tuple[Stmt, ...] = ()
    workspace: tuple[Buffer, ...] = ()
    b: Expr = d.b
    if d.packed:
        packing = d.packing
        store = Buffer(packing.name, packing.shape, packing.dtype)
        b = Read(store, (*c.outer, c.vector, *c.k_axes))
        if c.b_is_constant:
            known[store] = packing
        else:
            before, workspace = (_copied(store, packing),), (store,)
    a, b = substitute(d.a, env), substitute(b, env)

    def each(*body: Stmt) -> Stmt:
        return loop(i, t.mr, loop(j, t.nc, *body, kind="unroll"), kind="unroll")

    def vectors(*body: Stmt) -> Stmt:
        return each(loop(lane, t.lanes, *body, kind="vector"))

    acc = Buffer("acc", (t.mr, t.nc, t.lanes), c.reduce.dtype, scope="register")
    sums = Buffer("sums", (t.mr, t.nc), c.reduce.dtype)
    at, last = (i, j, lane), depth[-1]
    zero = const(0, acc.dtype)

    def update(first: Expr, left: int) -> Stmt:
        """The vectors that start at a term, of which so many are left."""
        here: dict[Expr, Expr] = {last: first + lane}
        x, y = substitute(a, here), substitute(b, here)
        if left < t.lanes:
            x, y = (select(lane < left, e, zero) for e in (x, y))
        return vectors(Store(acc, at, acc[at] + x * y))

    full, rest = divmod(d.along.extent, t.lanes)
    ko = Var("ko")
    terms: tuple[Stmt, ...] = (loop(ko, full, update(ko * t.lanes, t.lanes)),)
    if rest:
        terms += (update(const(full * t.lanes, last.dtype), rest),)
    outside = [(v, k.extent) for v, k in zip(depth[:-1], c.k_axes[:-1]) if isinstance(v, Var)]
    lanes = Axis("across", t.lanes, "R")
    total = Store(sums, (i, j), Reduce("sum", (lanes,), acc[i, j, lanes]))
    body = map_expr(c.stage.body, lambda e: sums[i, j] if e is c.reduce else None)
    address = substitute(c.stage.address, env)
    row = loop(j, t.nc, Store(c.stage.target, (address,), substitute(body, env)), kind="vector")
    finish = loop(i, t.mr, row, kind="unroll")
    tile = Allocate(
        sums, (Allocate(acc, (vectors(Store(acc, at, zero)), *nested(outside, terms), each(total))),
               finish)
    )  # fmt: skip
    inner = loop(jo, across, loop(io, t.tiles_per_block, tile))
    nest = (*before, loop(p, c.batch * blocks, inner, kind="parallel"))
    inputs, arguments = arguments_of(c.task, nest, known)
    program = Program(name, inputs, (c.stage.target,), nest, workspace)
    return Kernel(program, arguments, c.task.outputs)


def _copied(store: Buffer, packing: Compute) -> Stmt:
    """The copy of b, element by element."""
    variables = [Var(f"b{n}") for n in range(len(packing.axes))]
    where: dict[Expr, Expr] = dict(zip(packing.axes, variables))
    made: Stmt = Store(store, tuple(variables), substitute(packing.body, where))
    for var, axis in zip(reversed(variables), reversed(packing.axes)):
        made = loop(var, axis.extent, made)
    return made
