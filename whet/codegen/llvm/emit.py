"""Loop programs to text IR.

    for k in 64:                                loop7:
      unroll i in 2:                              %k = phi i64 ...
        vector j in 8:                  ->        %v9 = load float, ptr ...       (A[0, k])
          acc[i, j] = acc[i, j] + A[i, k] * B[k, j]   %v12 = load <8 x float>, ptr ... (B[k, 0..7])
                                                  %v13 = call <8 x float> @llvm.fmuladd...

Unrolled loops are expanded here, a vector loop turns its body into operations on whole vectors
of exactly its extent, and a parallel loop becomes a function of its own that the thread pool
calls with a range of iterations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from whet.codegen.llvm.bindings import Bindings
from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.module import Module
from whet.codegen.llvm.operand import Operand, literal
from whet.codegen.llvm.storage import Storage
from whet.codegen.llvm.support import no_code, require_code
from whet.codegen.llvm.transpose import transpose_tile
from whet.codegen.llvm.values import ValueWriter
from whet.core.dtypes import bool_, i64
from whet.ir.affine import interval
from whet.ir.expr import Const, Expr, Var, const
from whet.ir.program import (
    Align,
    Allocate,
    Buffer,
    If,
    Let,
    Loop,
    Prefetch,
    Program,
    Stmt,
    Store,
    Transpose,
    While,
)

PARALLEL = "whet_parallel"
"""void whet_parallel(void (*body)(ptr context, i64 begin, i64 end), ptr context, i64 n)"""


def emit_program(
    program: Program, module: Module, limits: Mapping[Buffer, int] | None = None
) -> None:
    """Add `void @NAME(ptr table)` to the module.

    The table holds the base addresses of inputs, outputs and workspace, in this order.  With
    `limits`, every access is checked at run time; they give the number of elements behind
    flat parameters, which may reach into the border around a value.

    If the module then `has_status`, one more entry is the address of an i64 that becomes 1
    when an index that was read from memory is outside its buffer.
    """
    parameters = (*program.inputs, *program.outputs, *program.workspace)
    slots = {buffer: n for n, buffer in enumerate(parameters)}
    frozen = frozenset(program.inputs)
    writer = _StatementWriter(module, program.name, "ptr noalias %table", slots, frozen, limits,
                              Bindings())  # fmt: skip
    writer.block(program.body)
    writer.finish()


class _StatementWriter:
    """Writes the statements of one function."""

    def __init__(
        self,
        module: Module,
        name: str,
        params: str,
        slots: Mapping[Buffer, int],
        frozen: frozenset[Buffer],
        limits: Mapping[Buffer, int] | None,
        bindings: Bindings,
    ) -> None:
        self.module, self.slots, self.frozen, self.limits = module, slots, frozen, limits
        self.function = FunctionWriter(module, name, params)
        self.bindings = bindings
        storage = Storage(self.function, slots, frozen)
        self.values = ValueWriter(self.function, bindings, storage, limits)
        self.outlined = 0

    def block(self, body: Sequence[Stmt]) -> None:
        for stmt in body:
            self.stmt(stmt)

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Store():
                self.values.store(stmt.buffer, stmt.indices, stmt.value, stream=stmt.stream)
            case Loop(kind="unroll", var=var, body=body):
                for _ in self.bindings.each(var, self.extent(stmt)):
                    self.block(body)
            case Loop(kind="vector", var=var, body=body):
                with self.values.vector(var, self.extent(stmt)):
                    self.block(body)
            case Loop(kind="parallel"):
                self.parallel(stmt)
            case Loop():
                self.loop(stmt, self.bindings.resolve(stmt.extent))
            case While(condition=condition, body=body):
                self.repeat(condition, body)
            case If(condition=condition, then=then, other=other):
                self.choice(self.bindings.resolve(condition), then, other)
            case Let():
                self.let(stmt)
            case Align():
                self.align(stmt)
            case Allocate(buffer=buffer, body=body):
                self.values.storage.allocate(buffer)
                self.block(body)
            case Prefetch(buffer=buffer, indices=indices):
                self.values.prefetch(buffer, indices)
            case Transpose(tile=tile):
                transpose_tile(self.function, self.values.storage, tile)
            case _:
                raise AssertionError(type(stmt))

    def extent(self, stmt: Loop) -> int:
        """The extent of a loop that cannot do without knowing it."""
        extent = self.bindings.resolve(stmt.extent)
        if not isinstance(extent, Const):
            no_code(f"the loop extent {extent}, which is not a constant")
        return int(extent.value)

    def loop(self, stmt: Loop, extent: Expr) -> None:
        if isinstance(extent, Const):
            self.static_loop(stmt, int(extent.value))
        else:
            self.dynamic_loop(stmt, extent)

    def static_loop(self, stmt: Loop, extent: int) -> None:
        if extent == 0:
            return
        if extent == 1:
            for _ in self.bindings.each(stmt.var, extent):
                self.block(stmt.body)
            return
        counter = self.counter(stmt)
        self.function.open_loop()
        with self.values.counter(stmt.var, counter, extent):
            self.block(stmt.body)
        self.function.close_loop(counter, "0", str(extent))

    def dynamic_loop(self, stmt: Loop, extent: Expr) -> None:
        """A loop whose extent is known at run time; it may be zero."""
        bounds = interval(extent, self.values.extents)
        end = self.values.evaluate(extent)
        some = self.function.compare("sgt", end, literal(0, i64))
        self.function.open_branch()
        counter = self.counter(stmt)
        self.function.open_loop()
        with self.values.counter(stmt.var, counter, bounds and bounds[1]):
            self.block(stmt.body)
        self.function.close_loop(counter, "0", end.text)
        self.function.close_branch(some)

    def counter(self, stmt: Loop) -> str:
        return self.function.fresh(re.sub(r"\W", "_", stmt.var.name))

    def repeat(self, condition: Expr, body: Sequence[Stmt]) -> None:
        self.function.open_while()
        decided = self.values.evaluate(condition)
        self.function.open_branch()
        self.block(body)
        self.function.close_while(decided)

    def choice(self, condition: Expr, then: Sequence[Stmt], other: Sequence[Stmt]) -> None:
        if isinstance(condition, Const):
            self.block(then if condition.value else other)
            return
        run = self.values.lanes_where(condition)
        if run is not None and not other:
            self.in_some_lanes(then, condition, run)
            return
        decided = self.values.evaluate(condition)
        require_code(not decided.lanes, "a branch that depends on the lane of a vector")
        # Negated before either side runs, because `then` may change what the condition reads.
        negated = self.function.binary("xor", decided, literal(True, bool_)) if other else None
        self.branch(decided, then)
        if negated is not None:
            self.branch(negated, other)

    def in_some_lanes(self, body: Sequence[Stmt], condition: Expr, run: range) -> None:
        """Stores that take place in some lanes of the vector loop around."""
        if not run:
            return
        for stmt in body:
            require_code(isinstance(stmt, Store), "a branch that depends on the lane of a vector")
            assert isinstance(stmt, Store)
            self.values.store_some(stmt.buffer, stmt.indices, stmt.value, condition, run)

    def branch(self, decided: Operand, body: Sequence[Stmt]) -> None:
        self.function.open_branch()
        self.block(body)
        self.function.close_branch(decided)

    def let(self, stmt: Let) -> None:
        """A name of its own for every binding: addresses are remembered by variable."""
        var = Var(self.function.fresh(f"{stmt.var.name}.")[1:], stmt.var.dtype)
        value = self.bindings.resolve(stmt.value)
        self.values.bind(var, self.values.evaluate(value), value)
        with self.bindings.bound(stmt.var, var):
            self.block(stmt.body)

    def align(self, stmt: Align) -> None:
        """Like `let`, with a value that is below the number of lanes."""
        var = Var(self.function.fresh(f"{stmt.var.name}.")[1:], stmt.var.dtype)
        self.values.bind(var, self.values.lead(stmt.buffer, stmt.lanes), const(0, i64))
        self.values.extents[var] = stmt.lanes
        with self.bindings.bound(stmt.var, var):
            self.block(stmt.body)

    def finish(self) -> None:
        """The end of the function: what went past the caches is visible to all threads then."""
        if self.values.streams:
            self.function.line("fence seq_cst")
        self.function.finish()

    def parallel(self, stmt: Loop) -> None:
        """The body as a function over a range of iterations, handed to the thread pool."""
        extent = self.extent(stmt)
        if extent == 0:
            return
        self.outlined += 1
        name = f"{self.function.name}.p{self.outlined}"
        params = "ptr noalias %table, i64 %begin, i64 %end"
        inner = _StatementWriter(self.module, name, params, self.slots, self.frozen, self.limits,
                                 self.bindings)  # fmt: skip
        counter = inner.counter(stmt)
        inner.function.open_loop()
        with inner.values.counter(stmt.var, counter, extent):
            inner.block(stmt.body)
        inner.function.close_loop(counter, "%begin", "%end")
        inner.finish()
        self.module.declare(PARALLEL, "void", "ptr", "ptr", "i64")
        self.function.line(f"call void @{PARALLEL}(ptr @{name}, ptr %table, i64 {extent})")
