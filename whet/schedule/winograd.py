"""The Winograd sketch: short windows by transformed tiles, with fewer multiplications.

A sum of products whose image is read at h + kh and w + kw, for kernels of r taps each,

    y[h, w, o] = epilogue(sum(image[h + kh, w + kw, c] * weight[o, c, kh, kw] for c, kh, kw))

is computed m x m outputs at a time from (m + r - 1) x (m + r - 1) inputs:

    V[xi, tile, c] = B^T image_tile B         (vectors along c)
    M[xi, tile, o] = sum(V[xi, tile, c] * U[xi, c, o] for c)      (one product per point xi)
    y[tile, o]     = epilogue(A^T M A)        (vectors along o)

U holds the transformed weights, made when the kernel is built.  What is not part of a pair
(h, kh) stays what it was: further reduced axes are reduced by the products, also when they move
along an outer axis (the depth of a 3-D convolution).  One pair alone is a 1-D convolution.  Where
channels come in groups, V and M hold those of all groups, and a product is of one group.

The last tile of a row is moved back so that it ends at the edge, hence all reads lie where the
stage reads; outputs that the tile before has written already are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from whet.core.dtypes import DType, f32, f64, i64
from whet.core.errors import check
from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import (
    Axis,
    Binary,
    Expr,
    Read,
    Reduce,
    Var,
    all_of,
    as_expr,
    cast,
    const,
    select,
)
from whet.ir.program import Allocate, Buffer, If, Prefetch, Program, Stmt, Store
from whet.ir.tensor import Compute, Tensor, subexpressions
from whet.schedule.access import address_form, flat_buffer, map_expr
from whet.schedule.flat import FlatStage, grouped_stage
from whet.schedule.kernel import Kernel
from whet.schedule.nest import arguments_of, loop, split_index, start_of, within_count
from whet.schedule.straightline import Registers
from whet.schedule.tile import RegisterTile
from whet.schedule.transforms import Matrices, Transform, linear_plan, matrices, tile_sizes
from whet.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Winograd:
    """The parts of a stage that the sketch works on."""

    task: Task
    stage: FlatStage
    reduce: Reduce
    image: Expr
    weight: Expr
    vector: Axis
    """The axis that only the weights have, contiguous in the output."""
    pairs: tuple[tuple[Axis, Axis], ...]
    """Output axis and kernel axis whose sum is a position in the image; one or two pairs."""
    batch: tuple[Axis, ...]
    """Further axes of the image and the output."""
    shifts: dict[Axis, Axis]
    """Reduced axes that move along a batch axis: again their sum is a position."""
    depth: tuple[Axis, ...]
    """All other reduced axes; the last one is contiguous in the image."""
    group: tuple[Axis, ...] = ()
    """The axis that image, weights and output share, if there is one."""

    @property
    def taps(self) -> tuple[int, ...]:
        """Taps along each pair."""
        return tuple(k.extent for _, k in self.pairs)

    @property
    def columns(self) -> int:
        """Columns of one group."""
        return self.vector.extent

    @property
    def channels(self) -> int:
        """Channels of one group."""
        return math.prod(a.extent for a in self.depth)

    @property
    def groups(self) -> int:
        return math.prod(a.extent for a in self.group)

    @property
    def all_columns(self) -> int:
        """Numbers per position of M."""
        return self.groups * self.columns

    @property
    def all_channels(self) -> int:
        """Numbers per position of V."""
        return self.groups * self.channels

    @property
    def reach(self) -> int:
        """Terms of a product per number of V's channels."""
        return math.prod(a.extent for a in self.shifts.values())

    def tables(self, m: int) -> tuple[Matrices, ...]:
        """The matrices along each pair."""
        return tuple(matrices(m, r) for r in self.taps)

    def input_transform(self, m: int) -> Transform:
        return Transform(tuple(linear_plan(t.input) for t in self.tables(m)))

    def output_transform(self, m: int) -> Transform:
        return Transform(tuple(linear_plan(t.output) for t in self.tables(m)))

    def sizes(self, m: int) -> tuple[int, ...]:
        """Points along each pair."""
        return tuple(m + r - 1 for r in self.taps)

    def points(self, m: int) -> int:
        """Products per tile, channel and column."""
        return math.prod(self.sizes(m))


@dataclass(frozen=True)
class WinogradTiling:
    """The holes.

    `m` outputs per tile and axis; the register tile of the products; `block` tiles that go
    through all three phases together and so stay in the cache (0: whole phases, one after the
    other); `panels_per_chunk` panels per parallel step of whole phases; `prefetch` asks for the
    next panel of weights while the present one is used; `terms` is the length of a running sum of
    the products, after which it is added to the total (0: all terms).
    """

    m: int
    mr: int
    nv: int
    lanes: int
    block: int = 0
    panels_per_chunk: int = 1
    unroll: int = 1
    prefetch: int = 0
    terms: int = 0

    @property
    def width(self) -> int:
        return self.nv * self.lanes


# ----------------------------------------------------------------------------------- structure
def find_winograd(task: Task) -> Winograd | None:
    """The task as short windows, or None."""
    if len(task.outputs) != 1 or any(isinstance(t, Compute) for t in _tensors(task.outputs[0])):
        return None
    stage = grouped_stage(task.outputs[0], task)
    vector = stage.vector
    if len(stage.reduces) != 1 or vector is None:
        return None
    (reduce,) = stage.reduces
    if reduce.kind != "sum" or reduce.dtype is not f32:
        return None
    if not (isinstance(reduce.value, Binary) and reduce.value.op == "mul"):
        return None
    image, weight = reduce.value.left, reduce.value.right
    if vector in free_symbols(image):
        image, weight = weight, image
    in_image, in_weight = free_symbols(image), free_symbols(weight)
    others = [a for a in stage.axes if a is not vector]
    if vector in in_image or vector not in in_weight or not _is_constant(weight, task):
        return None
    group = tuple(a for a in others if a in in_image and a in in_weight)
    others = [a for a in others if a not in group]
    if len(group) > 1 or any(a not in in_image or a in in_weight for a in others):
        return None
    moved: dict[Axis, Axis] = {}
    for k in reduce.axes:
        for s in others:
            if s not in moved and moves_together(image, s, k):
                moved[s] = k
                break
    # Of more than two, the longest: there the ragged last tile matters least.
    suited = [
        s for s, k in moved.items() if tile_sizes([k.extent]) and s.extent > 1 and k in in_weight
    ]
    paired = sorted(suited, key=lambda s: s.extent)[-2:]
    pairs = tuple((s, moved[s]) for s in others if s in paired)
    shifts = {s: k for s, k in moved.items() if s not in paired}
    taken = set(moved.values())
    depth = _contiguous_last([k for k in reduce.axes if k not in taken], image)
    if not pairs or depth is None:
        return None
    batch = tuple(s for s in others if s not in paired)
    return Winograd(task, stage, reduce, image, weight, vector, pairs, batch, shifts, depth, group)


def _tensors(stage: Compute) -> list[Tensor]:
    return [x.tensor for x in subexpressions(stage.body) if isinstance(x, Read)]


def _is_constant(e: Expr, task: Task) -> bool:
    buffers = [task.buffers[t] for t in task.constants if t in task.buffers]
    known = {*buffers, *map(flat_buffer, buffers)}
    return all(x.tensor in known for x in subexpressions(e) if isinstance(x, Read))


def moves_together(e: Expr, outer: Axis, inner: Axis) -> bool:
    """True when the expression depends on the two axes only through their sum."""
    position = Var("u")
    first = _normal(substitute(e, {outer: position, inner: as_expr(0)}))
    return all(
        _normal(substitute(e, {outer: position - n, inner: as_expr(n)})) is first
        for n in range(1, inner.extent)
    )


def _normal(e: Expr) -> Expr:
    """The expression with all sums of indices as linear forms, so that equals are identical."""

    def change(x: Expr) -> Expr | None:
        if isinstance(x, Binary) and x.dtype is i64 and x.op in ("add", "sub", "mul"):
            return affine(x).expr()
        return None

    return map_expr(e, change)


def _contiguous_last(axes: list[Axis], image: Expr) -> tuple[Axis, ...] | None:
    """The axes with the one last along which the image is contiguous; None if there is none."""
    forms = [
        address_form(x.tensor, x.indices)
        for x in subexpressions(image)
        if isinstance(x, Read) and isinstance(x.tensor, Buffer)
    ]
    for axis in axes:
        if forms and all(form.coefficient(axis) in (0, 1) for form in forms):
            return (*(a for a in axes if a is not axis), axis)
    return None


# ------------------------------------------------------------------------------------- weights
def pack_filters(w: Winograd, m: int, width: int) -> Compute:
    """The transformed weights as [point per pair..., panel, reduced..., column in the panel].

    One kernel axis after the other, in double precision: G g first, then (G g) G^T.
    """
    reduced = (*w.shifts.values(), *w.depth)
    per_group = -(-w.columns // width)
    panel, j = Axis("panel", w.groups * per_group), Axis("j", width)
    inner = (panel, *(Axis(k.name, k.extent) for k in reduced), j)
    column = start_of(panel % per_group if w.group else panel, width, w.columns) + j
    env: dict[Expr, Expr] = {w.vector: column, **dict(zip(reduced, inner[1:-1]))}
    env.update((g, panel // per_group) for g in w.group)
    taps: tuple[Axis, ...] = tuple(Axis(k.name, k.extent) for _, k in w.pairs)
    points: tuple[Axis, ...] = ()
    stage: Compute | None = None
    for n, (_, kernel) in enumerate(w.pairs):
        table = w.tables(m)[n].filter
        point = Axis(f"xi{n}", len(table))
        later: dict[Expr, Expr] = dict(zip((k for _, k in w.pairs[n + 1 :]), taps[n + 1 :]))
        total: Expr = const(0, f64)
        for tap in range(kernel.extent):
            if stage is None:
                value = cast(substitute(w.weight, {**env, kernel: as_expr(tap), **later}), f64)
            else:
                value = stage[(*points, *inner, as_expr(tap), *taps[n + 1 :])]
            total = total + _chosen(point, list(map(float, table[:, tap]))) * value
        points = (*points, point)
        stage = Compute(f"filters{n}", (*points, *inner, *taps[n + 1 :]), total)
    assert stage is not None
    return Compute("filters", stage.axes, cast(stage.body, w.reduce.dtype))


def _chosen(index: Expr, values: Sequence[float]) -> Expr:
    """The value with the given number."""
    result: Expr = const(values[-1], f64)
    for n, value in reversed(list(enumerate(values[:-1]))):
        result = select(index < n + 1, const(value, f64), result)
    return result


# -------------------------------------------------------------------------------------- lowering
def lower_winograd(w: Winograd, t: WinogradTiling, name: str) -> Kernel:
    """The kernel with the given tile sizes.

    Tiles and panels must fit: outputs along each pair >= m, columns >= nv * lanes.
    """
    shortest = min(s.extent for s, _ in w.pairs)
    check(t.m in tile_sizes(w.taps) and t.m <= shortest, "WH2102",
          f"tiles of {t.m} outputs on an axis of {shortest}")  # fmt: skip
    check(t.width <= w.columns, "WH2102", f"panels of {t.width} for {w.columns} columns")
    return _Lowering(w, t).kernel(name)


def plane(count: int, dtype: DType) -> int:
    """Elements to keep for `count`: an odd number of cache lines.

    Planes at a power of two would put one tile's points into the same sets of the cache.
    """
    per_line = 64 // dtype.itemsize
    lines = -(-count // per_line)
    return (lines + (lines % 2 == 0)) * per_line


class _Lowering:
    """The three phases over buffers V and M."""

    def __init__(self, w: Winograd, t: WinogradTiling) -> None:
        self.w, self.t = w, t
        self.points = w.points(t.m)
        self.tiles = [Axis(f"tile{n}", -(-s.extent // t.m)) for n, (s, _) in enumerate(w.pairs)]
        self.positions = [
            Axis(s.name, s.extent + (w.shifts[s].extent - 1 if s in w.shifts else 0))
            for s in w.batch
        ]
        self.per_image = math.prod(a.extent for a in self.tiles)
        self.rows_in = self.per_image * math.prod(a.extent for a in self.positions)
        self.rows_out = self.per_image * math.prod(a.extent for a in w.batch)
        self.panels = w.groups * -(-w.columns // t.width)
        packed = pack_filters(w, t.m, t.width)
        # The same memory with all points as one axis.
        shape = (self.points, *packed.shape[len(w.pairs) :])
        self.filters = Buffer("u", shape, packed.dtype)
        self.known: dict[Buffer, Tensor] = {self.filters: packed}

    def kernel(self, name: str) -> Kernel:
        w = self.w
        blocked = 0 < self.t.block < self.rows_out and not w.shifts
        body, workspace = self.by_blocks() if blocked else self.by_phases()
        inputs, arguments = arguments_of(w.task, body, self.known)
        program = Program(name, inputs, (w.stage.target,), body, workspace)
        return Kernel(program, arguments, w.task.outputs)

    def scratch(self, rows_in: int, rows_out: int) -> tuple[Buffer, Buffer]:
        """V and M, a plane per point."""
        dtype = self.w.reduce.dtype
        return (
            Buffer("v", (self.points, plane(rows_in * self.w.all_channels, dtype)), dtype),
            Buffer("m", (self.points, plane(rows_out * self.w.all_columns, dtype)), dtype),
        )

    def by_phases(self) -> tuple[tuple[Stmt, ...], tuple[Buffer, ...]]:
        """All tiles through each phase; V and M lie in the workspace."""
        w, t = self.w, self.t
        v, m = self.scratch(self.rows_in, self.rows_out)
        p, rest, xi, jj = Var("p"), Var("rest"), Var("xi"), Var("jj")
        inner = math.prod(a.extent for a in self.tiles[1:])
        tile = p * inner + rest
        into = self.input_tile(split_index(tile, [*self.positions, *self.tiles]), v, tile)
        out = self.output_tile(split_index(tile, [*w.batch, *self.tiles]), m, tile)
        panels = self.panels
        chunks = -(-panels // t.panels_per_chunk)
        exact = panels % t.panels_per_chunk == 0
        panel = within_count(xi % chunks * t.panels_per_chunk + jj, panels, exact=exact)
        multiply = self.products(v, m, xi // chunks, panel, self.rows_out)
        body = (
            loop(p, self.rows_in // inner, loop(rest, inner, into), kind="parallel"),
            loop(xi, self.points * chunks, loop(jj, t.panels_per_chunk, multiply), kind="parallel"),
            loop(p, self.rows_out // inner, loop(rest, inner, out), kind="parallel"),
        )
        return body, (v, m)

    def by_blocks(self) -> tuple[tuple[Stmt, ...], tuple[Buffer, ...]]:
        """Blocks of tiles through all phases; V and M are small and stay with the core."""
        w, t = self.w, self.t
        v, m = self.scratch(t.block, t.block)
        p, row, xi, jj = Var("p"), Var("row"), Var("xi"), Var("jj")
        tile = start_of(p, t.block, self.rows_out) + row
        where = split_index(tile, [*w.batch, *self.tiles])
        inside = where | {new: where[old] for new, old in zip(self.positions, w.batch)}
        multiply = self.products(v, m, xi, jj, t.block)
        steps = (
            loop(row, t.block, self.input_tile(inside, v, row)),
            loop(xi, self.points, loop(jj, self.panels, multiply)),
            loop(row, t.block, self.output_tile(where, m, row)),
        )
        body = Allocate(v, (Allocate(m, steps),))
        blocks = -(-self.rows_out // t.block)
        return (loop(p, blocks, body, kind="parallel"),), ()

    # ------------------------------------------------------------------------------- phases
    def starts(self, where: dict[Expr, Expr]) -> list[Expr]:
        """The first output position of a tile along each pair."""
        return [
            start_of(where[tile], self.t.m, s.extent)
            for tile, (s, _) in zip(self.tiles, self.w.pairs)
        ]

    def within(self, starts: Sequence[Expr], at: Sequence[int]) -> dict[Expr, Expr]:
        """The position on the paired output axes of one element of a tile."""
        return {s: start + n for (s, _), start, n in zip(self.w.pairs, starts, at)}

    def input_tile(self, where: dict[Expr, Expr], v: Buffer, row: Expr) -> Stmt:
        """V of one tile."""
        w = self.w
        *outer, last = w.depth
        lanes = min(self.t.lanes, power_of_two_below(last.extent))
        registers = Registers(w.input_transform(self.t.m), lanes, v.dtype)
        outer = [*w.group, *outer]
        variables = {a: Var(f"c{n}") for n, a in enumerate(outer)}
        block = Var("cb")
        first = start_of(block, lanes, last.extent)
        env: dict[Expr, Expr] = {
            **{old: where[new] for old, new in zip(w.batch, self.positions)},
            **{k: as_expr(0) for _, k in w.pairs},
            **{k: as_expr(0) for k in w.shifts.values()},
            last: first + registers.lane,
        }
        env.update((a, var) for a, var in variables.items())
        channel: Expr = as_expr(0)
        for axis in (*w.group, *w.depth):
            channel = channel * axis.extent + env[axis]
        starts = self.starts(where)

        def load(at: tuple[int, ...]) -> Expr:
            return substitute(w.image, env | self.within(starts, at))

        def finish(at: tuple[int, ...], value: Expr) -> Stmt:
            return Store(v, (self.point(at), row * w.all_channels + channel), value)

        nest: Stmt = loop(block, -(-last.extent // lanes), registers.transform(load, finish))
        for axis in reversed(outer):
            nest = loop(variables[axis], axis.extent, nest)
        return nest

    def products(self, v: Buffer, m: Buffer, xi: Expr, panel: Expr, rows: int) -> Stmt:
        """M of one point and panel for all rows.

        Where reduced axes move along the batch, its positions are loops of their own: the rows
        of a tile then lie at equal distances, in V as well as in M.
        """
        w, t = self.w, self.t
        outer = {a: Var(f"b{n}") for n, a in enumerate(w.batch)} if w.shifts else {}
        rows = self.per_image if w.shifts else rows
        tile = RegisterTile(min(t.mr, rows), t.nv, t.lanes)
        io = Var("io")
        row = start_of(io, tile.mr, rows) + tile.i
        per_group = self.panels // w.groups
        group = panel // per_group if w.group else as_expr(0)
        within = panel % per_group if w.group else panel
        column = group * w.columns + start_of(within, t.width, w.columns) + tile.column
        reduced = {k: Var(f"k{n}") for n, k in enumerate((*w.shifts.values(), *w.depth))}
        row_in: Expr = as_expr(0)
        row_out: Expr = as_expr(0)
        for (axis, var), longer in zip(outer.items(), self.positions):
            moved = var + reduced[w.shifts[axis]] if axis in w.shifts else var
            row_in, row_out = row_in * longer.extent + moved, row_out * axis.extent + var
        row_in, row_out = row_in * rows + row, row_out * rows + row
        channel: Expr = group
        for axis in w.depth:
            channel = channel * axis.extent + reduced[axis]
        hints = self.next_panel(xi, panel, list(reduced.values())) if t.prefetch else []
        nest: Stmt = tile.multiply(
            v[xi, row_in * w.all_channels + channel],
            self.filters[(xi, panel, *reduced.values(), tile.column)],
            [(var, k.extent) for k, var in reduced.items()],
            lambda value: Store(m, (xi, row_out * w.all_columns + column), value),
            t.unroll,
            hints,
            t.terms,
        )
        nest = loop(io, -(-rows // tile.mr), nest)
        for axis, var in reversed(outer.items()):
            nest = loop(var, axis.extent, nest)
        return nest

    def next_panel(self, xi: Expr, panel: Expr, reduced: Sequence[Expr]) -> list[Stmt]:
        """Hints for what follows the present position one panel later; panels lie in a row."""
        per_line = 64 // self.filters.dtype.itemsize
        return [
            Prefetch(self.filters, (xi, panel + 1, *reduced, as_expr(n)))
            for n in range(0, self.t.width, per_line)
        ]

    def output_tile(self, where: dict[Expr, Expr], m: Buffer, row: Expr) -> Stmt:
        """The outputs of one tile, through the epilogue."""
        w, t = self.w, self.t
        lanes = min(t.lanes, power_of_two_below(w.columns))
        registers = Registers(w.output_transform(t.m), lanes, m.dtype)
        block, group = Var("ob"), Var("og")
        column = start_of(block, lanes, w.columns) + registers.lane
        starts = self.starts(where)
        env: dict[Expr, Expr] = {**{a: where[a] for a in w.batch}, w.vector: column}
        env.update((g, group) for g in w.group)
        position = group * w.columns + column if w.group else column

        def load(at: tuple[int, ...]) -> Expr:
            return m[self.point(at), row * w.all_columns + position]

        def finish(at: tuple[int, ...], value: Expr) -> Stmt:
            known = env | self.within(starts, at)
            result = map_expr(w.stage.body, lambda e: value if e is w.reduce else None)
            store = Store(
                w.stage.target, (substitute(w.stage.address, known),), substitute(result, known)
            )
            new = all_of(
                [
                    where[tile] * t.m <= start + n
                    for tile, (s, _), start, n in zip(self.tiles, w.pairs, starts, at)
                    if n < tile.extent * t.m - s.extent
                ]
            )
            return store if not free_symbols(new) else If(new, (store,))

        nest = loop(block, -(-w.columns // lanes), registers.transform(load, finish))
        return loop(group, w.groups, nest) if w.group else nest

    def point(self, at: tuple[int, ...]) -> Expr:
        number = 0
        for n, size in zip(at, self.w.sizes(self.t.m)):
            number = number * size + n
        return as_expr(number)


def power_of_two_below(n: int) -> int:
    """The largest power of two that is not above n."""
    return 1 << (n.bit_length() - 1)
