"""A stage with given tile sizes as code of threads (see `match` for its shape)."""

from __future__ import annotations

from whet.ir.affine import substitute
from whet.ir.expr import Expr, Reduce, Var, as_expr, elements
from whet.ir.program import Buffer, If, Let, Program, Stmt, Store
from whet.ir.tensor import subexpressions
from whet.schedule.families.gpu_spatial.grid import BLOCK, Grid, thread_number
from whet.schedule.families.gpu_spatial.match import GpuSpatialTiling, tile_counts, tile_of
from whet.schedule.families.spatial.lower import repack_constants
from whet.schedule.families.spatial.match import Spatial
from whet.schedule.program.access import map_expr
from whet.schedule.program.accumulate import Accumulator
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop, split_index, start_of


def lower_gpu_spatial(s: Spatial, t: GpuSpatialTiling, name: str) -> Kernel:
    """The kernel of the stage with the given tile sizes."""
    tile = tile_of(s, t.rows, t.width)
    counts = tile_counts(s, tile)
    position = Var("position")
    numbers = split_index(position, counts)
    i, v = Var("i"), Var("v")
    within: dict[Expr, Expr] = {s.pixels: i} if s.pixels is not None else {}
    if s.vector is not None:
        within[s.vector] = v
    env: dict[Expr, Expr] = {
        axis: start_of(numbers[count], tile.get(axis, 1), axis.extent)
        + within.get(axis, as_expr(0))
        for axis, count in zip(s.stage.axes, counts)
    }

    def tile_loops(*body: Stmt) -> Stmt:
        vectors = loop(v, t.width, *body, kind="vector")
        return loop(i, t.rows, vectors, kind="unroll")

    statements: list[Stmt] = []
    results: dict[Expr, Expr] = {}
    registers: list[Buffer] = []
    body, known = repack_constants(s)
    for n, reduce in enumerate(e for e in subexpressions(body) if isinstance(e, Reduce)):
        made = Accumulator(n, reduce, (t.rows, t.width), (i, v))
        registers += made.registers
        results[reduce] = made.result
        statements += made.statements(env, tile_loops)
    final = substitute(map_expr(body, results.get), env)
    address = substitute(s.stage.address, env)
    statements.append(tile_loops(Store(s.stage.target, (address,), final)))

    total = elements(counts)
    grid = Grid(-(-total // t.threads), t.threads, t.trigger)
    inner = tuple(statements)
    if total % t.threads:
        inner = (If(position < total, inner),)
    number = BLOCK * t.threads + thread_number(t.threads)
    whole = (grid.around([Let(position, number, inner)], registers),)
    inputs, arguments = arguments_of(s.task, whole, known)
    return Kernel(Program(name, inputs, (s.stage.target,), whole), arguments, s.task.outputs)
