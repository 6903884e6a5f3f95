"""Scalar arithmetic as C++ text: operators, functions, conversions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whet.codegen.cuda.lines import Lines
from whet.codegen.cuda.support import HALVES, has_code, memory_type, no_code, require_code
from whet.core.dtypes import DType, bf16, bool_, f16, f32, f64, i64, u64

_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARES = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_LIBRARY = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tan": "tan",
    "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf",
    "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc", "abs": "fabs",
    "truncmod": "fmod",
}  # fmt: skip
_BITS = {"bitand": "&", "bitor": "|", "bitxor": "^"}
_SIGNED = {8: "signed char", 16: "short", 32: "int", 64: "long long"}


def literal(value: int | float | bool, dtype: DType) -> str:
    """A number of a type."""
    if dtype is bool_:
        return "true" if value else "false"
    if dtype is f64:
        return _float(float(value), "", "__longlong_as_double(0x{:x}LL)", np.float64, np.uint64)
    if dtype.is_float:
        rounded = float(np.asarray(value, np.float64).astype(dtype.numpy).astype(np.float64))
        return _float(rounded, "f", "__int_as_float(0x{:x})", np.float32, np.uint32)
    number = int(value)
    if dtype is i64 and -(1 << 31) < number < 1 << 31:
        return str(number) if number >= 0 else f"({number})"
    if dtype.bits == 64:
        return f"(({memory_type(dtype)}){number & ((1 << 64) - 1)}ULL)"
    return f"(({memory_type(dtype)}){number})"


def _float(value: float, suffix: str, special: str, kind: type, bits: type) -> str:
    if np.isfinite(value):
        text = f"{value.hex()}{suffix}"
        return f"({text})" if value < 0 else text
    return special.format(int(np.asarray(value, kind).view(bits)))


def rounded(lines: Lines, text: str, dtype: DType) -> str:
    """A value of f32 as one of half precision."""
    return f"{lines.call(f'round_{dtype}')}({text})" if dtype in HALVES else text


def infix(lines: Lines, op: str, dtype: DType, a: str, b: str) -> str:
    """An operator on two values of a type."""
    if op in _COMPARES:
        return f"({a} {_COMPARES[op]} {b})"
    if dtype.is_float and op in _OPERATORS:
        return rounded(lines, f"({a} {_OPERATORS[op]} {b})", dtype)
    if dtype.is_integer and op in ("add", "sub", "mul"):
        # Signed numbers must not overflow in C++, and wrap around here.
        wide = "unsigned long long" if dtype.bits == 64 else "unsigned int"
        return f"({memory_type(dtype)})(({wide}){a} {_OPERATORS[op]} ({wide}){b})"
    return function(lines, op, dtype, [a, b])


def has_reciprocal(by: int | float | bool, dtype: DType) -> bool:
    """Whether a division by a number can be made of products: one that is not near the ends of the
    range."""
    return dtype in (f32, f16, bf16) and 2.0**-20 <= abs(float(by)) <= 2.0**20


def divided(lines: Lines, text: str, by: float, dtype: DType) -> str:
    """A value divided by a number."""
    divisor = np.asarray(by).astype(dtype.numpy).astype(np.float32)
    reciprocal = literal(float(np.float32(1) / divisor), f32)
    if np.frexp(divisor)[0] in (0.5, -0.5):
        return rounded(lines, f"({text} * {reciprocal})", dtype)
    call = f"{lines.call('divide')}({text}, {literal(float(divisor), f32)}, {reciprocal})"
    return rounded(lines, call, dtype)


def function(lines: Lines, name: str, dtype: DType, args: Sequence[str]) -> str:
    """A function of `whet.ir.functions` on values of one type."""
    inner = ", ".join(args)
    if dtype in HALVES:
        result = function(lines, name, f32, args)
        return result if name in ("isnan", "isinf", "not") else rounded(lines, result, dtype)
    if dtype.is_float:
        return _float_function(lines, name, dtype, args)
    match name:
        case "not":
            return f"(!{inner})"
        case "min" | "max" | "truncdiv" | "truncmod" | "floordiv" | "mod":
            require_code(dtype is not bool_ or name in ("min", "max"), f"{name} of {dtype}")
            kind = "bool" if dtype is bool_ else memory_type(dtype)
            return f"{lines.call(name)}<{kind}>({inner})"
        case "floor" | "ceil" | "round" | "trunc":
            return inner
        case "bitand" | "bitor" | "bitxor":
            kind = "bool" if dtype is bool_ else memory_type(dtype)
            return f"({kind})({args[0]} {_BITS[name]} {args[1]})"
    require_code(dtype is not bool_, f"{name} of {dtype}")
    kind = memory_type(dtype)
    match name:
        case "neg":
            wide = "unsigned long long" if dtype.bits == 64 else "unsigned int"
            return f"({kind})(0 - ({wide}){inner})"
        case "abs":
            return f"{lines.call(name)}<{kind}>({inner})" if dtype.kind == "int" else inner
        case "sign" | "pow" | "shiftleft" | "shiftright":
            return f"{lines.call(name)}<{kind}>({inner})"
        case "invert":
            return f"({kind})(~{inner})"
    no_code(f"{name} of {dtype}")


def _float_function(lines: Lines, name: str, dtype: DType, args: Sequence[str]) -> str:
    inner, suffix = ", ".join(args), "f" if dtype is f32 else ""
    match name:
        case "neg":
            return f"(-{inner})"
        case "min" | "max" | "sigmoid":
            return f"{lines.call(f'{name}_{dtype}')}({inner})"
        case "tf32" | "tf32_cut" | "exp_near" | "reciprocal_near":
            require_code(dtype is f32, f"{name} of {dtype}")
            return f"{lines.call(name)}({inner})"
        case "isnan":
            return f"({inner} != {inner})"
        case "isinf":
            return f"(fabs{suffix}({inner}) == {literal(float('inf'), dtype)})"
        case "sign" | "mod" | "pow":
            return f"{lines.call(f'{name}_float')}<{memory_type(dtype)}>({inner})"
        case "floordiv" | "truncdiv":
            rounding = "floor" if name == "floordiv" else "trunc"
            return f"{rounding}{suffix}({args[0]} / {args[1]})"
    if name in _LIBRARY:
        return f"{_LIBRARY[name]}{suffix}({inner})"
    no_code(f"{name} of {dtype}")


def convert(lines: Lines, text: str, source: DType, dtype: DType) -> str:
    """A value as another element type; `whet.core.conversion` says what that means."""
    require_code(has_code(source) and has_code(dtype), f"a cast from {source} to {dtype}")
    if source == dtype:
        return text
    if dtype is bool_:
        return f"({text} != 0)"
    if dtype in HALVES:
        if dtype is f16 and source is f64:
            return f"{lines.call('round_f16_f64')}({text})"
        return rounded(lines, text if source in HALVES else f"(float){text}", dtype)
    if source.is_float and dtype.is_integer:
        through = "to_u64" if dtype is u64 else "to_i64" if dtype.bits >= 32 and dtype.name in (
            "i64", "u32") else "to_i32"  # fmt: skip
        kind = "double" if source is f64 else "float"
        return f"({memory_type(dtype)}){lines.call(through)}<{kind}>({text})"
    return f"({memory_type(dtype)}){text}"


def reinterpret(lines: Lines, text: str, source: DType, dtype: DType) -> str:
    """The bits of a value as another element type of the same width."""
    if bool_ in (source, dtype):
        return convert(lines, text, source, dtype)
    bits, signed = text, f"({_SIGNED[dtype.bits]})"
    if source in HALVES:
        bits = f"{lines.call(f'to_{source}')}({text})"
    elif source is f32:
        bits = f"__float_as_int({text})"
    elif source is f64:
        bits = f"__double_as_longlong({text})"
    if dtype in (f16, bf16):
        return f"{lines.call(f'from_{dtype}')}((unsigned short){bits})"
    if dtype is f32:
        return f"__int_as_float((int){bits})"
    if dtype is f64:
        return f"__longlong_as_double((long long){bits})"
    return f"({memory_type(dtype)}){signed}{bits}"
