"""Conversions between element types.

Half precision is reached through f32, without a second rounding: what LLVM would call for f64
lives in no C library.
"""

from __future__ import annotations

from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.halves import narrow, widen
from whet.codegen.llvm.operand import HALVES, Operand, literal, llvm_type
from whet.codegen.llvm.support import has_code, require_code
from whet.codegen.llvm.truncation import truncate
from whet.core.dtypes import DType, bool_, f16, f32, f64, i32


def convert(f: FunctionWriter, a: Operand, dtype: DType, *, limited: bool = False) -> Operand:
    """The operand as another element type; see `truncate` for floats that are `limited`."""
    source = a.dtype
    require_code(has_code(dtype) and has_code(source), f"a cast from {source} to {dtype}")
    if source == dtype:
        return a
    if dtype is bool_:
        return f.compare("une" if source.is_float else "ne", _widened(f, a), _zero(f, a))
    if source.is_float and dtype.is_float:
        return _between_floats(f, a, dtype)
    if dtype in HALVES:
        return convert(f, convert(f, a, f32), dtype)
    if source is bool_:
        return _cast(f, "uitofp" if dtype.is_float else "zext", a, dtype)
    if source.is_float:
        return convert(f, truncate(f, _widened(f, a), dtype, limited=limited), dtype)
    if dtype.is_float:
        return _cast(f, "sitofp" if source.kind == "int" else "uitofp", a, dtype)
    if dtype.bits == source.bits:
        return Operand(a.text, dtype, a.lanes)
    if dtype.bits < source.bits:
        return _truncated(f, a, dtype)
    return _cast(f, "sext" if source.kind == "int" else "zext", a, dtype)


def reinterpret(f: FunctionWriter, a: Operand, dtype: DType) -> Operand:
    """The bits of the operand as another element type of the same width.

    A truth value is a byte in memory, 0 or 1, and a bit in a register.
    """
    require_code(has_code(dtype) and has_code(a.dtype), f"the bits of {a.dtype} as {dtype}")
    if bool_ in (dtype, a.dtype):
        return convert(f, a, dtype)
    if a.type == llvm_type(dtype, a.lanes):
        return Operand(a.text, dtype, a.lanes)
    return _cast(f, "bitcast", a, dtype)


def _cast(f: FunctionWriter, opcode: str, a: Operand, dtype: DType) -> Operand:
    return f.emit(f"{opcode} {a} to {llvm_type(dtype, a.lanes)}", dtype, a.lanes)


def _truncated(f: FunctionWriter, a: Operand, dtype: DType) -> Operand:
    """The low bits of an integer.

    LLVM's code generator for aarch64 ends the process at three lanes of i64 that become i8.
    """
    if a.lanes == 3 and a.dtype.bits == 64 and dtype.bits == 8:
        return f.pack([_cast(f, "trunc", f.extract(a, n), dtype) for n in range(a.lanes)])
    return _cast(f, "trunc", a, dtype)


def _zero(f: FunctionWriter, a: Operand) -> Operand:
    return literal(0, f32 if a.dtype in HALVES else a.dtype, a.lanes)


def _widened(f: FunctionWriter, a: Operand) -> Operand:
    """Half precision as f32, all else as it is."""
    return convert(f, a, f32) if a.dtype in HALVES else a


def _between_floats(f: FunctionWriter, a: Operand, dtype: DType) -> Operand:
    if a.dtype in HALVES:
        return convert(f, widen(f, a), dtype)
    if dtype is f16 and a.dtype is f64:
        return narrow(f, _round_to_odd(f, a), f16)
    if dtype in HALVES:
        return narrow(f, convert(f, a, f32), dtype)
    return _cast(f, "fpext" if dtype.bits > a.dtype.bits else "fptrunc", a, dtype)


def _round_to_odd(f: FunctionWriter, a: Operand) -> Operand:
    """f64 as f32 with the last bit set if anything was lost, so that rounding again is right."""
    lanes = a.lanes
    near = _cast(f, "fptrunc", a, f32)
    back = _cast(f, "fpext", near, f64)
    bits = _cast(f, "bitcast", near, i32)
    away = f.compare("ogt", f.intrinsic("fabs", back), f.intrinsic("fabs", a))
    toward = f.choose(away, f.binary("sub", bits, literal(1, i32, lanes)), bits)
    odd = f.binary("or", toward, literal(1, i32, lanes))
    lost = f.compare("one", back, a)
    return _cast(f, "bitcast", f.choose(lost, odd, bits), f32)
