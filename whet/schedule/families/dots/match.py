"""The sketch of inner products: a register tile whose lanes run along what is summed.

    y[i, j] = epilogue(sum(a[i, k] * b[j, k] for k))          few columns j, long rows k

    parallel p over (batch, blocks of rows):
      for tiles of columns: for tiles of the block:
        acc[mr, nc, lanes] = 0
        for k in vectors:  acc[i, j, :] += a[row i, k ...] * b[column j, k ...]
        sums[i, j] = sum of the lanes of acc[i, j, :]
        y[rows, columns] = epilogue(sums)

Few columns leave lanes of the contraction sketch idle, and lanes along the rows have to be turned
first.  Here both factors are read as they lie.  A b that lies another way is stored that way if it
is constant, and copied ahead if it is small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, Var, const, select
from whet.ir.program import Allocate, Buffer, Program, Stmt, Store
from whet.ir.tensor import Compute, Tensor
from whet.schedule.cost.arrival import with_weights
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import (
    halvings,
    operations,
    overlapped,
    shared_out,
    traffic_cycles,
)
from whet.schedule.families.contraction.match import Contraction, find_contraction
from whet.schedule.families.contraction.price import lanes_for
from whet.schedule.program.access import map_expr
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop, split_index, start_of, within_count
from whet.schedule.program.tile import nested
from whet.schedule.space.nest_writer import (
    Level,
    Local,
    Moves,
    ceil_div,
    clipped,
    describe,
    digits,
    start_at,
)
from whet.schedule.space.nests import Statement
from whet.schedule.space.sketch import Population, population
from whet.tasks.task import Task

SHORTEST_ROW = 16
SMALL_PART = 4
"""A factor that is so many times smaller than the other one may be copied."""
LARGEST_TILE = 8
ACROSS_CYCLES = 5.0
"""To add up the lanes of a vector."""
TILE_CYCLES = 12.0
UNALIGNED = 1.06
"""Slow-down of a tile because its rows begin anywhere: vectors cross from line to line."""


@dataclass(frozen=True, eq=False)
class Dots:
    """A contraction of which the rows of both factors are summed along what is contiguous."""

    c: Contraction
    a: Read
    b: Read
    """Where it lies, over the merged axes of the contraction."""
    packed: bool
    """Whether b has to be stored another way."""

    @property
    def along(self) -> Axis:
        """The axis that lanes run along."""
        return self.c.k_axes[-1]

    @property
    def packing(self) -> Compute:
        """b as [outer..., column, k...]"""
        axes = (*self.c.outer, self.c.vector, *self.c.k_axes)
        fresh = tuple(Axis(f"p{n}", axis.extent) for n, axis in enumerate(axes))
        return Compute("columns", fresh, substitute(self.b, dict(zip(axes, fresh))))


@dataclass(frozen=True)
class DotTiling:
    """The holes: rows and columns of a tile, lanes, and tiles per block."""

    mr: int
    nc: int
    lanes: int
    tiles_per_block: int


def find_dots(task: Task) -> Dots | None:
    """The inner products that the task is, or None.

    A single row shares nothing with others, and is as well off in the row sketch.
    """
    c = find_contraction(task)
    if c is None or c.k_axes[-1].extent < SHORTEST_ROW or min(c.rows, c.columns) < 2:
        return None
    a, b = c.a, substitute(c.b, c.k_values)
    if not (_is_flat(a) and _is_flat(b)):
        return None
    assert isinstance(a, Read)
    assert isinstance(b, Read)
    if not _lies_along(a, c.k_axes[-1]):
        return None
    packed = not _lies_along(b, c.k_axes[-1])
    small = SMALL_PART * b.tensor.type.size <= a.tensor.type.size
    if packed and not (c.b_is_constant or small):
        return None
    return Dots(c, a, b, packed)


def _is_flat(e: Expr) -> bool:
    return isinstance(e, Read) and len(e.indices) == 1


def _lies_along(read: Read, axis: Axis) -> bool:
    form = affine(read.indices[0])
    others = (atom for atom, _ in form.terms if atom is not axis)
    return form.coefficient(axis) == 1 and not any(axis in free_symbols(x) for x in others)


def dot_holes(d: Dots, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Tiles that fit the registers, and blocks from all rows down to one tile."""
    c = d.c
    lanes = lanes_for(d.along.extent, c.reduce.dtype.bits, target)
    rows: list[tuple[int, ...]] = []
    for mr in range(1, min(LARGEST_TILE, c.rows) + 1):
        for nc in range(1, min(LARGEST_TILE, c.columns) + 1):
            if mr * nc + min(mr, nc) + 1 <= target.vector_registers:
                rows += [(mr, nc, lanes, n) for n in halvings(-(-c.rows // mr))]
    return population(("mr", "nc", "lanes", "tiles_per_block"), rows)


def dot_costs(d: Dots, target: CpuTarget, threads: int, holes: dict[str, Array]) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    c, mr, nc, lanes = d.c, holes["mr"], holes["nc"], holes["lanes"]
    rates = rates_of(target)
    bits, size = c.reduce.dtype.bits, c.reduce.dtype.itemsize
    passes, load_passes = rates.passes(lanes, bits), rates.load_passes(lanes, bits)
    vectors = np.ceil(d.along.extent / lanes) * (c.depth // d.along.extent)
    chains = np.maximum(mr * nc * passes / rates.operations, rates.latency)
    # What lies in the caller's memory crosses from line to line.
    loaded = 2 * mr + (nc if d.packed else 2 * nc)
    term = np.maximum(chains, loaded * load_passes / rates.loads)
    epilogue = mr * nc * (1.0 + operations(c.stage.body) / rates.operations / np.minimum(nc, 8))
    per_tile = UNALIGNED * vectors * term + mr * nc * ACROSS_CYCLES + epilogue + TILE_CYCLES
    tiles, across = -(-c.rows // mr), -(-c.columns // nc)
    steps = c.batch * -(-tiles // holes["tiles_per_block"])
    count = steps * holes["tiles_per_block"] * across
    # Every tile reads its rows and columns from the cache that holds those of the batch.
    near = (c.rows + c.columns) * c.depth * size
    arrival = (mr + nc) * c.depth * size / (
        rates.l1_bytes if near <= target.l1d_bytes // 2
        else rates.l2_bytes if near <= target.l2_bytes // 2 else rates.l3_bytes
    )  # fmt: skip
    traffic = traffic_cycles(c.task.moving, target)
    cycles = overlapped(count * np.maximum(per_tile, arrival), traffic)
    if d.packed and not c.b_is_constant:
        cycles = cycles + 2.5 * c.batch * c.columns * c.depth
    ns = shared_out(cycles, steps, threads, target)
    return with_weights(ns, c.task.constant_bytes, target, threads)


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


def dot_nests(d: Dots, target: CpuTarget, threads: int, holes: Population) -> tuple[Statement, ...]:
    """The update and the epilogue, for a whole population at once."""
    c, mr, nc, lanes = d.c, holes["mr"], holes["nc"], holes["lanes"]
    per_block, rows = holes["tiles_per_block"], np.arange(len(mr))
    tiles, across = ceil_div(c.rows, mr), ceil_div(c.columns, nc)

    def row(number: Array | int) -> Moves:
        return digits(start_at(number, mr, c.rows), c.m_axes)

    outer = [
        Level("batch", c.batch, "parallel", digits(1, c.outer)),
        Level("block", ceil_div(tiles, per_block), "parallel",
              row(clipped(per_block, tiles, per_block))),
        Level("jo", across, "serial", {c.vector: start_at(1, nc, c.columns)}),
        Level("io", per_block, "serial", row(clipped(1, tiles, per_block))),
    ]  # fmt: skip
    *around, along = c.k_axes
    terms = [Level(f"k{n}", k.extent, "serial", {k: 1}, True) for n, k in enumerate(around)]
    terms.append(Level("ko", along.extent // lanes, "serial", {along: lanes}, True))
    tile = [
        Level("i", mr, "unroll", digits(1, c.m_axes)),
        Level("j", nc, "unroll", {c.vector: 1}),
        Level("lane", lanes, "vector", {along: 1}, True),
    ]
    acc = Buffer("acc", (1, 1, 1), c.reduce.dtype, scope="register")
    sums = Buffer("sums", (1, 1), c.reduce.dtype)
    size = c.reduce.dtype.itemsize
    local: dict[Tensor, Local] = {
        acc: Local({"i": nc * lanes, "j": lanes, "lane": 1}, mr * nc * lanes * size),
        sums: Local({"i": nc, "j": 1}, mr * nc * size),
    }
    b: Expr = d.b
    if d.packed:
        store = Buffer("columns", d.packing.shape, c.b.dtype)
        b = Read(store, (*c.outer, c.vector, *c.k_axes))
    zeros = (const(0, along.dtype),) * 3
    update = Store(acc, zeros, acc[zeros] + d.a * b)
    body = map_expr(c.stage.body, lambda e: sums[zeros[:2]] if e is c.reduce else None)
    finish = Store(c.stage.target, (c.stage.address,), body)
    columns = Level("j", nc, "vector", {c.vector: 1})
    return (
        describe("update", update, [*outer, *terms, *tile], rows, local),
        describe("finish", finish, [*outer, tile[0], columns], rows, local),
    )
