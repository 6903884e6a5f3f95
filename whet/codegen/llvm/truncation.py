"""Floats to integers, toward zero, with the meaning that `core.conversion` gives to all values."""

from __future__ import annotations

from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.operand import Operand, literal, llvm_type
from whet.core.conversion import converted_through
from whet.core.dtypes import DType, u64
from whet.ir.expr import Call, Const, Expr


def truncate(f: FunctionWriter, a: Operand, dtype: DType, *, limited: bool = False) -> Operand:
    """A number of f32 or f64 as an integer of a type that is at least as wide as `dtype`.

    One that is `limited` to values of a narrow type, or NaN, fits anyway.
    """
    through = converted_through(dtype)
    if f.module.truncates and a.text.startswith("%") and dtype != u64:
        # LLVM leaves open what becomes of a number that does not fit; instructions do not.
        return f.emit(f"freeze {_signed(f, a, through)}", through, a.lanes)
    bound = float(1 << (through.bits - 1))
    if limited and dtype.bits < through.bits:
        ordered = f.compare("ord", a, a)
        return _signed(f, f.choose(ordered, a, literal(0, a.dtype, a.lanes)), through)
    fits = f.compare("olt", f.intrinsic("fabs", a), literal(bound, a.dtype, a.lanes))
    whole = _signed(f, f.choose(fits, a, literal(-bound, a.dtype, a.lanes)), through)
    return _with_upper_half(f, a, bound, whole) if dtype == u64 else whole


def is_limited(e: Expr, low: int, high: int) -> bool:
    """Whether a float is kept within limits: min(max(x, 0.0), 255.0)."""
    limits: dict[str, float] = {}
    while isinstance(e, Call) and e.name in ("min", "max") and isinstance(e.args[1], Const):
        limits.setdefault(e.name, float(e.args[1].value))
        e = e.args[0]
    return "min" in limits and "max" in limits and low <= limits["max"] <= limits["min"] <= high


def _signed(f: FunctionWriter, a: Operand, dtype: DType) -> Operand:
    return f.emit(f"fptosi {a} to {llvm_type(dtype, a.lanes)}", dtype, a.lanes)


def _with_upper_half(f: FunctionWriter, a: Operand, bound: float, whole: Operand) -> Operand:
    """The integer, or that of a number from `bound` to twice as much."""
    above = f.compare("oge", a, literal(bound, a.dtype, a.lanes))
    below = f.compare("olt", a, literal(2 * bound, a.dtype, a.lanes))
    upper = f.binary("and", above, below)
    safe = f.choose(upper, a, literal(bound, a.dtype, a.lanes))
    high = f.emit(f"fptoui {safe} to {llvm_type(u64, a.lanes)}", u64, a.lanes)
    return f.choose(upper, high, Operand(whole.text, u64, whole.lanes))
