"""f16 and bf16 to and from f32, on the bits that stand for them in the IR.

Numbers are rounded to the nearest, ties to the even one, and a NaN stays one.  Integer
instructions do it on every processor.  f16 has instructions of its own on most; those for bf16
take subnormal numbers for zero, so they are left alone.
"""

from __future__ import annotations

from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.operand import Operand, literal, llvm_type
from whet.core.dtypes import DType, bf16, f16, f32, i16, i32

_SMALLEST_NORMAL_F16 = 2.0**-14
_FIRST_TOO_LARGE_FOR_F16 = 65536.0
_MOVED_EXPONENT = (127 - 15) << 23
"""The difference of the biases of f32 and f16, where the exponent of an f32 is."""


def widen(f: FunctionWriter, a: Operand) -> Operand:
    """An f16 or bf16 as f32, which holds all of them."""
    lanes = a.lanes
    if a.dtype is bf16:
        wide = _cast(f, "zext", a, i32)
        return _as_f32(f, f.binary("shl", wide, _int(16, lanes)))
    if f.module.converts_f16:
        half = f.emit(f"bitcast {a} to {_half(lanes)}", f16, lanes)
        return f.emit(f"fpext {_half(lanes)} {half.text} to {llvm_type(f32, lanes)}", f32, lanes)
    return _widened_f16(f, a)


def narrow(f: FunctionWriter, a: Operand, dtype: DType) -> Operand:
    """An f32 rounded to f16 or bf16."""
    lanes = a.lanes
    if dtype is bf16:
        bits = _rounded_to_bf16(f, a)
    elif f.module.converts_f16:
        half = f.emit(f"fptrunc {a} to {_half(lanes)}", f16, lanes)
        text = f"bitcast {_half(lanes)} {half.text} to {llvm_type(f16, lanes)}"
        return f.emit(text, f16, lanes)
    else:
        bits = _rounded_to_f16(f, a)
    return Operand(_cast(f, "trunc", bits, i16).text, dtype, lanes)


def _widened_f16(f: FunctionWriter, a: Operand) -> Operand:
    """The exponent moved to that of f32; the subnormal ones get theirs from a subtraction."""
    lanes = a.lanes
    bits = _cast(f, "zext", a, i32)
    sign = f.binary("shl", f.binary("and", bits, _int(0x8000, lanes)), _int(16, lanes))
    number = f.binary("shl", f.binary("and", bits, _int(0x7FFF, lanes)), _int(13, lanes))
    normal = f.binary("add", number, _int(_MOVED_EXPONENT, lanes))
    beyond = f.binary("add", number, _int(2 * _MOVED_EXPONENT, lanes))  # infinity and NaN
    # As the fraction of a number with the smallest exponent, less the one in front of it.
    small = literal(_SMALLEST_NORMAL_F16, f32, lanes)
    behind_one = f.binary("add", number, _bits(f, small))
    subnormal = _bits(f, f.binary("fsub", _as_f32(f, behind_one), small))
    is_beyond = f.compare("uge", number, _int(0x7C00 << 13, lanes))
    is_subnormal = f.compare("ult", number, _int(0x0400 << 13, lanes))
    chosen = f.choose(is_beyond, beyond, f.choose(is_subnormal, subnormal, normal))
    return _as_f32(f, f.binary("or", sign, chosen))


def _rounded_to_f16(f: FunctionWriter, a: Operand) -> Operand:
    """The bits of the nearest f16, in i32."""
    lanes = a.lanes
    bits = _bits(f, a)
    sign = f.binary("and", f.binary("lshr", bits, _int(16, lanes)), _int(0x8000, lanes))
    number = f.binary("and", bits, _int(0x7FFFFFFF, lanes))
    rounded = f.binary("add", number, _to_nearest(f, number, 13))
    normal = f.binary("lshr", f.binary("sub", rounded, _int(_MOVED_EXPONENT, lanes)),
                      _int(13, lanes))  # fmt: skip
    # The last bit of a number near 0.5 is worth as much as that of a subnormal f16.
    half = literal(0.5, f32, lanes)
    subnormal = f.binary("sub", _bits(f, f.binary("fadd", _as_f32(f, number), half)),
                         _bits(f, half))  # fmt: skip
    payload = f.binary("and", f.binary("lshr", number, _int(13, lanes)), _int(0x1FF, lanes))
    nan = f.binary("or", payload, _int(0x7E00, lanes))
    infinity = _int(0x7C00, lanes)
    size = _as_f32(f, number)
    is_subnormal = f.compare("olt", size, literal(_SMALLEST_NORMAL_F16, f32, lanes))
    is_beyond = f.compare("oge", size, literal(_FIRST_TOO_LARGE_FOR_F16, f32, lanes))
    chosen = f.choose(is_subnormal, subnormal, f.choose(is_beyond, infinity, normal))
    return f.binary("or", sign, f.choose(f.compare("uno", a, a), nan, chosen))


def _rounded_to_bf16(f: FunctionWriter, a: Operand) -> Operand:
    """The bits of the nearest bf16, in i32."""
    lanes = a.lanes
    bits = _bits(f, a)
    rounded = f.binary("add", bits, _to_nearest(f, bits, 16))
    quiet = f.binary("or", bits, _int(0x400000, lanes))
    chosen = f.choose(f.compare("uno", a, a), quiet, rounded)
    return f.binary("lshr", chosen, _int(16, lanes))


def _to_nearest(f: FunctionWriter, bits: Operand, dropped: int) -> Operand:
    """What to add before the last bits are dropped: less than a half, and one if the rest is
    odd."""
    lanes = bits.lanes
    last = f.binary("and", f.binary("lshr", bits, _int(dropped, lanes)), _int(1, lanes))
    return f.binary("add", last, _int((1 << dropped - 1) - 1, lanes))


def _half(lanes: int) -> str:
    return f"<{lanes} x half>" if lanes else "half"


def _int(value: int, lanes: int) -> Operand:
    return literal(value, i32, lanes)


def _bits(f: FunctionWriter, a: Operand) -> Operand:
    return _cast(f, "bitcast", a, i32)


def _as_f32(f: FunctionWriter, a: Operand) -> Operand:
    return _cast(f, "bitcast", a, f32)


def _cast(f: FunctionWriter, opcode: str, a: Operand, dtype: DType) -> Operand:
    return f.emit(f"{opcode} {a} to {llvm_type(dtype, a.lanes)}", dtype, a.lanes)
