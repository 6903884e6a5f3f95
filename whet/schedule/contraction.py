"""The contraction sketch: sums of products with a register tile (Ansor's missing micro-kernel).

It covers matrix products, dense layers and every convolution that is not depthwise, as one
structure.  The spatial axes of

    y[...] = epilogue(sum(a[...] * b[...] for k...))

are of three kinds: N axes occur only in b, M axes only in a, batch axes in both.  One N axis is
contiguous in the output and becomes the vector axis.  The nest is

    parallel p over (batch, blocks of rows, chunks of panels):
      for jj in panels of the chunk: for io in tiles of the block:
        acc[mr, nv, lanes] = 0
        for k...:  acc[i, v, :] += a[row i, k] * panel[k, v, :]     (a broadcast, b a vector load)
        y[rows, panel] = epilogue(acc)

Constant b is stored panel by panel in the order of the loop; b that is not contiguous along the
vector axis is copied into that order first.  The last tile and the last panel are moved back so
that they end at the edge: overlapping tiles write equal values twice, and no tail code is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import Axis, Binary, Expr, Read, Reduce, Var, as_expr, call
from whet.ir.program import Allocate, Buffer, Prefetch, Program, Stmt, Store
from whet.ir.tensor import Compute, Tensor, subexpressions
from whet.schedule.access import map_expr
from whet.schedule.flat import FlatStage, flatten_stage, merge_axes
from whet.schedule.kernel import Kernel
from whet.schedule.nest import arguments_of, loop, split_index, start_of, within_count
from whet.schedule.tile import RegisterTile
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Contraction:
    """The parts of a stage that the sketch works on."""

    task: Task
    stage: FlatStage
    reduce: Reduce
    a: Expr
    """The factor that is broadcast, over merged axes of reduction."""
    b: Expr
    """The factor that is read as vectors."""
    vector: Axis
    m_axes: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    """Batch axes and further N axes: plain outer loops."""
    k_axes: tuple[Axis, ...]
    """Reduced axes as a is read, outermost first; some stand for several of the originals."""
    k_values: dict[Expr, Expr]
    """The original reduced axes in terms of k_axes."""

    @property
    def rows(self) -> int:
        return math.prod(a.extent for a in self.m_axes)

    @property
    def columns(self) -> int:
        return self.vector.extent

    @property
    def depth(self) -> int:
        return math.prod(a.extent for a in self.k_axes)

    @property
    def batch(self) -> int:
        return math.prod(a.extent for a in self.outer)

    @property
    def b_is_constant(self) -> bool:
        known = {self.task.buffers[t].name for t in self.task.constants if t in self.task.buffers}
        return all(x.tensor.name in known for x in subexpressions(self.b) if isinstance(x, Read))

    @property
    def b_is_contiguous(self) -> bool:
        """True when b can be read as vectors where it lies."""
        if not (isinstance(self.b, Read) and len(self.b.indices) == 1):
            return False
        return affine(self.b.indices[0]).coefficient(self.vector) == 1


@dataclass(frozen=True)
class Tiling:
    """The holes: rows and vectors of a tile, lanes, tiles per block, panels per chunk.

    `unroll` repeats the innermost loop; `pack` copies a tile's rows next to each other first,
    which pays when they would fall into the same sets of the cache; `pack_b` copies b into
    panels although it could be read where it lies; `prefetch` asks for the next panel while the
    tiles of a block use the present one.
    """

    mr: int
    nv: int
    lanes: int
    tiles_per_block: int
    panels_per_chunk: int
    unroll: int = 1
    pack: int = 0
    pack_b: int = 0
    prefetch: int = 0

    @property
    def width(self) -> int:
        return self.nv * self.lanes


def find_contraction(task: Task) -> Contraction | None:
    """The contraction that the task is, or None."""
    if len(task.outputs) != 1 or any(isinstance(t, Compute) for t in _tensors(task.outputs[0])):
        return None
    stage = flatten_stage(task.outputs[0], task)
    vector = stage.vector
    if len(stage.reduces) != 1 or vector is None:
        return None
    (reduce,) = stage.reduces
    if reduce.kind != "sum" or not (isinstance(reduce.value, Binary) and reduce.value.op == "mul"):
        return None
    a, b = reduce.value.left, reduce.value.right
    if vector in free_symbols(a):
        a, b = b, a
    in_a, in_b = free_symbols(a), free_symbols(b)
    if vector in in_a or vector not in in_b or not set(reduce.axes) & in_a:
        return None
    others = [x for x in stage.axes if x is not vector]
    m_axes = tuple(x for x in others if x not in in_b)
    outer = tuple(x for x in others if x in in_b)
    order = sorted(reduce.axes, key=lambda x: -_step(a, x))
    k_axes, k_values, a = _merge_reduced(order, a)
    return Contraction(task, stage, reduce, a, b, vector, m_axes, outer, k_axes, k_values)


def _tensors(stage: Compute) -> list[Tensor]:
    return [x.tensor for x in subexpressions(stage.body) if isinstance(x, Read)]


def _step(e: Expr, axis: Axis) -> int:
    """How far the first flat read in e moves when the axis steps by one."""
    for x in subexpressions(e):
        if isinstance(x, Read) and len(x.indices) == 1:
            return affine(x.indices[0]).coefficient(axis)
    return 0


def _merge_reduced(order: list[Axis], a: Expr) -> tuple[tuple[Axis, ...], dict[Expr, Expr], Expr]:
    """Reduced axes merged as far as the reads of a allow; b is packed, so it has no say."""
    merged, (_, a) = merge_axes(order, (_last_address(a), a))
    values: dict[Expr, Expr] = {}
    rest = list(order)
    for axis in merged:
        group: list[Axis] = []
        while math.prod(x.extent for x in group) < axis.extent:
            group.append(rest.pop(0))
        values.update(split_index(axis, group))
    return merged, values, a


def _last_address(a: Expr) -> Expr:
    """An address that a reads, as the witness that merge_axes asks for."""
    for x in subexpressions(a):
        if isinstance(x, Read) and len(x.indices) == 1:
            return x.indices[0]
    return as_expr(0)


# ------------------------------------------------------------------------------------ lowering
def lower_contraction(c: Contraction, t: Tiling, name: str) -> Kernel:
    """The kernel of the contraction with the given tile sizes."""
    panels, tiles = -(-c.columns // t.width), -(-c.rows // t.mr)
    blocks, chunks = -(-tiles // t.tiles_per_block), -(-panels // t.panels_per_chunk)
    p, jj, io = Var("p"), Var("jj"), Var("io")
    tile = RegisterTile(t.mr, t.nv, t.lanes)
    chunk, block, batch = p % chunks, p // chunks % blocks, p // (chunks * blocks)
    exact = panels % t.panels_per_chunk == 0
    panel = within_count(chunk * t.panels_per_chunk + jj, panels, exact=exact)
    column = column_of(c, t.width, panel, tile.column)
    exact = tiles % t.tiles_per_block == 0
    number = within_count(block * t.tiles_per_block + io, tiles, exact=exact)
    row = start_of(number, t.mr, c.rows) + tile.i
    k_vars: dict[Expr, Var] = {k: Var(f"k{n}") for n, k in enumerate(c.k_axes)}
    env: dict[Expr, Expr] = {
        **split_index(batch, c.outer),
        **split_index(row, c.m_axes),
        c.vector: column,
        **k_vars,
    }
    known: dict[Buffer, Tensor] = {}
    before: tuple[Stmt, ...] = ()
    workspace: tuple[Buffer, ...] = ()
    hints: tuple[Stmt, ...] = ()
    if c.b_is_constant or not c.b_is_contiguous or t.pack_b or t.width > c.columns:
        position = (*(env[x] for x in c.outer), panel, *k_vars.values(), tile.column)
        packed = pack_panels(c, t.width)
        store = Buffer("panels", packed.shape, packed.dtype)
        if c.b_is_constant:
            known[store] = packed
        else:
            before, workspace = (copy_panels(store, packed),), (store,)
        b: Expr = Read(store, position)
        if t.prefetch:
            hints = next_panel(store, t, (*position[: len(c.outer)], panel), io, k_vars)
    else:
        b = substitute(substitute(c.b, c.k_values), env)
    a = substitute(c.a, env)
    rows = Buffer("rows", (*(k.extent for k in c.k_axes), t.mr), c.a.dtype)
    if t.pack:
        a_at = (*k_vars.values(), tile.i)
        copied: Stmt = loop(tile.i, t.mr, Store(rows, a_at, a), kind="vector")
        for k in reversed(c.k_axes):
            copied = loop(k_vars[k], k.extent, copied)
        a = rows[a_at]

    def finish(total: Expr) -> Stmt:
        value = map_expr(c.stage.body, lambda e: total if e is c.reduce else None)
        address = substitute(c.stage.address, env)
        return Store(c.stage.target, (address,), substitute(value, env))

    reduced = [(k_vars[k], k.extent) for k in c.k_axes]
    body = tile.multiply(a, b, reduced, finish, t.unroll, hints)
    inner: Stmt
    if t.pack:
        panels_loop = loop(jj, t.panels_per_chunk, body)
        inner = loop(io, t.tiles_per_block, Allocate(rows, (copied, panels_loop)))
    else:
        inner = loop(jj, t.panels_per_chunk, loop(io, t.tiles_per_block, body))
    nest = (*before, loop(p, c.batch * blocks * chunks, inner, kind="parallel"))
    inputs, arguments = arguments_of(c.task, nest, known)
    program = Program(name, inputs, (c.stage.target,), nest, workspace)
    return Kernel(program, arguments, c.task.outputs)


def next_panel(
    store: Buffer, t: Tiling, panel: tuple[Expr, ...], tile: Expr, reduced: Mapping[Expr, Var]
) -> tuple[Stmt, ...]:
    """Hints for the panel after this one, which lies behind it in memory.

    In every step of its innermost loop a tile asks for one line, so that as many tiles as a
    panel has vectors together ask for all of it; where a block has fewer, each asks for all.
    """
    per_line = 64 // store.dtype.itemsize
    lines = -(-t.width // per_line)
    start = (*panel[:-1], panel[-1] + 1)
    if t.tiles_per_block < lines:
        steps = tuple(reduced.values())
        return tuple(Prefetch(store, (*start, *steps, as_expr(n * per_line))) for n in range(lines))
    line: Expr = tile % lines
    for axis, var in reduced.items():
        assert isinstance(axis, Axis)
        line = line * axis.extent + var
    zeros = (as_expr(0),) * len(reduced)
    return (Prefetch(store, (*start, *zeros, line * per_line)),)


def column_of(c: Contraction, width: int, panel: Expr, within: Expr) -> Expr:
    """The column at a position within a panel.

    The last panel ends at the edge; one that is wider than all columns repeats the last.
    """
    if width > c.columns:
        return call("min", within, c.columns - 1)
    return start_of(panel, width, c.columns) + within


def pack_panels(c: Contraction, width: int) -> Compute:
    """b as [outer..., panel, k..., column within the panel]."""
    panels = -(-c.columns // width)
    shape = [*(x.extent for x in c.outer), panels, *(k.extent for k in c.k_axes), width]
    axes = tuple(Axis(f"p{n}", extent) for n, extent in enumerate(shape))
    panel, depth = axes[len(c.outer)], axes[len(c.outer) + 1 : -1]
    env: dict[Expr, Expr] = {
        **dict(zip(c.outer, axes)),
        **dict(zip(c.k_axes, depth)),
        c.vector: column_of(c, width, panel, axes[-1]),
    }
    return Compute("panels", axes, substitute(substitute(c.b, c.k_values), env))


def copy_panels(store: Buffer, packed: Compute) -> Stmt:
    """The statements that bring b into panels at run time, one panel per parallel step."""
    variables = [Var(f"b{n}") for n in range(len(packed.axes))]
    env = dict(zip(packed.axes, variables))
    nest: Stmt = Store(store, tuple(variables), substitute(packed.body, env))
    nest = loop(variables[-1], packed.axes[-1].extent, nest, kind="vector")
    for var, axis in zip(reversed(variables[1:-1]), reversed(packed.axes[1:-1])):
        nest = loop(var, axis.extent, nest)
    return loop(variables[0], packed.axes[0].extent, nest, kind="parallel")
