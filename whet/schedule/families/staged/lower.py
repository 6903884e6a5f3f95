"""A staged window with given tile sizes as a loop nest (see `match` for its shape)."""

from __future__ import annotations

from whet.ir.affine import free_symbols, substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, Var, as_expr, binary, const, elements, select
from whet.ir.program import Allocate, Buffer, If, Loop, LoopKind, Program, Stmt, Store
from whet.ir.tensor import subexpressions
from whet.schedule.families.staged.match import (
    Copy,
    Staged,
    StagedTiling,
    by_columns,
    copy_of,
    width_of_phase,
)
from whet.schedule.program.access import address_form, map_expr, memory_of
from whet.schedule.program.accumulate import Accumulator
from whet.schedule.program.flat import FlatStage, stage_over_memory
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop, split_index, start_of, within_count

FEW = 8
"""Vectors of a row that are copied without a loop."""


TOP = Var("top")
"""The first row of the block."""


BASE = Var("base")
"""Where the copy of the block begins."""


def lower_staged(s: Staged, t: StagedTiling, name: str) -> Kernel:
    """The kernel of the window with the given tile sizes."""
    copy = copy_of(s, t.lanes, t.rows)
    blocks = -(-s.height // t.rows)
    total = elements(s.outer) * blocks
    steps = -(-total // t.blocks_per_step)
    p, n = Var("p"), Var("n")
    memory = Buffer("copy", (copy.size * (2 if t.ahead == 1 else 1),), s.window.read.dtype)

    def place(number: Expr) -> dict[Expr, Expr]:
        """The place of a step's block, in the image and in memory."""
        exact = total % t.blocks_per_step == 0 and number is n
        block = within_count(p * t.blocks_per_step + number, total, exact=exact)
        top = start_of(block % blocks, t.rows, s.height)
        base = number % 2 * copy.size if t.ahead == 1 else as_expr(0)
        return {**split_index(block // blocks, s.outer), TOP: top, BASE: base}

    compute = _compute(s, t, copy, memory, place(n))
    height = tile_rows(s, t) if t.ahead == 2 else copy.rows
    fill = _fill(s, copy, memory, place(n + 1 if t.ahead == 1 else n), height)
    first = _fill(s, copy, memory, place(as_expr(0)), height) if t.ahead == 1 else []
    inner = Allocate(memory, (*first, loop(n, t.blocks_per_step, *fill, *compute)))
    whole = (loop(p, steps, inner, kind="parallel"),)
    inputs, arguments = arguments_of(s.task, whole, {})
    return Kernel(Program(name, inputs, (s.stage.target,), whole), arguments, s.task.outputs)


def tile_rows(s: Staged, t: StagedTiling) -> int:
    """Rows of the copy that a tile reads."""
    return copy_of(s, t.lanes, t.px).rows


def _fill(
    s: Staged, copy: Copy, memory: Buffer, where: dict[Expr, Expr], height: int
) -> list[Stmt]:
    """Bring the first rows of the image that the block there needs, with zeros around them."""
    base = where[BASE]
    before = [
        x
        for f in range(copy.phases)
        for x in _outside(s, copy, memory, base + f * copy.plane, copy.before)
    ]
    return [*before, _fill_rows(s, copy, memory, where, as_expr(0), height)]


def _fill_rows(
    s: Staged,
    copy: Copy,
    memory: Buffer,
    where: dict[Expr, Expr],
    first: Expr,
    height: int,
) -> Stmt:
    """Bring so many rows of the copy from row `first` on."""
    k, top, base = Var("r"), where[TOP], where[BASE]
    r = first + k
    outer: dict[Expr, Expr] = {axis: where[axis] for axis in s.outer}
    start = base + copy.before + r * copy.pitch
    inside: list[Stmt] = []
    for f in range(copy.phases):
        inside += _copy_row(
            s, copy, memory, outer, start + f * copy.plane, f, row_of_image(s, top, r)
        )
    if s.rows is None:
        return loop(k, 1, *inside)
    row = row_of_image(s, top, r)
    checks: list[Expr] = []
    if s.rows.low < 0:
        checks.append(row >= 0)
    if (s.height - 1) * s.rows.step + s.rows.high >= s.image_height:
        checks.append(row < s.image_height)
    body: tuple[Stmt, ...] = tuple(inside)
    if checks:
        condition = checks[0] if len(checks) == 1 else binary("and", *checks)
        empty = [
            x
            for f in range(copy.phases)
            for x in _outside(s, copy, memory, start + f * copy.plane, copy.pitch)
        ]
        body = (If(condition, body, tuple(empty)),)
    return loop(k, height, *body)


def row_of_image(s: Staged, top: Expr, r: Expr) -> Expr:
    """The row of the image that is row r of the copy."""
    return r if s.rows is None else top * s.rows.step + s.rows.low + r


def _outside(s: Staged, copy: Copy, memory: Buffer, start: Expr | int, size: int) -> list[Stmt]:
    """The filling outside of the image, over a whole number of vectors."""
    b, lane = Var("b"), Var("lane")
    fill = s.window.outside or const(0, memory.dtype)
    vectors = size // copy.lanes
    if not vectors:
        return []
    at = start + b * copy.lanes + lane
    return [_vectors(b, vectors, lane, copy.lanes, Store(memory, (at,), fill))]


def _vectors(b: Var, count: int, lane: Var, lanes: int, *body: Stmt) -> Loop:
    kind: LoopKind = "unroll" if count <= FEW else "serial"
    return loop(b, count, loop(lane, lanes, *body, kind="vector"), kind=kind)


def _copy_row(
    s: Staged,
    copy: Copy,
    memory: Buffer,
    outer: dict[Expr, Expr],
    start: Expr,
    phase: int,
    row: Expr,
) -> list[Stmt]:
    """The columns of one phase of a row, behind them what stands outside."""
    step, lanes = s.columns.step, copy.lanes
    width = width_of_phase(s, phase)
    b, lane = Var("b"), Var("lane")
    # The border comes first: where vectors overlap, the image is what counts.
    covered = max(width, lanes) if width else 0
    edge = -(-(copy.pitch - covered) // lanes) * lanes
    statements = _outside(s, copy, memory, start + copy.pitch - edge, edge)
    if not width:
        return statements
    column = (start_of(b, lanes, width) if width >= lanes else b * lanes) + lane
    value = image_at(s, outer, row, column * step + phase)
    if width < lanes:
        value = select(lane < width, value, s.window.outside or const(0, memory.dtype))
    copied = Store(memory, (start + column,), value)
    return [*statements, _vectors(b, -(-width // lanes), lane, lanes, copied)]


def image_at(s: Staged, outer: dict[Expr, Expr], row: Expr, column: Expr) -> Expr:
    read = s.window.read
    indices = list(read.indices)
    indices[s.columns.dim] = column
    if s.rows is not None:
        indices[s.rows.dim] = row
    where: dict[Expr, Expr] = dict(outer)
    for axis in (a for i in indices for a in free_symbols(i) if isinstance(a, Axis)):
        where.setdefault(axis, as_expr(0))  # of extent 1
    buffer = s.task.buffers[read.tensor]
    address = address_form(buffer, tuple(substitute(i, where) for i in indices))
    return Read(memory_of(read.tensor, s.task), (address.expr(),))


def _compute(
    s: Staged, t: StagedTiling, copy: Copy, memory: Buffer, env: dict[Expr, Expr]
) -> list[Stmt]:
    """The results of the block, from its copy."""
    width = t.nv * t.lanes
    tiles, panels = -(-t.rows // t.px), -(-s.width // width)
    io, jo, i, v, lane = Var("io"), Var("jo"), Var("i"), Var("v"), Var("lane")
    where = dict(env)
    start = start_of(jo, width, s.width) if s.width >= width else jo * width
    where[s.columns.axis] = start + v * t.lanes + lane
    if s.rows is not None:
        where[s.rows.axis] = env[TOP] + start_of(io, t.px, t.rows) + i

    def tile(*body: Stmt) -> Stmt:
        lanes = loop(lane, t.lanes, *body, kind="vector")
        return loop(i, t.px, loop(v, t.nv, lanes, kind="unroll"), kind="unroll")

    body = over_copy(s, copy, memory).body
    (reduce,) = [e for e in subexpressions(body) if isinstance(e, Reduce)]
    terms = by_columns(s, reduce)
    if s.width < width:
        terms = _read_where(lane < s.width, terms, s.columns.axis, memory)
    make = Accumulator(0, terms, (t.px, t.nv, t.lanes), (i, v, lane))
    statements = make.statements(where, tile)
    done: dict[Expr, Expr] = {reduce: make.result}
    final = substitute(map_expr(body, done.get), where)
    store: Stmt = Store(s.stage.target, (substitute(s.stage.address, where),), final)
    if s.width < width:
        store = If(lane < s.width, (store,))
    ahead: list[Stmt] = []
    if t.ahead == 2 and s.rows is not None and tiles > 1:
        fresh = t.px * s.rows.step
        below = start_of(io + 1, t.px, t.rows) * s.rows.step + tile_rows(s, t) - fresh
        ahead = [If(io < tiles - 1, (_fill_rows(s, copy, memory, env, below, fresh),))]
    nest: Stmt = loop(io, tiles, *ahead, loop(jo, panels, *statements, tile(store)))
    for register in make.registers:
        nest = Allocate(register, (nest,))
    return [nest]


def _read_where(exists: Expr, reduce: Reduce, axis: Axis, memory: Buffer) -> Reduce:
    """The reduction with lanes that read nothing but the copy unless they exist."""
    reads = [e for e in subexpressions(reduce.value) if isinstance(e, Read)]
    masked: dict[Expr, Expr] = {
        e: select(exists, e, const(0, e.dtype))
        for e in reads
        if e.tensor is not memory and axis in free_symbols(e)
    }
    return Reduce(reduce.kind, reduce.axes, map_expr(reduce.value, masked.get))


def over_copy(s: Staged, copy: Copy, memory: Buffer) -> FlatStage:
    """The stage, reading the copy instead of the image."""
    columns = s.columns
    at: Expr = BASE + columns.axis + copy.before
    if columns.step == 1:
        at = at + columns.tap
    else:
        at = at + columns.tap // columns.step + columns.tap % columns.step * copy.plane
    if s.rows is not None:
        at = at + ((s.rows.axis - TOP) * s.rows.step + s.rows.tap - s.rows.low) * copy.pitch
    change: dict[Expr, Expr] = {s.window.place: Read(memory, (at,))}
    (output,) = s.task.outputs
    return stage_over_memory(output, map_expr(output.body, change.get), s.task)
