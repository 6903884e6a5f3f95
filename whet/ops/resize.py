"""Resizing images and other grids by interpolation."""

from __future__ import annotations

from typing import Any

import numpy as np

from whet.core.dtypes import FLOATS, NUMERIC, DType, compute_dtype, dtype_of, f32, f64, i64
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr
from whet.ir.tensor import Compute, Tensor, compute, reduce_axis, sum_
from whet.ops.arithmetic import Add, Mul, Round, Sign
from whet.ops.base import Builder, Domain, Op, Sample, law, operator, require
from whet.ops.casting import Cast
from whet.ops.gather import Gather, checked, require_indices
from whet.ops.logic import Where
from whet.ops.movement import random_shape
from whet.ops.shared.resample import (
    AxisScale,
    AxisTable,
    Coordinates,
    NearestMode,
    ResizeMode,
    nearest_table,
    weighted_table,
)

ROUNDING = 2.0**-20
"""More than the rounding error of an interpolated integer, and less than anything that it means."""


@operator("interpolate", "x", "positions", "weights")
class Interpolate(Op):
    """Weighted sums along `axis`: row i of the tables says which elements, and how much of each.

    result[.., i, ..] = sum over t of weights[i, t] * x[.., positions[i, t], ..]
    """

    axis: int

    def infer(self, x: TensorType, positions: TensorType, weights: TensorType) -> TensorType:
        require(x.dtype in (f32, f64) and weights.dtype == x.dtype, self,
                "input and weights must be f32 or f64 alike", x, weights,
                code="WH1103")  # fmt: skip
        require_indices(self, positions)
        require(positions.rank == 2 and positions.shape == weights.shape, self,
                "both tables must be of one shape [new extent, terms]", positions,
                weights)  # fmt: skip
        require(0 <= self.axis < x.rank, self, f"axis {self.axis} is outside the rank", x,
                code="WH1104")  # fmt: skip
        new = positions.shape[0]
        return x.with_shape((*x.shape[: self.axis], new, *x.shape[self.axis + 1 :]))

    def reference(self, x: Array, positions: Array, weights: Array) -> Array:
        found = checked(self, positions, x.shape[self.axis])
        return weighted_rows(x, found, weights, self.axis)

    def compute(self, x: Tensor, positions: Tensor, weights: Tensor) -> Compute:
        t = reduce_axis(positions.shape[1], "t")

        def body(*i: Expr) -> Expr:
            row = i[self.axis]
            at = (*i[: self.axis], positions[row, t], *i[self.axis + 1 :])
            return sum_(x[at] * weights[row, t], t)

        out = self.infer(x.type, positions.type, weights.type)
        return compute(out.shape, body, "interpolate")

    axioms = (
        law("interpolate(add(x, y), p, w, axis=0) = "
            "add(interpolate(x, p, w, axis=0), interpolate(y, p, w, axis=0))", "real",
            x=(4, 3), y=(4, 3), p=(5, 2), w=(5, 2)),
        law("interpolate(matmul(x, y), p, w, axis=0) = matmul(interpolate(x, p, w, axis=0), y)",
            "real", x=(4, 3), y=(3, 2), p=(5, 2), w=(5, 2)),
        law("interpolate(interpolate(x, p, v, axis=0), q, w, axis=1) = "
            "interpolate(interpolate(x, q, w, axis=1), p, v, axis=0)", "real",
            x=(4, 3), p=(5, 2), v=(5, 2), q=(6, 3), w=(6, 3)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (_table_sample(cls(1), (2, 4, 3), 7, 2), _table_sample(cls(0), (5,), 2, 4))

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng)
        axis, new, terms = (int(n) for n in rng.integers((0, 1, 1), (len(shape), 8, 5)))
        return _table_sample(cls(axis), shape, new, terms)


def _table_sample(op: Interpolate, shape: tuple[int, ...], new: int, terms: int) -> Sample:
    table = TensorType((new, terms), f32)
    types = (TensorType(shape, f32), table.with_dtype(i64), table)
    return Sample(op, types, (None, Domain(0, shape[op.axis]), None))


def weighted_rows(x: Array, positions: Array, weights: Array, axis: int) -> Array:
    """The sums that `interpolate` means, one term at a time."""
    along = [1] * x.ndim
    along[axis] = len(positions)
    total = np.zeros((*x.shape[:axis], len(positions), *x.shape[axis + 1 :]), x.dtype)
    for at, weight in zip(positions.T, weights.T):
        total += np.take(x, at, axis=axis) * weight.reshape(along).astype(x.dtype)
    return total


@operator("resize", "x")
class Resize(Op):
    """The input on a grid of another shape, by nearest neighbour, linear or cubic interpolation.

    Every axis is listed: `shape` and `scales` of the result, and for `tf_crop_and_resize` the
    part of each axis that is read (`roi`: all starts, then all ends, as fractions); there,
    positions beyond the input have the value `extrapolation`.  Integers are interpolated in
    f64 and cut off, but for rounding errors, or with `antialias` in f32 and rounded.
    """

    shape: tuple[int, ...]
    scales: tuple[float, ...]
    mode: ResizeMode = "nearest"
    coordinates: Coordinates = "half_pixel"
    nearest: NearestMode = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0
    roi: tuple[float, ...] = ()

    def infer(self, x: TensorType) -> TensorType:
        require(len(self.shape) == len(self.scales) == x.rank, self,
                "shape and scales must list every axis", x, code="WH1104")  # fmt: skip
        require(all(s > 0 for s in self.scales), self, "scales must be positive", x, code="WH1104")
        require(0 not in x.shape or 0 in self.shape, self, "nothing to interpolate from", x)
        cropped = self.coordinates == "tf_crop_and_resize"
        require(not cropped or len(self.roi) == 2 * x.rank, self, "roi must list every axis", x,
                code="WH1104")  # fmt: skip
        accepted = FLOATS if self.mode == "cubic" else NUMERIC
        require(self.mode == "nearest" or x.dtype in accepted, self,
                f"no {self.mode} interpolation of {x.dtype}", x, code="WH1103")  # fmt: skip
        return x.with_shape(self.shape)

    def table(self, axis: int, old: int) -> AxisTable:
        """The positions and weights of one axis."""
        scale = AxisScale(old, self.shape[axis], self.scales[axis])
        if self.roi:
            start, end = self.roi[axis], self.roi[len(self.shape) + axis]
            scale = AxisScale(old, self.shape[axis], self.scales[axis], start, end)
        if self.mode == "nearest":
            return nearest_table(scale, self.coordinates, self.nearest)
        return weighted_table(
            scale,
            self.coordinates,
            self.mode,
            cubic_coeff_a=self.cubic_coeff_a,
            exclude_outside=self.exclude_outside,
            antialias=self.antialias,
        )

    def _work_dtype(self, dtype: DType) -> DType:
        """Nearest only copies; the rest is computed in f64 or f32, averages as others do."""
        if self.mode == "nearest" or dtype == f64:
            return dtype
        if dtype.is_float:
            return compute_dtype(dtype)
        return f32 if self.antialias else f64

    def _rounds(self, dtype: DType) -> bool:
        """Averages of integers are rounded, as image libraries do."""
        return self.antialias and not dtype.is_float and self.mode != "nearest"

    def _cuts_off(self, dtype: DType) -> bool:
        return not dtype.is_float and self.mode != "nearest" and not self.antialias

    def reference(self, x: Array) -> Array:
        out = x.astype(self._work_dtype(dtype_of(x)).numpy)
        outside = np.zeros(self.shape, np.bool_)
        for axis, old in enumerate(x.shape):
            table = self.table(axis, old)
            along = [1] * x.ndim
            along[axis] = self.shape[axis]
            outside |= table.outside.reshape(along)
            if table.is_copy:
                out = np.take(out, table.positions[:, 0], axis=axis)
            else:
                out = weighted_rows(out, table.positions, table.weights, axis)
        if self.coordinates == "tf_crop_and_resize":
            out = np.where(outside, np.asarray(self.extrapolation, out.dtype), out)
        if self._rounds(dtype_of(x)):
            out = np.rint(out)
        elif self._cuts_off(dtype_of(x)):
            out = out + np.sign(out) * ROUNDING
        return out.astype(x.dtype)

    def expand(self, b: Builder, x: Any) -> Any:
        """One gather or interpolate per axis that changes, the most shrinking axis first."""
        given = b.type(x)
        work = self._work_dtype(given.dtype)
        tables = {axis: self.table(axis, old) for axis, old in enumerate(given.shape)}
        y = x if work == given.dtype else b(Cast(work), x)
        for axis in sorted(tables, key=lambda a: self.shape[a] / max(given.shape[a], 1)):
            table = tables[axis]
            if table.is_identity(given.shape[axis]):
                continue
            if table.is_copy:
                y = b(Gather(axis), y, b.constant(table.positions[:, 0]))
            else:
                weights = b.constant(table.weights.astype(work.numpy))
                y = b(Interpolate(axis), y, b.constant(table.positions), weights)
        if self.coordinates == "tf_crop_and_resize":
            fill = b.constant(np.asarray(self.extrapolation, work.numpy))
            for axis, table in tables.items():
                if table.outside.any():
                    trailing = (1,) * (given.rank - 1 - axis)
                    mask = b.constant(table.outside.reshape(-1, *trailing))
                    y = b(Where(), mask, fill, y)
        if self._rounds(given.dtype):
            y = b(Round(), y)
        elif self._cuts_off(given.dtype):
            # 0.1 * 3 + 0.9 * 3 is a hair below 3, and means 3.
            y = b(Add(), y, b(Mul(), b(Sign(), y), b.constant(np.asarray(ROUNDING))))
        return y if work == given.dtype else b(Cast(given.dtype), y)

    axioms = (
        law("resize(add(x, y), shape=[2, 6], scales=[1.0, 2.0], mode=\"linear\") = "
            "add(resize(x, shape=[2, 6], scales=[1.0, 2.0], mode=\"linear\"), "
            "resize(y, shape=[2, 6], scales=[1.0, 2.0], mode=\"linear\"))", "real",
            x=(2, 3), y=(2, 3)),
        law("resize(relu(x), shape=[2, 6], scales=[1.0, 2.0]) = "
            "relu(resize(x, shape=[2, 6], scales=[1.0, 2.0]))", "exact",
            when=("mode is nearest",), x=(2, 3)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        image = (TensorType((1, 2, 4, 3), f32),)
        double = ((1, 2, 8, 6), (1.0, 1.0, 2.0, 2.0))
        return (
            Sample(cls(*double), image),
            Sample(cls(*double, mode="linear"), image),
            Sample(cls(*double, mode="cubic", coordinates="align_corners"), image),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng, 1, 3)
        scales = tuple(float(s) for s in rng.uniform(0.3, 2.5, len(shape)))
        new = tuple(max(1, int(d * s)) for d, s in zip(shape, scales))
        kinds: tuple[Coordinates, ...] = ("half_pixel", "align_corners", "tf_crop_and_resize")
        modes: tuple[ResizeMode, ...] = ("nearest", "linear", "cubic")
        op = cls(
            new,
            scales,
            mode=modes[int(rng.integers(3))],
            coordinates=kinds[int(rng.integers(3))],
            exclude_outside=bool(rng.integers(2)),
            antialias=bool(rng.integers(2)),
            extrapolation=3.0,
            roi=(-0.2,) * len(shape) + (1.1,) * len(shape),
        )
        return Sample(op, (TensorType(shape, f32),))
