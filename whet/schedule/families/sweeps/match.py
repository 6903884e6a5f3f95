"""The sweeping sketch: reductions over outer axes, read in the order in which they lie.

    y[i] = epilogue(sum(a[k, i] * x[k] for k in 4096))

    parallel p over (outer axes, chunks of columns):
      row[...] = identity
      for blocks of 8 terms: for panels of the chunk:
        acc[nv, lanes] = row[panel]
        for k in block: acc = combine(acc, value)           (unrolled)
        row[panel] = acc
      y[chunk] = epilogue(row)

A tile that takes all terms at once steps over the row of every term to its few columns, often to
another page, which no machine foresees.  Here a few rows at a time are read from end to end, and
what has been summed up of every column is kept in the first cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, Var, as_expr, elements
from whet.ir.program import Allocate, Buffer, Program, Stmt, Store
from whet.ir.tensor import Tensor, subexpressions
from whet.schedule.cost.arrival import with_weights
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import (
    form_of,
    halvings,
    lane_step,
    operations,
    overlapped,
    reads,
    shared_out,
    traffic_cycles,
)
from whet.schedule.families.contraction.price import distance, lanes_for
from whet.schedule.families.spatial.match import combine, find_spatial
from whet.schedule.program.access import map_expr
from whet.schedule.program.flat import FlatStage, merge_axes
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import (
    arguments_of,
    identity_element,
    loop,
    split_index,
    start_of,
    within_count,
)
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

FEWEST_TERMS = 16
"""Shorter reductions are written out, or nearly so, by the spatial sketch."""
ROW_BYTES = 8 << 10
"""What is kept of a chunk, at most: a part of the first cache."""
BLOCKS = (4, 8)
"""Terms of a block: so many rows are read side by side."""
PANEL_CYCLES = 3.0
"""Loops and addresses around a panel."""
RUN_CYCLES = 34.0
"""To begin with a row in another page."""


@dataclass(frozen=True, eq=False)
class Sweeps:
    """A stage of one reduction whose terms are rows."""

    task: Task
    stage: FlatStage
    reduce: Reduce
    vector: Axis
    outer: tuple[Axis, ...]
    terms: tuple[Axis, ...]
    """What is reduced, merged where memory allows, furthest apart first."""
    value: Expr
    """What is reduced, over the merged axes."""


@dataclass(frozen=True)
class SweepTiling:
    """The holes: vectors of a panel, lanes, terms of a block, and panels of a chunk."""

    nv: int
    lanes: int
    block: int
    panels_per_chunk: int


def find_sweeps(task: Task) -> Sweeps | None:
    """The task as rows that are reduced, or None."""
    found = find_spatial(task)
    if found is None or found.vector is None or len(found.stage.reduces) != 1:
        return None
    stage, vector = found.stage, found.vector
    (reduce,) = stage.reduces
    if reduce.kind.startswith("arg") or elements(reduce.axes) < FEWEST_TERMS:
        return None
    flat = [e for e in subexpressions(reduce.value) if isinstance(e, Read)]
    rows = [e for e in flat if vector in free_symbols(e)]
    if any(len(e.indices) != 1 for e in flat) or not rows:
        return None
    if any(lane_step(e, vector) != 1 for e in rows):
        return None
    forms = [affine(e.indices[0]) for e in rows]
    apart = {k: min(abs(f.coefficient(k)) for f in forms) for k in reduce.axes}
    if not all(apart.values()):
        return None  # some row serves several terms: a tile reads it once for all of them
    order = sorted(reduce.axes, key=lambda k: -apart[k])
    terms, (_, value) = merge_axes(order, (as_expr(0), reduce.value))
    outer = tuple(a for a in stage.axes if a is not vector)
    return Sweeps(task, stage, reduce, vector, outer, terms, value)


def sweep_holes(s: Sweeps, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Panels that fit the registers, and chunks that fit the first cache."""
    itemsize = s.reduce.dtype.itemsize
    lanes = lanes_for(s.vector.extent, 8 * itemsize, target)
    rows: list[tuple[int, ...]] = []
    for nv in (1, 2, 4):
        width = nv * lanes
        if width > s.vector.extent:
            continue
        panels = -(-s.vector.extent // width)
        for chunk in halvings(panels):
            if chunk * width * itemsize <= ROW_BYTES:
                rows += [(nv, lanes, n, chunk) for n in BLOCKS if n <= s.terms[-1].extent]
    return population(("nv", "lanes", "block", "panels_per_chunk"), rows)


def sweep_costs(s: Sweeps, target: CpuTarget, threads: int, holes: dict[str, Array]) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    nv, lanes, block = holes["nv"], holes["lanes"], holes["block"]
    rates = rates_of(target)
    bits = 8 * s.reduce.dtype.itemsize
    chunk = holes["panels_per_chunk"]
    panels = -(-s.vector.extent // (nv * lanes))
    steps = elements(s.outer) * -(-panels // chunk)
    passes, load_passes = rates.passes(lanes, bits), rates.load_passes(lanes, bits)
    moved = [e for e in reads(s.value) if lane_step(e, s.vector)]
    fixed = len(reads(s.value)) - len(moved)
    product = s.reduce.kind == "sum" and operations(s.value) > 0
    work = (operations(s.value, s.vector) + 1.0 - product) * nv * passes / rates.operations
    loads = (len(moved) * nv * load_passes + fixed) / rates.loads
    kept = 2 * nv * load_passes / rates.loads
    whole = elements(s.terms)
    blocks = np.ceil(s.terms[-1].extent / block) * whole / s.terms[-1].extent
    per_panel = whole * np.maximum(work, loads) + blocks * (kept + PANEL_CYCLES + rates.latency)
    finish = nv * passes * (2.0 + operations(s.stage.body) / rates.operations)
    arrival = traffic_cycles(s.task.moving, target)
    cycles = overlapped(steps * chunk * (per_panel + finish), arrival)
    # Nothing is on its way while a row begins, unless it follows the one before.
    steps_over = [abs(form_of(e).coefficient(s.terms[-1])) * e.dtype.itemsize for e in moved]
    far = np.where(chunk < panels, sum(map(distance, steps_over)), 0.3 * len(moved))
    cycles = cycles + steps * whole * RUN_CYCLES * far
    ns = shared_out(cycles, steps, threads, target)
    return with_weights(ns, s.task.constant_bytes, target, threads)


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


def sweep_nests(
    s: Sweeps, target: CpuTarget, threads: int, holes: Population
) -> tuple[Statement, ...]:
    """The loops of the update, where blocks are whole, and of the epilogue."""
    nv, lanes, block = holes["nv"], holes["lanes"], holes["block"]
    per_chunk, width = holes["panels_per_chunk"], nv * lanes
    panels = ceil_div(s.vector.extent, width)
    rows = np.arange(len(nv))

    def column(number: Array | int) -> Moves:
        return {s.vector: start_at(number, width, s.vector.extent)}

    outer = [
        Level("outer", elements(s.outer), "parallel", digits(1, s.outer)),
        Level("chunk", ceil_div(panels, per_chunk), "parallel",
              column(clipped(per_chunk, panels, per_chunk))),
    ]  # fmt: skip
    *around, last = s.terms
    terms = [Level(f"k{n}", k.extent, "serial", {k: 1}, True) for n, k in enumerate(around)]
    terms.append(Level("number", last.extent // block, "serial", {last: block}, True))
    along = Level("jo", per_chunk, "serial", column(clipped(1, panels, per_chunk)))
    inside = Level("step", block, "unroll", {last: 1}, True)
    tile = [Level("v", nv, "unroll", {s.vector: lanes}), Level("lane", lanes, "vector",
                                                              {s.vector: 1})]  # fmt: skip
    acc = Buffer("acc", (1, 1), s.reduce.dtype, scope="register")
    row = Buffer("row", (1, 1, 1), s.reduce.dtype)
    size = width * s.reduce.dtype.itemsize
    local: dict[Tensor, Local] = {
        acc: Local({"v": lanes, "lane": 1}, size),
        row: Local({"jo": width, "v": lanes, "lane": 1}, size * per_chunk),
    }
    zero = as_expr(0)
    total = acc[zero, zero]
    update = Store(acc, (zero, zero), combine(s.reduce.kind, total, s.value))
    body = map_expr(s.stage.body, lambda e: row[zero, zero, zero] if e is s.reduce else None)
    finish = Store(s.stage.target, (s.stage.address,), body)
    return (
        describe("update", update, [*outer, *terms, along, inside, *tile], rows, local),
        describe("finish", finish, [*outer, along, *tile], rows, local),
    )
