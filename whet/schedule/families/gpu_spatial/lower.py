"""A stage with given tile sizes as code of threads (see `match` for its shape)."""

from __future__ import annotations

from collections.abc import Mapping

from whet.core.dtypes import f32
from whet.ir.affine import substitute
from whet.ir.expr import Cast, Expr, Read, Reduce, Var, as_expr, elements
from whet.ir.program import Buffer, If, Program, Stmt, Store
from whet.ir.tensor import Tensor, subexpressions
from whet.schedule.families.gpu_spatial.early import (
    Kept,
    Step,
    in_registers,
    kept_reads,
    reads_of_end,
    unconditional_reads,
)
from whet.schedule.families.gpu_spatial.grid import BLOCK, Grid, thread_number
from whet.schedule.families.gpu_spatial.match import (
    TERMS_WRITTEN_OUT,
    GpuSpatialTiling,
    tile_counts,
    tile_of,
    written_out,
)
from whet.schedule.families.spatial.lower import repack_constants
from whet.schedule.families.spatial.match import Spatial
from whet.schedule.program.access import map_expr, reads_constants_alone
from whet.schedule.program.accumulate import Accumulator
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.loops import arguments_of, loop, split_index, start_of, within_count


def lower_gpu_spatial(s: Spatial, t: GpuSpatialTiling, name: str) -> Kernel:
    """The kernel of the stage with the given tile sizes."""
    return _Writer(s, t).kernel(name)


class _Writer:
    def __init__(self, s: Spatial, t: GpuSpatialTiling) -> None:
        self.s, self.t = s, t
        tile = tile_of(s, t.rows, t.width)
        self.counts = tile_counts(s, tile)
        self.position = Var("position")
        self.i, self.v = Var("i"), Var("v")
        within: dict[Expr, Expr] = {}
        if s.pixels is not None:
            within[s.pixels] = self.i
        if s.vector is not None:
            within[s.vector] = self.v
        self.steps = _steps(s, t, self.i, self.v)
        numbers = split_index(self.position, self.counts)
        self.env: dict[Expr, Expr] = {
            axis: start_of(numbers[count], tile.get(axis, 1), axis.extent)
            + within.get(axis, as_expr(0))
            for axis, count in zip(s.stage.axes, self.counts)
        }

    def kernel(self, name: str) -> Kernel:
        s, t = self.s, self.t
        body, known = repack_constants(s)
        constants = self.constants(body, known)
        body = in_registers(body, constants)
        operands = self.operands(body)
        body = in_registers(body, operands)
        self.registers = [k.buffer for k in (*constants, *operands)]
        places = self.env | {p.axis: p.var for p in self.steps if p.axis not in self.env}
        early = [k.loaded(places) for k in constants]
        code = [k.loaded(places) for k in operands]
        results: dict[Expr, Expr] = {}
        for n, reduce in enumerate(e for e in subexpressions(body) if isinstance(e, Reduce)):
            made = Accumulator(n, reduce, (t.rows, t.width), (self.i, self.v), TERMS_WRITTEN_OUT)
            self.registers += made.registers
            results[reduce] = made.result
            code += made.statements(self.env, self.tile_loops)
        final = substitute(map_expr(body, results.get), self.env)
        *before, store = self.stored(final)
        total = elements(self.counts)
        exact = total % t.threads == 0
        number = BLOCK * t.threads + thread_number(t.threads)
        # Threads that are too many repeat the last tile: a branch around all of it would keep the
        # addresses behind the wait.
        positions = {self.position: within_count(number, total, exact=exact)}
        code += [*before, store if exact else If(number < total, (store,))]
        grid = Grid(-(-total // t.threads), t.threads, t.trigger)
        whole = (grid.around(code, self.registers, early=early, positions=positions),)
        inputs, arguments = arguments_of(s.task, whole, known)
        return Kernel(Program(name, inputs, (s.stage.target,), whole), arguments, s.task.outputs)

    def tile_loops(self, *body: Stmt) -> Stmt:
        vectors = loop(self.v, self.t.width, *body, kind="vector")
        return loop(self.i, self.t.rows, vectors, kind="unroll")

    # ------------------------------------------------------------------------------- operands
    def constants(self, body: Expr, packed: Mapping[Buffer, Tensor]) -> list[Kept]:
        """What can be read before the inputs are there."""
        s = self.s

        def constant(read: Read) -> bool:
            return read.tensor in packed or reads_constants_alone(read, s.task)

        return kept_reads("known", unconditional_reads(body, constant), self.steps, s.outer)

    def operands(self, body: Expr) -> list[Kept]:
        """What is added to sums and the like."""
        if not self.s.stage.reduces:
            return []
        reads = reads_of_end(body, in_memory)
        return kept_reads("operand", reads, self.steps, self.s.outer)

    # -------------------------------------------------------------------------------- results
    def stored(self, final: Expr) -> list[Stmt]:
        """The results in memory: if some of them read it first, all of them in registers before.

        No load may pass a store, as far as compilers know.
        """
        s, at = self.s, (self.i, self.v)
        address = substitute(s.stage.address, self.env)
        reads = (e for e in subexpressions(final) if isinstance(e, Read))
        if self.t.rows == 1 or not any(in_memory(e) for e in reads):
            return [self.tile_loops(Store(s.stage.target, (address,), final))]
        rounded = isinstance(final, Cast) and final.value.dtype is f32  # once, by the store
        value = final.value if rounded and isinstance(final, Cast) else final
        made = Buffer("made", (self.t.rows, self.t.width), value.dtype, scope="register")
        self.registers.append(made)
        result = Cast(made[at], final.dtype) if rounded else made[at]
        return [
            self.tile_loops(Store(made, at, value)),
            self.tile_loops(Store(s.stage.target, (address,), result)),
        ]


def in_memory(read: Read) -> bool:
    return isinstance(read.tensor, Buffer) and read.tensor.scope == "memory"


def _steps(s: Spatial, t: GpuSpatialTiling, i: Var, v: Var) -> list[Step]:
    """The loops of a thread, those of reductions that are written out first."""
    found = [
        Step(axis, Var(f"of_{axis.name}"), axis, axis.extent)
        for reduce in s.stage.reduces
        for axis in written_out(reduce)
    ]
    if s.pixels is not None:
        found.append(Step(s.pixels, i, i, t.rows))
    if s.vector is not None:
        found.append(Step(s.vector, v, v, t.width, "vector"))
    return found
