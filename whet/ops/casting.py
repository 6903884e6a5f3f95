"""Conversion between element types: of values (`cast`) and of bits (`bitcast`)."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np

from whet.core.conversion import convert_array
from whet.core.dtypes import (
    ALL,
    DType,
    bool_,
    dtype_of,
    f8e4m3fn,
    f8e4m3fnuz,
    f8e5m2,
    f8e5m2fnuz,
    f8e8m0,
    f16,
    f32,
    f64,
    i4,
    i32,
    i64,
    u4,
    u8,
    u32,
)
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr, call, cast, const, reinterpret, select
from whet.ops.base import NoAlgebra, Sample, law, operator, require
from whet.ops.shared.elementwise import Elementwise

Rounding = Literal["up", "down", "nearest"]

LARGEST = {f8e4m3fn: 448.0, f8e4m3fnuz: 240.0, f8e5m2: 57344.0, f8e5m2fnuz: 57344.0}
"""The largest finite values of the types for which `saturate` makes a difference."""
POWER_LOW, POWER_HIGH = 2.0**-127, 2.0**127
"""The range of f8e8m0, which holds powers of two and NaN."""


@operator("cast", "x")
class Cast(Elementwise):
    """The value in another element type, as ONNX converts.

    Floats become integers by truncation, and integers lose their upper bits
    (`core.conversion` has the details).  `saturate` and `rounding` matter for 8-bit floats alone:
    values out of range become the largest finite one instead of infinity or NaN, and for f8e8m0,
    which has powers of two only, `rounding` says which neighbour is taken ("nearest": ties go up).
    """

    to: DType
    saturate: bool = True
    rounding: Rounding = "up"

    accepts = ALL
    widens = False

    def result_dtype(self, dtype: DType) -> DType:
        return self.to

    def formula(self, x: Expr) -> Expr:
        if x.dtype == self.to:
            return x
        if x.dtype.is_storage_only:
            x = cast(x, f32 if x.dtype.is_float else i32)
        if self.to == f8e8m0:
            return cast(self._power_of_two(_as_float(x)), f8e8m0)
        if self.to in LARGEST:
            x = _as_float(x)
            if self.saturate:
                x = call("min", call("max", x, -LARGEST[self.to]), LARGEST[self.to])
        return cast(x, self.to)

    def _power_of_two(self, x: Expr) -> Expr:
        """x rounded to a power of two; a conversion there and back gives a neighbour of it."""
        inside = (x >= POWER_LOW) & (x <= POWER_HIGH)
        x = call("min", call("max", x, POWER_LOW), POWER_HIGH)
        near = cast(cast(x, f8e8m0), x.dtype)
        result = select(near > x, near * 0.5, near)
        if self.rounding == "up":
            result = select(result < x, result * 2, result)
        if self.rounding == "nearest":
            result = select(x >= result * 1.5, result * 2, result)
        return result if self.saturate else select(inside, result, const(float("nan"), x.dtype))

    def numpy(self, x: Array) -> Array:
        if x.dtype == self.to.numpy:
            return x
        if self.to == f8e8m0:
            return self._exponent_code(x)
        if x.dtype.kind == "V":  # ml_dtypes' small types do not convert to each other
            x = x.astype(np.float32 if dtype_of(x).is_float else np.int32)
        if self.to in LARGEST and self.saturate:
            limit = LARGEST[self.to]
            x = np.clip(x.astype(np.float64), -limit, limit).astype(np.float32)
        return convert_array(x, self.to)

    def _exponent_code(self, x: Array) -> Array:
        """x as f8e8m0 by its exponent: the code of 2**e is e + 127, and that of NaN 255."""
        wide = x.astype(np.float64)
        fraction, exponent = np.frexp(wide)  # x = fraction * 2**exponent, fraction in [0.5, 1)
        steps_down = {"up": fraction == 0.5, "nearest": fraction < 0.75, "down": np.True_}
        exponent = exponent - steps_down[self.rounding]
        code = np.clip(np.where(wide < POWER_LOW, -127, exponent), -127, 127) + 127
        code = np.where(wide == np.inf, 254, code)
        nan = np.isnan(wide)
        if not self.saturate:
            nan |= (wide < POWER_LOW) | (wide > POWER_HIGH)
        return np.where(nan, 255, code).astype(np.uint8).view(f8e8m0.numpy)

    @classmethod
    def instances(cls) -> tuple[Self, ...]:
        return (
            cls(f64), cls(f16), cls(i64), cls(bool_), cls(u4), cls(i4),
            cls(f8e4m3fn), cls(f8e4m3fnuz, saturate=False), cls(f8e5m2fnuz),
            cls(f8e8m0), cls(f8e8m0, False, "nearest"), cls(f8e8m0, True, "down"),
        )  # fmt: skip

    axioms = (
        law("cast(cast(x, to=f64), to=f32) = x", "exact", x=(2, 3)),
        law("cast(transpose(x, perm=[1, 0]), to=f64) = transpose(cast(x, to=f64), perm=[1, 0])",
            "exact", x=(2, 3)),
    )  # fmt: skip


def _as_float(x: Expr) -> Expr:
    """x as f32, or as f64 when it is wide itself."""
    return cast(x, f64 if x.dtype == f64 or (x.dtype.is_integer and x.dtype.bits >= 32) else f32)


@operator("bitcast", "x")
class Bitcast(Elementwise):
    """The same bits read as another element type of equal width."""

    to: DType

    accepts = ALL
    widens = False

    def infer(self, *types: TensorType) -> TensorType:
        (x,) = types
        require(x.dtype.bits == self.to.bits, self, f"{self.to} has another width", x,
                code="WH1103")  # fmt: skip
        require(self.to != bool_ or x.dtype == bool_, self, "not all bits are truth values", x,
                code="WH1103")  # fmt: skip
        return x.with_dtype(self.to)

    def result_dtype(self, dtype: DType) -> DType:
        return self.to

    def formula(self, x: Expr) -> Expr:
        return reinterpret(x, self.to)

    def numpy(self, x: Array) -> Array:
        return x.view(self.to.numpy)

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        pairs = ((f32, i32), (i64, f64), (bool_, u8), (i4, u4), (u8, f8e5m2))
        return tuple(Sample(cls(to), (TensorType((3, 4), source),)) for source, to in pairs)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        source = (f32, i32, u32)[int(rng.integers(3))]
        to = (f32, i32, u32)[int(rng.integers(3))]
        return Sample(cls(to), (TensorType((int(rng.integers(1, 5)), 3), source),))

    axioms = NoAlgebra("bit patterns take no part in rewrites")
