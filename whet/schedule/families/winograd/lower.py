"""A Winograd schedule with given tile sizes as loop nests (see `winograd` for its phases)."""

from __future__ import annotations

from collections.abc import Iterator

from whet.core.dtypes import DType
from whet.core.errors import check
from whet.ir.affine import free_symbols, substitute
from whet.ir.expr import Axis, Expr, Var, all_of, as_expr, elements
from whet.ir.program import Allocate, Buffer, If, Program, Stmt, Store
from whet.ir.tensor import Tensor
from whet.schedule.algorithms.dilation import Pair
from whet.schedule.algorithms.transforms import tile_sizes
from whet.schedule.families.winograd.filters import pack_filters
from whet.schedule.families.winograd.match import Winograd, WinogradTiling
from whet.schedule.families.winograd.outliers import Watch
from whet.schedule.families.winograd.straightline import Registers
from whet.schedule.program.access import map_expr
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import (
    arguments_of,
    loop,
    power_of_two_below,
    split_index,
    start_of,
    within_count,
)
from whet.schedule.program.register_tile import RegisterTile, next_panel


def lower_winograd(w: Winograd, t: WinogradTiling, name: str) -> Kernel:
    """The kernel with the given tile sizes.

    Tiles and panels must fit: outputs along each pair >= m, columns >= nv * lanes.
    """
    check(t.m in tile_sizes(w.taps) and w.fits(t.m), "WH2102",
          f"tiles of {t.m} outputs on an axis of {min(p.longest for p in w.pairs)}")  # fmt: skip
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
        self.tiles = w.tiles(t.m)
        self.per_image = elements(self.tiles)
        self.rows_in = self.per_image * elements(w.positions)
        self.rows_out = self.per_image * elements(w.batch)
        self.panels = w.groups * -(-w.columns // t.width)
        packed = pack_filters(w, t.m, t.width)
        # The same memory with all points as one axis.
        shape = (self.points, *packed.shape[len(w.pairs) :])
        self.filters = Buffer("u", shape, packed.dtype)
        self.known: dict[Buffer, Tensor] = {self.filters: packed}
        self.lanes_in = min(t.lanes, power_of_two_below(w.depth[-1].extent))
        self.watch = Watch(self.lanes_in) if w.task.guarded else None

    def kernel(self, name: str) -> Kernel:
        w = self.w
        blocked = 0 < self.t.block < self.rows_out and not w.shifts
        body, workspace = self.by_blocks() if blocked else self.by_phases()
        alarm = None if self.watch is None else self.watch.alarm
        inputs, arguments = arguments_of(w.task, body, self.known)
        workspace = workspace if alarm is None else (*workspace, alarm)
        program = Program(name, inputs, (w.stage.target,), body, workspace)
        return Kernel(program, arguments, w.task.outputs, alarm)

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
        inner = elements(self.tiles[1:])
        tile = p * inner + rest
        into = self.input_tile(split_index(tile, [*w.positions, *self.tiles]), v, tile)
        out = self.output_tile(split_index(tile, [*w.batch, *self.tiles]), m, tile)
        panels = self.panels
        chunks = -(-panels // t.panels_per_chunk)
        exact = panels % t.panels_per_chunk == 0
        panel = within_count(xi % chunks * t.panels_per_chunk + jj, panels, exact=exact)
        multiply = self.products(v, m, xi // chunks, panel, self.rows_out)
        body = (
            loop(p, self.rows_in // inner, self.watched(loop(rest, inner, into)), kind="parallel"),
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
        inside = where | {new: where[old] for new, old in zip(w.positions, w.batch)}
        multiply = self.products(v, m, xi, jj, t.block)
        steps = (
            self.watched(loop(row, t.block, self.input_tile(inside, v, row))),
            loop(xi, self.points, loop(jj, self.panels, multiply)),
            loop(row, t.block, self.output_tile(where, m, row)),
        )
        body = Allocate(v, (Allocate(m, steps),))
        blocks = -(-self.rows_out // t.block)
        return (loop(p, blocks, body, kind="parallel"),), ()

    def watched(self, nest: Stmt) -> Stmt:
        """The input transforms of a parallel step."""
        return nest if self.watch is None else self.watch.around(nest)

    # ------------------------------------------------------------------------------- phases
    def input_tile(self, where: dict[Expr, Expr], v: Buffer, row: Expr) -> Stmt:
        """V of one tile."""
        w = self.w
        *outer, last = w.depth
        lanes = self.lanes_in
        registers = Registers(w.input_transform(self.t.m), lanes, v.dtype, self.watch)
        outer = [*w.group, *outer]
        variables = {a: Var(f"c{n}") for n, a in enumerate(outer)}
        block = Var("cb")
        first = start_of(block, lanes, last.extent)
        env: dict[Expr, Expr] = {
            **{old: where[new] for old, new in zip(w.batch, w.positions)},
            **{p.kernel: as_expr(0) for p in (*w.pairs, *w.shifts.values())},
            last: first + registers.lane,
        }
        env.update((a, var) for a, var in variables.items())
        channel: Expr = as_expr(0)
        for axis in (*w.group, *w.depth):
            channel = channel * axis.extent + env[axis]

        def load(at: tuple[int, ...]) -> Expr:
            read = {p.outputs: p.read(where[tile], self.t.m, n) for p, tile, n in self.along(at)}
            return substitute(w.image, env | read)

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
        reduced = {k: Var(f"k{n}") for n, k in enumerate((*w.moving, *w.depth))}
        row_in: Expr = as_expr(0)
        row_out: Expr = as_expr(0)
        for (axis, var), longer in zip(outer.items(), w.positions):
            moved: Expr = var
            if axis in w.shifts:
                moved = var + reduced[w.shifts[axis].kernel] * w.shifts[axis].step
            row_in, row_out = row_in * longer.extent + moved, row_out * axis.extent + var
        row_in, row_out = row_in * rows + row, row_out * rows + row
        channel: Expr = group
        for axis in w.depth:
            channel = channel * axis.extent + reduced[axis]
        depth, tiles = [(var, k.extent) for k, var in reduced.items()], -(-rows // tile.mr)
        hints = next_panel(self.filters, (xi, panel), depth, (io, tiles)) if t.prefetch else ()
        nest: Stmt = tile.multiply(
            v[xi, row_in * w.all_channels + channel],
            self.filters[(xi, panel, *reduced.values(), tile.column)],
            depth,
            lambda value: Store(m, (xi, row_out * w.all_columns + column), value),
            hints,
            t.terms,
        )
        nest = loop(io, tiles, nest)
        for axis, var in reversed(outer.items()):
            nest = loop(var, axis.extent, nest)
        return nest

    def output_tile(self, where: dict[Expr, Expr], m: Buffer, row: Expr) -> Stmt:
        """The outputs of one tile, through the epilogue."""
        w, t = self.w, self.t
        lanes = min(t.lanes, power_of_two_below(w.columns))
        registers = Registers(w.output_transform(t.m), lanes, m.dtype)
        block, group = Var("ob"), Var("og")
        column = start_of(block, lanes, w.columns) + registers.lane
        env: dict[Expr, Expr] = {**{a: where[a] for a in w.batch}, w.vector: column}
        env.update((g, group) for g in w.group)
        position = group * w.columns + column if w.group else column

        def load(at: tuple[int, ...]) -> Expr:
            return m[self.point(at), row * w.all_columns + position]

        def finish(at: tuple[int, ...], value: Expr) -> Stmt:
            known = env | {
                p.outputs: p.start(where[tile], t.m) + n * p.step for p, tile, n in self.along(at)
            }
            result = map_expr(w.stage.body, lambda e: value if e is w.reduce else None)
            store = Store(
                w.stage.target, (substitute(w.stage.address, known),), substitute(result, known)
            )
            new = all_of([p.to_write(where[tile], t.m, n) for p, tile, n in self.along(at)])
            return store if not free_symbols(new) else If(new, (store,))

        nest = loop(block, -(-w.columns // lanes), registers.transform(load, finish))
        return loop(group, w.groups, nest) if w.group else nest

    def along(self, at: tuple[int, ...]) -> Iterator[tuple[Pair, Axis, int]]:
        """Every pair with the axis of its tiles and the place of an element within a tile."""
        return zip(self.w.pairs, self.tiles, at)

    def point(self, at: tuple[int, ...]) -> Expr:
        number = 0
        for n, size in zip(at, self.w.sizes(self.t.m)):
            number = number * size + n
        return as_expr(number)
