"""The spatial sketch: element-wise stages, stencils, pools, depthwise convolutions, reductions
over outer axes.

Whatever is reduced, neighbouring outputs lie along one vector axis, so lanes never mix:

    parallel p over (outer axes, chunks of columns):
      for tile in row of the second axis: for panel in columns of the chunk:
        acc[px, nv, lanes] = identity
        for k...: acc[i, v, :] = combine(acc, value)       (unrolled when short)
        y[...] = epilogue(acc)

Constant operands are stored with the vector axis last.  Edges are handled by moving the last
tile and the last vector back, as in the contraction sketch.

Results that no cache can hold may go past all of them, in vectors at aligned addresses:

    lead = align y to 16
    panel 0 at 0, panel k at lead + (k - 1) * width, the last one moved back
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whet.core.dtypes import bool_, i64
from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import (
    Axis,
    Expr,
    Read,
    Reduce,
    Var,
    as_expr,
    binary,
    call,
    const,
    elements,
    select,
)
from whet.ir.program import Align, Allocate, Buffer, LoopKind, Program, Stmt, Store
from whet.ir.tensor import Compute, Tensor, subexpressions
from whet.schedule.cost.work import lane_step
from whet.schedule.program.access import map_expr, memory_of
from whet.schedule.program.flat import FlatStage, flatten_stage
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import (
    arguments_of,
    identity_element,
    loop,
    split_index,
    start_of,
    within_count,
)
from whet.tasks.task import Task

UNROLL_LIMIT = 32
"""So many terms of a reduction are written out at most."""


def loop_kinds(axes: Sequence[Axis]) -> tuple[LoopKind, ...]:
    """How the loops of a reduction are written: the inner ones out, up to the limit."""
    kinds: list[LoopKind] = []
    terms = 1
    for axis in reversed(axes):
        terms *= axis.extent
        kinds.append("unroll" if terms <= UNROLL_LIMIT else "serial")
    return tuple(reversed(kinds))


@dataclass(frozen=True, eq=False)
class Spatial:
    """A stage whose lanes run along an axis of the output."""

    task: Task
    stage: FlatStage
    vector: Axis | None
    pixels: Axis | None
    """The axis whose neighbouring positions share operands, tiled in registers."""
    outer: tuple[Axis, ...]

    @property
    def columns(self) -> int:
        return 1 if self.vector is None else self.vector.extent


@dataclass(frozen=True)
class SpatialTiling:
    """The holes: pixels per tile, vectors per tile, lanes, tiles and panels per parallel step."""

    px: int
    nv: int
    lanes: int
    tiles_per_step: int
    panels_per_step: int
    stream: int = 0
    """1: results are written past the caches, which takes one panel more."""


def find_spatial(task: Task, *, whole_groups: bool = False) -> Spatial | None:
    """The task as a spatial stage, or None if it has several stages.

    With `whole_groups`, an axis that also counts groups stays one axis: lanes then run across
    several narrow groups, and what a group shares is shuffled into its lanes.
    """
    if len(task.outputs) != 1:
        return None
    output = task.outputs[0]
    if any(
        isinstance(x.tensor, Compute) for x in subexpressions(output.body) if isinstance(x, Read)
    ):
        return None
    stage = flatten_stage(output, task, whole_groups=whole_groups)
    vector = stage.vector
    others = [a for a in stage.axes if a is not vector]
    pixels = others[-1] if others else None
    return Spatial(task, stage, vector, pixels, tuple(a for a in others if a is not pixels))


def find_whole_groups(task: Task) -> Spatial | None:
    """The task with lanes across groups, where that makes rows longer; None elsewhere."""
    whole, plain = find_spatial(task, whole_groups=True), find_spatial(task)
    if whole is None or plain is None or whole.columns <= plain.columns:
        return None
    return whole


def find_across(task: Task) -> Spatial | None:
    """The task with lanes along what it reads, and neighbours that share it in one tile.

    y[o, i, 2 * j] = sum(x[c, i, j + q] * w[o, c, q] for c, q) has no contiguous axis of its own,
    but x is contiguous along j and the same for all o.  None where that is how tiles are anyway.
    """
    plain = find_spatial(task)
    if plain is None or len(plain.stage.reduces) != 1 or len(plain.stage.axes) < 2:
        return None
    stage, lanes = plain.stage, plain.stage.axes[-1]
    (reduce,) = stage.reduces
    reads = [e for e in subexpressions(reduce.value) if isinstance(e, Read)]
    moved = [r for r in reads if lanes in free_symbols(r)]
    if not moved or any(lane_step(r, lanes) != 1 for r in moved):
        return None
    sharing = [a for a in stage.axes[:-1] if not any(a in free_symbols(r) for r in moved)]
    if not sharing or (lanes is plain.vector and sharing[-1] is plain.pixels):
        return None
    outer = tuple(a for a in stage.axes if a is not lanes and a is not sharing[-1])
    return Spatial(task, stage, lanes, sharing[-1], outer)


def can_stream(s: Spatial, lanes: int) -> bool:
    """Whether vectors at aligned addresses follow each other, wherever the result begins."""
    if s.vector is None or s.stage.target.dtype is bool_ or s.columns < lanes:
        return False
    form = affine(s.stage.address)
    others = [factor for atom, factor in form.terms if atom is not s.vector]
    return (
        lanes > 1
        and lanes & (lanes - 1) == 0
        and form.coefficient(s.vector) == 1
        and all(n % lanes == 0 for n in (*others, form.constant))
    )


def lower_spatial(s: Spatial, t: SpatialTiling, name: str) -> Kernel:
    """The kernel of the stage with the given tile sizes."""
    rows = 1 if s.pixels is None else s.pixels.extent
    width = t.nv * t.lanes
    tiles, panels = -(-rows // t.px), -(-s.columns // width) + t.stream
    steps, chunks = -(-tiles // t.tiles_per_step), -(-panels // t.panels_per_step)
    p, io, jo = Var("p"), Var("io"), Var("jo")
    i, v, lane, lead = Var("i"), Var("v"), Var("lane"), Var("lead")
    chunk, step, outer = p % chunks, p // chunks % steps, p // (chunks * steps)
    exact = panels % t.panels_per_step == 0
    panel = within_count(chunk * t.panels_per_step + jo, panels, exact=exact)
    env: dict[Expr, Expr] = dict(split_index(outer, s.outer))
    if s.vector is not None:
        start = start_of(panel, width, s.columns)
        if t.stream:
            first = call("max", lead + (panel - 1) * width, 0)
            start = call("min", first, s.columns - width)
        env[s.vector] = start + v * t.lanes + lane
    if s.pixels is not None:
        exact = tiles % t.tiles_per_step == 0
        tile = within_count(step * t.tiles_per_step + io, tiles, exact=exact)
        env[s.pixels] = start_of(tile, t.px, rows) + i

    def tile_loops(*body: Stmt) -> Stmt:
        lanes = loop(lane, t.lanes, *body, kind="vector")
        return loop(i, t.px, loop(v, t.nv, lanes, kind="unroll"), kind="unroll")

    body, known = repack_constants(s)
    at = (i, v, lane)
    statements: list[Stmt] = []
    results: dict[Expr, Expr] = {}
    registers: list[Buffer] = []
    for n, reduce in enumerate(e for e in subexpressions(body) if isinstance(e, Reduce)):
        make = Accumulator(n, reduce, (t.px, t.nv, t.lanes), at)
        registers += make.registers
        results[reduce] = make.result
        statements += make.statements(env, tile_loops)
    final = substitute(map_expr(body, results.get), env)
    address = substitute(s.stage.address, env)
    statements.append(tile_loops(Store(s.stage.target, (address,), final, bool(t.stream))))
    nest: tuple[Stmt, ...] = tuple(statements)
    for register in registers:
        nest = (Allocate(register, nest),)
    inner: Stmt = loop(io, t.tiles_per_step, loop(jo, t.panels_per_step, *nest))
    if t.stream:
        inner = Align(lead, s.stage.target, t.lanes, (inner,))
    total = elements(s.outer) * steps * chunks
    whole = (loop(p, total, inner, kind="parallel"),)
    inputs, arguments = arguments_of(s.task, whole, known)
    return Kernel(Program(name, inputs, (s.stage.target,), whole), arguments, s.task.outputs)


class Accumulator:
    """The registers and statements of one reduction over a tile."""

    def __init__(
        self, number: int, reduce: Reduce, shape: tuple[int, ...], at: tuple[Expr, ...]
    ) -> None:
        self.reduce, self.at = reduce, at
        self.value = Buffer(f"acc{number}", shape, reduce.value.dtype, scope="register")
        self.registers = [self.value]
        self.is_arg = reduce.kind.startswith("arg")
        if self.is_arg:
            self.position = Buffer(f"at{number}", shape, i64, scope="register")
            self.registers.append(self.position)
        self.result: Expr = (self.position if self.is_arg else self.value)[at]

    def statements(self, env: dict[Expr, Expr], tile: Callable[..., Stmt]) -> list[Stmt]:
        """Initialisation and the loops of the reduction."""
        axes = self.reduce.axes
        variables = {a: Var(f"{self.value.name}_{a.name}") for a in axes}
        where: dict[Expr, Expr] = {**env}
        where.update(variables.items())
        value = substitute(self.reduce.value, where)
        start = [Store(self.value, self.at, identity_element(self.reduce.kind, self.value.dtype))]
        if self.is_arg:
            start.append(Store(self.position, self.at, const(0, i64)))
        update = tile(*self.update(value, [(variables[a], a.extent) for a in axes]))
        for axis, kind in zip(reversed(axes), reversed(loop_kinds(axes))):
            update = loop(variables[axis], axis.extent, update, kind=kind)
        return [tile(*start), update]

    def update(self, value: Expr, position: list[tuple[Var, int]]) -> list[Stmt]:
        acc = self.value[self.at]
        if not self.is_arg:
            return [Store(self.value, self.at, combine(self.reduce.kind, acc, value))]
        index: Expr = as_expr(0)
        for var, extent in position:
            index = index * extent + var
        better = takes_over(self.reduce.kind, value, acc)
        return [
            Store(self.position, self.at, select(better, index, self.position[self.at])),
            Store(self.value, self.at, select(better, value, acc)),
        ]


def combine(kind: str, a: Expr, b: Expr) -> Expr:
    """One step of a reduction."""
    match kind:
        case "sum":
            return a + b
        case "prod":
            return a * b
        case "any" | "all":
            return binary("or" if kind == "any" else "and", a, b)
    return call(kind, a, b)


def takes_over(kind: str, value: Expr, best: Expr) -> Expr:
    """Whether an arg-reduction goes on with a value instead of the best one before it.

    NaN is better than any number, and the first of equals stays, as in NumPy.
    """
    if not value.dtype.is_float:
        return value > best if kind == "argmax" else value < best
    worse = value <= best if kind == "argmax" else value >= best
    return call("not", worse) & call("not", call("isnan", best))


def repack_constants(s: Spatial) -> tuple[Expr, dict[Buffer, Tensor]]:
    """The body with constants that lanes run across stored with the vector axis last.

    w[c, ky, kx] read along c   ->   w'[ky, kx, c]
    """
    constants = {memory_of(t, s.task): t for t in s.task.constants if t in s.task.buffers}
    known: dict[Buffer, Tensor] = {}

    def change(e: Expr) -> Expr | None:
        if not (isinstance(e, Read) and e.tensor in constants and s.vector in free_symbols(e)):
            return None
        form = affine(e.indices[0])
        if form.coefficient(s.vector) == 1 or any(not isinstance(a, Axis) for a, _ in form.terms):
            return None
        order = [a for a, _ in form.terms if isinstance(a, Axis) and a is not s.vector]
        axes = (*order, s.vector)
        packed = Compute(f"packed{len(known)}", axes, e)
        store = Buffer(packed.name, packed.shape, packed.dtype)
        known[store] = packed
        return Read(store, axes)

    assert s.vector is None or isinstance(s.vector, Axis)
    return (s.stage.body if s.vector is None else map_expr(s.stage.body, change)), known
