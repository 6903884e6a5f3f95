"""Linear quantization: y = x / scale + zero_point in a small type, and back.

A scale or zero point of one element counts for the whole tensor; a vector has an element per
position of `axis`; with a `block_size` it has the rank of x and each element counts for that many
positions of `axis`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whet.core.conversion import convert_array
from whet.core.dtypes import (
    FLOATS,
    DType,
    compute_dtype,
    dtype_of,
    f4e2m1,
    f8e4m3fn,
    f8e4m3fnuz,
    f8e5m2,
    f8e5m2fnuz,
    f8e8m0,
    f16,
    f32,
    i2,
    i4,
    i8,
    i16,
    i32,
    integer_range,
    u2,
    u4,
    u8,
    u16,
)
from whet.core.types import Array, Shape, TensorType
from whet.ir.expr import Expr, as_expr, call, cast
from whet.ir.tensor import Compute, Tensor, compute
from whet.ops.base import Domain, NoAlgebra, Op, Sample, operator, require
from whet.ops.casting import Cast

SMALL = (
    u8, i8, u16, i16, u4, i4, u2, i2, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f4e2m1,
)  # fmt: skip
"""The types that values are quantized to."""

SCALES = Domain(0.25, 2.0)
GRANULARITIES: tuple[tuple[Shape, Shape, int, int], ...] = (
    ((3, 4), (), 0, 0),
    ((2, 3, 4), (3,), 1, 0),
    ((3, 5), (3, 3), 1, 2),
    ((6,), (1,), 0, 0),
)
"""Shapes of x and of its scale, axis and block size, for the samples."""
ROUNDING = NoAlgebra("rounds, so it commutes with nothing but data movement")


def check_granularity(
    op: Op, x: TensorType, scale: TensorType, zero: TensorType, axis: int, block: int
) -> None:
    """Raise unless scale and zero point fit x in one of the three ways."""
    for given in (scale, zero):
        if given.size == 1 and given.rank <= 1:
            continue
        require(0 <= axis < x.rank, op, f"axis {axis} is outside the rank", x, code="WH1104")
        expected: Shape = (x.shape[axis],)
        if block > 0:
            expected = (*x.shape[:axis], -(-x.shape[axis] // block), *x.shape[axis + 1 :])
        require(block >= 0 and given.shape == expected, op,
                f"scale and zero point should have shape {list(expected)}", x, given)  # fmt: skip


def read_granular(tensor: Tensor, i: Sequence[Expr], axis: int, block: int) -> Expr:
    """The element of a scale or zero point that counts at position i of x."""
    if tensor.rank <= 1 and tensor.type.size == 1:
        return tensor[(as_expr(0),) * tensor.rank]
    if not block:
        return tensor[i[axis]]
    return tensor[(*i[:axis], i[axis] // block, *i[axis + 1 :])]


def spread(array: Array, shape: Shape, axis: int, block: int) -> Array:
    """A scale or zero point as an array that broadcasts against x."""
    if array.ndim <= 1 and array.size == 1:
        return array.reshape(())
    if not block:
        return array.reshape([-1 if n == axis else 1 for n in range(len(shape))])
    return np.take(array, np.arange(shape[axis]) // block, axis=axis)


def random_granularity(rng: np.random.Generator) -> tuple[Shape, Shape, int, int]:
    """A random shape of x with a fitting shape of scales, axis and block size."""
    shape = tuple(int(d) for d in rng.integers(1, 6, int(rng.integers(1, 4))))
    axis = int(rng.integers(len(shape)))
    match int(rng.integers(3)):
        case 0:
            return shape, (), 0, 0
        case 1:
            return shape, (shape[axis],), axis, 0
    block = int(rng.integers(1, 4))
    blocks = -(-shape[axis] // block)
    return shape, (*shape[:axis], blocks, *shape[axis + 1 :]), axis, block


@operator("quantize_linear", "x", "scale", "zero_point")
class QuantizeLinear(Op):
    """round(x / scale) + zero_point in the type of the zero point, limited to its range.

    The quotient is computed in `precision`, which is the type of the scale if not given.
    `saturate` says what 8-bit floats make of values out of range, as for `cast`.
    """

    axis: int = 0
    block_size: int = 0
    saturate: bool = True
    precision: DType | None = None

    def infer(self, x: TensorType, scale: TensorType, zero_point: TensorType) -> TensorType:
        require(x.dtype in (*FLOATS, i32), self, f"no meaning for {x.dtype}", x, code="WH1103")
        require(scale.dtype in (*FLOATS, f8e8m0), self, f"no scale of {scale.dtype}", scale,
                code="WH1103")  # fmt: skip
        require(zero_point.dtype in SMALL, self, f"no quantization to {zero_point.dtype}",
                zero_point, code="WH1103")  # fmt: skip
        check_granularity(self, x, scale, zero_point, self.axis, self.block_size)
        return x.with_dtype(zero_point.dtype)

    def _division_dtype(self, scale: DType) -> DType:
        chosen = self.precision or scale
        return f32 if chosen.is_storage_only else chosen

    def compute(self, x: Tensor, scale: Tensor, zero_point: Tensor) -> Compute:
        to, exact = zero_point.dtype, self._division_dtype(scale.dtype)
        inner = compute_dtype(exact)

        def operand(value: Expr) -> Expr:
            return cast(cast(value, exact), inner)

        def body(*i: Expr) -> Expr:
            divisor = operand(read_granular(scale, i, self.axis, self.block_size))
            quotient = operand(operand(x[tuple(i)]) / divisor)
            zero = cast(read_granular(zero_point, i, self.axis, self.block_size), inner)
            if to.is_float:
                return Cast(to, self.saturate).formula(quotient + zero)
            low, high = integer_range(to)
            value = call("round", quotient) + zero
            return cast(call("min", call("max", value, low), high), to)

        return compute(x.shape, body, self.name)

    def reference(self, x: Array, scale: Array, zero_point: Array) -> Array:
        to, exact = dtype_of(zero_point), self._division_dtype(dtype_of(scale)).numpy
        scale, zero_point = (
            spread(a, x.shape, self.axis, self.block_size) for a in (scale, zero_point)
        )
        quotient = (x.astype(exact) / scale.astype(exact)).astype(np.float64)
        if to.is_float:
            return Cast(to, self.saturate).numpy((quotient + zero_point).astype(np.float32))
        return convert_array(np.clip(np.rint(quotient) + zero_point, *integer_range(to)), to)

    axioms = ROUNDING

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return tuple(
            Sample(cls(axis, block), (TensorType(shape, f32), TensorType(scale, f32),
                   TensorType(scale, small)), (Domain(-20.0, 20.0), SCALES, None))
            for (shape, scale, axis, block), small in zip(GRANULARITIES, (u8, i8, i4, f8e4m3fn))
        )  # fmt: skip

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape, scale, axis, block = random_granularity(rng)
        small = SMALL[int(rng.integers(len(SMALL)))]
        wide = (f32, f16)[int(rng.integers(2))]
        types = (TensorType(shape, wide), TensorType(scale, wide), TensorType(scale, small))
        op = cls(axis, block, precision=(None, f32)[int(rng.integers(2))])
        return Sample(op, types, (Domain(-20.0, 20.0), SCALES, None))


@operator("dequantize_linear", "x", "scale", "zero_point")
class DequantizeLinear(Op):
    """(x - zero_point) * scale in the type `to`."""

    to: DType
    axis: int = 0
    block_size: int = 0

    def infer(self, x: TensorType, scale: TensorType, zero_point: TensorType) -> TensorType:
        require(x.dtype in (*SMALL, i32), self, f"no meaning for {x.dtype}", x, code="WH1103")
        require(zero_point.dtype == x.dtype, self, "zero point has another type", x, zero_point,
                code="WH1103")  # fmt: skip
        require(scale.dtype in (*FLOATS, f8e8m0) and self.to in FLOATS, self,
                f"no scale of {scale.dtype} to {self.to}", scale, code="WH1103")  # fmt: skip
        check_granularity(self, x, scale, zero_point, self.axis, self.block_size)
        return x.with_dtype(self.to)

    def compute(self, x: Tensor, scale: Tensor, zero_point: Tensor) -> Compute:
        inner = compute_dtype(self.to)
        exact = f32 if x.dtype.is_float else i32

        def body(*i: Expr) -> Expr:
            zero = cast(read_granular(zero_point, i, self.axis, self.block_size), exact)
            factor = cast(read_granular(scale, i, self.axis, self.block_size), inner)
            return cast(cast(cast(x[tuple(i)], exact) - zero, inner) * factor, self.to)

        return compute(x.shape, body, self.name)

    def reference(self, x: Array, scale: Array, zero_point: Array) -> Array:
        inner = compute_dtype(self.to).numpy
        scale, zero_point = (
            spread(a, x.shape, self.axis, self.block_size) for a in (scale, zero_point)
        )
        exact = np.float32 if dtype_of(x).is_float else np.int32
        distance = (x.astype(exact) - zero_point.astype(exact)).astype(inner)
        return (distance * scale.astype(inner)).astype(self.to.numpy)

    axioms = ROUNDING

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return tuple(
            Sample(cls(f32, axis, block), (TensorType(shape, small), TensorType(scale, f32),
                   TensorType(scale, small)), (None, SCALES, None))
            for (shape, scale, axis, block), small in zip(GRANULARITIES, (u8, i8, i4, f8e4m3fn))
        )  # fmt: skip

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape, scale, axis, block = random_granularity(rng)
        small = (*SMALL, i32)[int(rng.integers(len(SMALL) + 1))]
        to = FLOATS[int(rng.integers(len(FLOATS)))]
        wide = (f32, f16, f8e8m0)[int(rng.integers(3))]
        types = (TensorType(shape, small), TensorType(scale, wide), TensorType(scale, small))
        return Sample(cls(to, axis, block), types, (None, SCALES, None))
