"""Expressions to instructions.

Inside a vector loop an expression that depends on the loop's variable becomes a vector.  Integers
and conditions are looked at with what unrolled loops make of them; all else is written from the
expression as it stands in the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whet.codegen.llvm import conversion, mathlib
from whet.codegen.llvm.bindings import Bindings
from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.masks import MaskWriter
from whet.codegen.llvm.operand import Operand, literal, llvm_type
from whet.codegen.llvm.storage import Storage
from whet.codegen.llvm.support import no_code, require_code
from whet.codegen.llvm.truncation import is_limited
from whet.core.dtypes import bool_, compute_dtype, f32, i64, integer_range
from whet.ir.affine import substitute
from whet.ir.expr import (
    Axis,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Reinterpret,
    Select,
    Var,
    as_expr,
    cast,
)
from whet.ir.program import Buffer

_INT_OPCODES = {"add": "add", "sub": "sub", "mul": "mul"}
_FLOAT_OPCODES = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARES = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


class ValueWriter(MaskWriter):
    """Writes the values of expressions."""

    def __init__(
        self,
        function: FunctionWriter,
        bindings: Bindings,
        storage: Storage,
        limits: Mapping[Buffer, int] | None,
    ) -> None:
        super().__init__(function, bindings, storage, limits)
        self._memo: dict[tuple[Expr, bool], Operand] = {}

    def evaluate(self, e: Expr) -> Operand:
        """The value of an expression of a new statement: memory may have changed."""
        self._memo = {}
        return self.value(e)

    # -------------------------------------------------------------------------- expressions
    def value(self, e: Expr) -> Operand:
        """The value of an expression, written once per statement.

        What was written unconditionally counts under conditions, too.
        """
        found = self._memo.get((e, False))
        if found is None and self.guarded:
            found = self._memo.get((e, True))
        if found is None:
            found = self._memo[e, self.guarded] = self.write(e)
        return found

    def write(self, e: Expr) -> Operand:
        if isinstance(e, Read) and isinstance(e.tensor, Buffer):
            return self.load(e.tensor, e.indices)
        if isinstance(e, Var) or _folds(e):
            e = self.bindings.resolve(e)
        if e in self.names:
            return self.names[e]
        if e is self.lane_var:
            lanes = ", ".join(f"i64 {n}" for n in range(self.lanes))
            return Operand(f"<{lanes}>", i64, self.lanes)
        if isinstance(e, Const):
            return literal(e.value, e.dtype)
        if self.is_index(e) and not self.is_vector(e):
            return self.full_index(e)
        match e:
            case Read(tensor=Buffer() as buffer, indices=indices):
                return self.load(buffer, indices)  # all that is left of a choice
            case Binary():
                return self.infix(e)
            case Select():
                return self.choice(e)
            case Cast(value=inner, dtype=dtype):
                limited = dtype.is_integer and is_limited(inner, *integer_range(dtype))
                return conversion.convert(self.f, self.value(inner), dtype, limited=limited)
            case Reinterpret(value=inner, dtype=dtype):
                return conversion.reinterpret(self.f, self.value(inner), dtype)
            case Call(name=name, args=args):
                return mathlib.call(self.f, name, [self.value(a) for a in args])
            case Reduce(kind=kind, axes=(axis,), value=Read(tensor=Buffer() as buffer, indices=at)):
                return self.across_lanes(kind, axis, buffer, at)
        no_code(f"'{e}'")

    def choice(self, e: Select) -> Operand:
        """One of two values; of lanes that do not count, memory is left alone."""
        condition = self.bindings.resolve(e.condition)
        if isinstance(condition, Const):
            return self.value(e.then if condition.value else e.other)
        run = self.lanes_where(condition)
        if run is not None and len(run) == self.lanes:
            return self.value(e.then)
        if run is not None and isinstance(e.then, Read) and isinstance(e.other, Const):
            masked = self.masked_load(e.then, e.other, run)
            if masked is not None:
                return masked
        chosen = self.value(condition)
        return self.f.choose(chosen, self.under_condition(e.then), self.under_condition(e.other))

    def under_condition(self, e: Expr) -> Operand:
        """A value that counts only sometimes: its reads are kept inside their buffers."""
        outer, self.guarded = self.guarded, True
        result = self.value(e)
        self.guarded = outer
        return result

    def infix(self, e: Binary) -> Operand:
        op, dtype = e.op, e.left.dtype
        if op in ("and", "or"):
            return self.f.binary(op, self.value(e.left), self.under_condition(e.right))
        if compute_dtype(dtype) != dtype:
            return self.half_precision(e)
        if op == "add" and dtype.is_float:
            fused = self.multiply_add(e)
            if fused is not None:
                return fused
        a, b = self.value(e.left), self.value(e.right)
        if op in _COMPARES:
            if dtype.is_float:
                prefix = "u" if op == "ne" else "o"
            else:
                prefix = "" if op in ("eq", "ne") else ("s" if dtype.kind == "int" else "u")
            return self.f.compare(prefix + op, a, b)
        if dtype.is_float and op in _FLOAT_OPCODES:
            return self.f.binary(_FLOAT_OPCODES[op], a, b)
        if dtype.is_integer and op in _INT_OPCODES:
            return self.f.binary(_INT_OPCODES[op], a, b)
        return mathlib.call(self.f, op, [a, b])

    def half_precision(self, e: Binary) -> Operand:
        """Arithmetic and comparison of half precision: in f32, rounded once."""
        wide = Binary(e.op, cast(e.left, f32), cast(e.right, f32))
        return conversion.convert(self.f, self.value(wide), e.dtype)

    def multiply_add(self, e: Binary) -> Operand | None:
        """a * b + c in one rounding where the machine can, as every BLAS does."""
        for product, addend in ((e.right, e.left), (e.left, e.right)):
            if isinstance(product, Binary) and product.op == "mul":
                operands = [self.value(x) for x in (product.left, product.right, addend)]
                lanes = max(x.lanes for x in operands)
                return self.f.intrinsic("fmuladd", *(self.f.splat(x, lanes) for x in operands))
        return None

    def across_lanes(self, kind: str, axis: Axis, buffer: Buffer, at: Sequence[Expr]) -> Operand:
        """The reduction of one vector register to a scalar."""
        require_code(buffer.scope == "register", f"a {kind} inside an expression")
        first = tuple(substitute(i, {axis: as_expr(0)}) for i in at)
        position = self.bindings.address(buffer, first).constant
        slot = self.storage.register(buffer, position, axis.extent)
        vector = self.f.emit(
            f"load {llvm_type(buffer.dtype, axis.extent)}, ptr {slot}", buffer.dtype, axis.extent
        )
        return mathlib.reduce_lanes(self.f, kind, vector)


def _folds(e: Expr) -> bool:
    """True for what may become a constant when loops are unrolled: integers, conditions."""
    if isinstance(e, Cast):
        return e.value.dtype is i64
    return e.dtype is i64 or e.dtype is bool_
