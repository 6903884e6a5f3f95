"""Operands of LLVM instructions: text, element type and number of lanes."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np

from whet.core.dtypes import DType, bf16, f16

HALVES = (f16, bf16)
NOT_A_NUMBER = "0x7FF8000000000000"
"""NaN as a literal."""
_NAMES = {"f64": "double", "f32": "float", "bool": "i1"}


def llvm_type(dtype: DType, lanes: int = 0) -> str:
    """`float`, `<8 x float>`, `i1` (truth values live in memory as i8).

    Half precision is `i16`, its bits, everywhere but inside conversions: for a processor
    without the type, LLVM moves, selects and shuffles it through library functions that may
    not exist.
    """
    name = _NAMES.get(dtype.name) or f"i{dtype.bits}"
    return f"<{lanes} x {name}>" if lanes else name


def memory_type(dtype: DType, lanes: int = 0) -> str:
    """The type as it lies in memory."""
    if dtype.name == "bool":
        return f"<{lanes} x i8>" if lanes else "i8"
    return llvm_type(dtype, lanes)


@dataclass(frozen=True, slots=True)
class Operand:
    """A value in the IR; `lanes` is 0 for scalars."""

    text: str
    dtype: DType
    lanes: int = 0

    @property
    def type(self) -> str:
        return llvm_type(self.dtype, self.lanes)

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def literal(value: float | int | bool, dtype: DType, lanes: int = 0) -> Operand:
    """A constant, splatted over the lanes."""
    if dtype.name == "bool":
        text = "true" if value else "false"
    elif dtype.is_float:
        text = _float_literal(float(value), dtype)
    else:
        text = str(int(value))
    if lanes:
        text = f"splat ({llvm_type(dtype)} {text})"
    return Operand(text, dtype, lanes)


def is_number(operand: Operand) -> bool:
    """True for a constant that is not NaN."""
    return not operand.text.startswith("%") and NOT_A_NUMBER not in operand.text


def _float_literal(value: float, dtype: DType) -> str:
    """Hexadecimal form, which is exact; the bits of half precision."""
    if dtype in HALVES:
        with np.errstate(over="ignore"):
            return str(int(np.asarray(value).astype(dtype.numpy).view(np.uint16)))
    rounded = float(np.float32(value)) if dtype.name == "f32" else value
    if math.isnan(rounded):
        return NOT_A_NUMBER
    return "0x" + struct.pack(">d", rounded).hex().upper()
