"""A spatial stage with given tile sizes as a loop nest (see `match` for its shape)."""

from __future__ import annotations

from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import Axis, Expr, Read, Reduce, Var, call, elements
from whet.ir.program import Align, Allocate, Buffer, Program, Stmt, Store
from whet.ir.tensor import Compute, Tensor, subexpressions
from whet.schedule.families.spatial.match import Spatial, SpatialTiling
from whet.schedule.program.access import map_expr, memory_of
from whet.schedule.program.accumulate import Accumulator
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop, split_index, start_of, within_count


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
