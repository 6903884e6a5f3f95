"""A contraction with given tile sizes as a loop nest (see `match` for its shape)."""

from __future__ import annotations

from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Read, Var, as_expr, call, elements
from whet.ir.program import Allocate, Buffer, If, Program, Stmt, Store, substitute_block
from whet.ir.tensor import Compute, Tensor
from whet.schedule.families.contraction.halo import conditions
from whet.schedule.families.contraction.match import BESIDE, Contraction, Fold, Tiling
from whet.schedule.program.access import map_expr
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop, split_index, start_of, within_count
from whet.schedule.program.register_tile import (
    Conditions,
    RegisterTile,
    nested,
    next_panel,
    rows_ahead,
)
from whet.schedule.program.transpose import transposed_axis, transposed_copy


def lower_contraction(c: Contraction, t: Tiling, name: str) -> Kernel:
    """The kernel of the contraction with the given tile sizes."""
    return _Lowering(c, t).kernel(name)


class _Lowering:
    """The nest, with the positions that its parts share."""

    def __init__(self, c: Contraction, t: Tiling) -> None:
        self.c, self.t = c, t
        self.tile = RegisterTile(t.mr, t.nv, t.lanes)
        self.p, self.jj, self.io = Var("p"), Var("jj"), Var("io")
        panels, tiles = -(-c.columns // t.width), -(-c.rows // t.mr)
        blocks, chunks = -(-tiles // t.tiles_per_block), -(-panels // t.panels_per_chunk)
        self.steps = c.batch * blocks * chunks
        chunk, block = self.p % chunks, self.p // chunks % blocks
        exact = panels % t.panels_per_chunk == 0
        self.panel = within_count(chunk * t.panels_per_chunk + self.jj, panels, exact=exact)
        exact = tiles % t.tiles_per_block == 0
        number = within_count(block * t.tiles_per_block + self.io, tiles, exact=exact)
        first = start_of(number, t.mr, c.rows)
        row = first + self.tile.i
        self.reduced = [(Var(f"k{n}"), k.extent) for n, k in enumerate(c.k_axes)]
        self.depth: tuple[Expr, ...] = tuple(var for var, _ in self.reduced)
        variables = dict(zip(c.k_axes, (var for var, _ in self.reduced)))
        self.needed = {
            variables[k]: substitute(condition, variables)
            for k, condition in conditions(c.edges, c.m_axes, first, t.mr).items()
            if t.skip
        }
        self.env: dict[Expr, Expr] = {
            **split_index(self.p // (chunks * blocks), c.outer),
            **split_index(row, c.m_axes),
            c.vector: column_of(c, t, self.panel, self.tile.v, self.tile.lane),
            **dict(zip(c.k_axes, self.depth)),
        }

    def kernel(self, name: str) -> Kernel:
        c, t = self.c, self.t
        known: dict[Buffer, Tensor] = {}
        before: tuple[Stmt, ...] = ()
        workspace: tuple[Buffer, ...] = ()
        in_place = c.b_is_contiguous and t.lanes <= c.columns
        if c.b_is_constant or (t.pack_b != BESIDE and (t.pack_b or not in_place)):
            packed = pack_panels(c, t)
            store = Buffer("panels", packed.shape, packed.dtype)
            panel = (*(self.env[x] for x in c.outer), self.panel)
            hints = self.hints(store, panel) if t.prefetch else ()
            step = self.tiles(Read(store, (*panel, *self.depth, self.tile.column)), *hints)
            if c.b_is_constant:
                known[store] = packed
            else:
                copy = copy_panels(store, packed, t.lanes, len(c.outer) + 1)
                before, workspace = (copy,), (store,)
        elif t.pack_b == BESIDE:
            step = self.beside(in_place=in_place)
        else:
            step = self.tiles(self.b)
        nest = (*before, loop(self.p, self.steps, step, kind="parallel"))
        inputs, arguments = arguments_of(c.task, nest, known)
        targets = tuple(r.target for r in c.ranges) or (c.stage.target,)
        program = Program(name, inputs, targets, nest, workspace)
        return Kernel(program, arguments, c.task.outputs)

    @property
    def a(self) -> Expr:
        return substitute(self.c.a, self.env)

    @property
    def b(self) -> Expr:
        """b where it lies."""
        return substitute(substitute(self.c.b, self.c.k_values), self.env)

    def tiles(self, b: Expr, *hints: Stmt) -> Stmt:
        """All panels and tiles of a step."""
        t = self.t
        multiply = self.multiply(self.a, b, *hints, needed=self.needed)
        return loop(self.jj, t.panels_per_chunk, loop(self.io, t.tiles_per_block, multiply))

    def beside(self, *, in_place: bool) -> Stmt:
        """All panels and tiles of a step, each panel copied when it is used first.

        What lies in vectors already is copied by the last tile, which comes first, while it
        multiplies:

            last tile:     acc += a * b[k];  panel[k] = b[k]
            other tiles:   acc += a * panel[k]
        """
        t, tile = self.t, self.tile
        near = Buffer("panel", (*(n for _, n in self.reduced), t.width), self.c.b.dtype)
        at = (*self.depth, tile.column)
        vector = loop(tile.lane, t.lanes, Store(near, at, self.b), kind="vector")
        copy = loop(tile.v, t.nv, vector, kind="unroll")
        times = t.tiles_per_block
        if in_place:
            times -= 1
            ahead = rows_ahead(self.b, tile, self.reduced)
            first = substitute_block(
                (self.multiply(self.a, self.b, copy, *ahead),), {self.io: as_expr(times)}
            )
        else:
            first = self.copied(near, at) or nested(self.reduced, (copy,))
        rest = loop(self.io, times, self.multiply(self.a, near[at]))
        return Allocate(near, (loop(self.jj, t.panels_per_chunk, *first, rest),))

    def copied(self, near: Buffer, at: tuple[Expr, ...]) -> tuple[Stmt, ...] | None:
        """A panel that is read along the depth and turned, or None where that does not fit."""
        c, t = self.c, self.t
        depth = transposed_axis(substitute(c.b, c.k_values), c.vector, c.k_axes)
        if depth is None or t.lanes > c.columns:
            return None
        within = Var("within")
        place = c.k_axes.index(depth)
        env = {**self.env, c.vector: column_within(c, t, self.panel, within)}
        value = substitute(substitute(c.b, c.k_values), env)
        nest = transposed_copy(near, (*at[:-1], within), value, (Axis("within", t.width), within),
                           (depth, self.depth[place]), t.lanes)  # fmt: skip
        if nest is None:
            return None
        return nested([x for n, x in enumerate(self.reduced) if n != place], (nest,))

    def multiply(self, a: Expr, b: Expr, *beside: Stmt, needed: Conditions | None = None) -> Stmt:
        fold = self.c.fold
        results = self.t.nv // len(fold.sums) if fold is not None else self.t.nv
        return self.tile.multiply(
            a, b, self.reduced, self.finish, beside, self.t.terms, needed, results
        )

    def hints(self, store: Buffer, panel: tuple[Expr, ...]) -> tuple[Stmt, ...]:
        return next_panel(store, panel, self.reduced, (self.io, self.t.tiles_per_block))

    def finish(self, total: Expr) -> Stmt:
        """A vector of sums made results, those of the range of columns that it lies in."""
        c = self.c
        if c.fold is not None:
            return self.folded(c.fold, total)
        if not c.ranges:
            return self.stored(c.stage.target, c.stage.address, c.stage.body, total)
        first = substitute(self.env[c.vector], {self.tile.lane: as_expr(0)})
        *others, last = sorted(c.ranges, key=lambda r: r.start)
        made = self.stored(last.target, last.address, last.value, total)
        for r in reversed(others):
            made = If(first < r.end, (self.stored(r.target, r.address, r.value, total),), (made,))
        return made

    def folded(self, fold: Fold, total: Expr) -> Stmt:
        """Vectors of sums of the same columns made one vector of results."""
        v, vectors = self.tile.v, self.t.nv // len(fold.sums)
        column = folded_column(fold, self.t, self.panel, v, self.tile.lane)
        now: dict[Expr, Expr] = {**self.env, fold.column: column}
        for n, variable in enumerate(fold.sums):
            now[variable] = substitute(total, {v: v + n * vectors})
        address = substitute(fold.address, now)
        return Store(self.c.stage.target, (address,), substitute(fold.value, now))

    def stored(self, target: Buffer, address: Expr, value: Expr, total: Expr) -> Stmt:
        value = map_expr(value, lambda e: total if e is self.c.reduce else None)
        return Store(target, (substitute(address, self.env),), substitute(value, self.env))


def column_of(c: Contraction, t: Tiling, panel: Expr, v: Expr, lane: Expr) -> Expr:
    """The column of a lane of a vector of a panel.

    The last panel ends at the edge, and so does the last vector of one that is wider than all
    columns; a vector that is wider than all of them repeats the last.
    """
    if c.fold is not None:
        vectors = t.nv // len(c.fold.sums)
        column = folded_column(c.fold, t, panel, v % vectors, lane)
        return column + v // vectors * c.fold.column.extent
    within = v * t.lanes + lane
    if t.width <= c.columns:
        return start_of(panel, t.width, c.columns) + within
    if t.lanes <= c.columns:
        return start_of(v, t.lanes, c.columns) + lane
    return call("min", within, c.columns - 1)


def folded_column(fold: Fold, t: Tiling, panel: Expr, v: Expr, lane: Expr) -> Expr:
    """The column of results that a lane of a vector of results is in."""
    width = t.width // len(fold.sums)
    return start_of(panel, width, fold.column.extent) + v * t.lanes + lane


def column_within(c: Contraction, t: Tiling, panel: Expr, within: Expr) -> Expr:
    """The same by the position within the panel."""
    if t.width <= c.columns and c.fold is None:
        return start_of(panel, t.width, c.columns) + within
    return column_of(c, t, panel, within // t.lanes, within % t.lanes)


def pack_panels(c: Contraction, t: Tiling) -> Compute:
    """b as [outer..., panel, k..., column within the panel]."""
    panels = -(-c.columns // t.width)
    shape = [*(x.extent for x in c.outer), panels, *(k.extent for k in c.k_axes), t.width]
    axes = tuple(Axis(f"p{n}", extent) for n, extent in enumerate(shape))
    panel, depth = axes[len(c.outer)], axes[len(c.outer) + 1 : -1]
    env: dict[Expr, Expr] = {
        **dict(zip(c.outer, axes)),
        **dict(zip(c.k_axes, depth)),
        c.vector: column_within(c, t, panel, axes[-1]),
    }
    return Compute("panels", axes, substitute(substitute(c.b, c.k_values), env))


def copy_panels(store: Buffer, packed: Compute, lanes: int, shared: int = 1) -> Stmt:
    """The statements that bring b into panels at run time; threads share the first axes."""
    first, rest = packed.axes[:shared], packed.axes[shared:]
    var = Var("b0")
    env = split_index(var, first)
    one = Compute(packed.name, rest, substitute(packed.body, env))
    copy = copy_panel(store, tuple(env[axis] for axis in first), one, lanes)
    return loop(var, elements(first), copy, kind="parallel")


def copy_panel(store: Buffer, at: tuple[Expr, ...], packed: Compute, lanes: int) -> Stmt:
    """The statements that bring part of b into `store[at]`."""
    variables = [Var(f"b{n + len(at)}") for n in range(len(packed.axes))]
    env: dict[Expr, Expr] = dict(zip(packed.axes, variables))
    inner, place = set(variables), (*at, *variables)
    nest: Stmt | None = None
    depth = transposed_axis(packed.body, packed.axes[-1], packed.axes[:-1])
    if depth is not None:
        column = packed.axes[-1]
        nest = transposed_copy(store, place, substitute(packed.body, env),
                           (column, env[column]), (depth, env[depth]), lanes)  # fmt: skip
    if nest is not None and depth is not None:
        inner -= {env[depth], variables[-1]}
    else:
        nest = Store(store, place, substitute(packed.body, env))
        nest = loop(variables[-1], packed.axes[-1].extent, nest, kind="vector")
        inner -= {variables[-1]}
    for var, axis in zip(reversed(variables), reversed(packed.axes)):
        if var in inner:
            nest = loop(var, axis.extent, nest)
    return nest
