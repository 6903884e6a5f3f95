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

from collections.abc import Mapping, Sequence

from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.module import Module
from whet.codegen.llvm.values import Storage, ValueWriter
from whet.core.errors import check
from whet.ir.expr import Const, Expr, call, const
from whet.ir.program import (
    Allocate,
    Buffer,
    If,
    Let,
    Loop,
    Program,
    Stmt,
    Store,
    substitute_block,
)

PARALLEL = "whet_parallel"
"""void whet_parallel(void (*body)(ptr context, i64 begin, i64 end), ptr context, i64 n)"""


def emit_program(program: Program, module: Module) -> None:
    """Add `void @NAME(ptr table)` to the module.

    The table holds the base addresses of inputs, outputs and workspace, in this order.
    """
    parameters = (*program.inputs, *program.outputs, *program.workspace)
    slots = {buffer: n for n, buffer in enumerate(parameters)}
    frozen = frozenset(program.inputs)
    writer = _StatementWriter(module, program.name, "ptr noalias %table", slots, frozen)
    writer.block(program.body)
    writer.function.finish()


class _StatementWriter:
    """Writes the statements of one function."""

    def __init__(
        self,
        module: Module,
        name: str,
        params: str,
        slots: Mapping[Buffer, int],
        frozen: frozenset[Buffer],
    ) -> None:
        self.module, self.slots, self.frozen = module, slots, frozen
        self.function = FunctionWriter(module, name, params)
        self.values = ValueWriter(self.function, Storage(self.function, slots, frozen))
        self.outlined = 0

    def block(self, body: Sequence[Stmt]) -> None:
        for stmt in body:
            self.stmt(stmt)

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Store():
                self.values.store(stmt.buffer, stmt.indices, stmt.value)
            case Loop(kind="unroll", var=var, body=body):
                for step in range(_static(stmt.extent)):
                    self.block(substitute_block(body, {var: const(step, var.dtype)}))
            case Loop(kind="vector", var=var, body=body):
                with self.values.vector(var, _static(stmt.extent)):
                    self.block(body)
            case Loop(kind="parallel"):
                self.parallel(stmt)
            case Loop():
                self.loop(stmt)
            case If(condition=condition, then=then, other=other):
                self.branch(condition, then)
                if other:
                    self.branch(_negated(condition), other)
            case Let(var=var, value=value, body=body):
                self.values.bind(var, self.values.value(value))
                self.block(body)
            case Allocate(buffer=buffer, body=body):
                self.values.storage.allocate(buffer)
                self.block(body)
            case _:
                raise AssertionError(type(stmt))

    def loop(self, stmt: Loop) -> None:
        extent = _static(stmt.extent)
        if extent == 0:
            return
        if extent == 1:
            self.block(substitute_block(stmt.body, {stmt.var: const(0, stmt.var.dtype)}))
            return
        counter = self.function.fresh(stmt.var.name.replace(".", "_"))
        self.function.open_loop()
        with self.values.counter(stmt.var, counter, extent):
            self.block(stmt.body)
        self.function.close_loop(counter, "0", str(extent))

    def branch(self, condition: Expr, body: Sequence[Stmt]) -> None:
        decided = self.values.value(condition)
        if isinstance(condition, Const):
            if condition.value:
                self.block(body)
            return
        check(not decided.lanes, "WH1301", "a branch cannot depend on the lane of a vector")
        self.function.open_branch()
        self.block(body)
        self.function.close_branch(decided)

    def parallel(self, stmt: Loop) -> None:
        """The body as a function over a range of iterations, handed to the thread pool."""
        extent = _static(stmt.extent)
        self.outlined += 1
        name = f"{self.function.name}.p{self.outlined}"
        inner = _StatementWriter(
            self.module, name, "ptr noalias %table, i64 %begin, i64 %end", self.slots, self.frozen
        )
        counter = inner.function.fresh(stmt.var.name.replace(".", "_"))
        inner.function.open_loop()
        with inner.values.counter(stmt.var, counter, extent):
            inner.block(stmt.body)
        inner.function.close_loop(counter, "%begin", "%end")
        inner.function.finish()
        self.module.declare(PARALLEL, "void", "ptr", "ptr", "i64")
        self.function.line(f"call void @{PARALLEL}(ptr @{name}, ptr %table, i64 {extent})")


def _static(extent: Expr) -> int:
    check(isinstance(extent, Const), "WH1301", f"the loop extent {extent} is not a constant")
    assert isinstance(extent, Const)
    return int(extent.value)


def _negated(condition: Expr) -> Expr:
    return call("not", condition)
