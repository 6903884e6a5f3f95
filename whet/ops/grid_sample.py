"""Sampling an image at given positions."""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np

from whet.core.conversion import convert_array
from whet.core.dtypes import FLOATS, NUMERIC, compute_dtype, dtype_of, f32, i64
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr, all_of, as_expr, call, cast, const, select
from whet.ir.tensor import Compute, Tensor, compute, sum_
from whet.ops.base import Domain, Op, Sample, law, operator, require
from whet.ops.shared.window import reduction, reduction_axes

Mode = Literal["nearest", "linear", "cubic"]
Padding = Literal["zeros", "border", "reflection"]

TAPS: dict[Mode, tuple[int, int]] = {"nearest": (0, 1), "linear": (0, 2), "cubic": (-1, 4)}
"""First neighbour relative to the position's floor, and how many there are per axis."""
CUBIC = -0.75
"""The free coefficient of the cubic convolution kernel (Keys 1981)."""


@operator("grid_sample", "x", "grid")
class GridSample(Op):
    """x [N, C, *spatial] interpolated at the positions of grid [N, *outputs, axes].

    A position runs from -1 to 1 along each axis, the last spatial axis first; with
    `align_corners` these are the centres of the outermost elements, otherwise their outer
    edges.  Outside, elements are zero, the nearest one of the border, or mirrored.
    """

    mode: Mode = "linear"
    padding: Padding = "zeros"
    align_corners: bool = False

    def infer(self, x: TensorType, grid: TensorType) -> TensorType:
        accepted = NUMERIC if self.mode == "nearest" else FLOATS
        require(x.dtype in accepted and grid.dtype in FLOATS, self,
                f"no meaning for {x.dtype} at {grid.dtype}", x, grid, code="WH1103")  # fmt: skip
        require(x.rank >= 3 and grid.rank == x.rank and grid.shape[-1] == x.rank - 2, self,
                "the grid does not give a position for every spatial axis", x, grid)  # fmt: skip
        require(x.shape[0] == grid.shape[0], self, "batches differ", x, grid)
        require(min(x.shape[2:]) >= 1, self, "the image is empty", x, grid)
        return x.with_shape((*x.shape[:2], *grid.shape[1:-1]))

    # --------------------------------------------------------------------------- reference
    def reference(self, x: Array, grid: Array) -> Array:
        inner = compute_dtype(dtype_of(x)).numpy
        where = grid.astype(compute_dtype(dtype_of(grid)).numpy, copy=False)
        axes = x.ndim - 2
        first, count = TAPS[self.mode]
        taps: list[list[tuple[Array, Array]]] = []  # per axis: (index or -1, weight) of each
        for a, extent in enumerate(x.shape[2:]):
            at = self._positions(where[..., axes - 1 - a], extent)
            floor = np.floor(at)
            indices = [convert_array(floor, i64) + first + t for t in range(count)]
            weights = _weights(self.mode, (at - floor).astype(inner))
            taps.append([(self._element(i, extent), w) for i, w in zip(indices, weights)])
        # Channels last, so that one gather reads all channels of an element.
        image = np.moveaxis(x.astype(inner, copy=False), 1, -1)
        batch = np.arange(len(x)).reshape(-1, *(1,) * axes)
        result: Array = np.zeros((*grid.shape[:-1], x.shape[1]), inner)
        for corner in product(*taps):
            weight, present = np.ones(grid.shape[:-1], inner), np.ones(grid.shape[:-1], bool)
            for index, w in corner:
                weight = weight * w
                present = present & (index >= 0)
            value = image[(batch, *(np.maximum(index, 0) for index, _ in corner))]
            result += np.where(present[..., None], weight[..., None] * value, 0).astype(inner)
        return np.moveaxis(result, -1, 1).astype(x.dtype)

    def _positions(self, g: Array, extent: int) -> Array:
        """Positions in elements, rounded for `nearest` and clamped for `border`."""
        if self.align_corners:
            at, low, high = (g + 1) / 2 * (extent - 1), 0.0, extent - 1.0
        else:
            at, low, high = ((g + 1) * extent - 1) / 2, -0.5, extent - 0.5
        if self.mode == "nearest":
            at = np.rint(at)
        if self.padding == "border":
            at = np.where((at < low) | (at > high), np.clip(at, 0, extent - 1), at)
        return np.asarray(at)

    def _element(self, i: Array, extent: int) -> Array:
        """The element that stands for index i; -1 for zero."""
        if self.padding == "zeros":
            return np.where((i >= 0) & (i < extent), i, -1)
        if self.padding == "border" or extent == 1:
            return np.clip(i, 0, extent - 1)
        if self.align_corners:
            last = extent - 1
            return last - np.abs(np.mod(i, 2 * last) - last)
        turned = np.mod(i, 2 * extent)
        return np.minimum(turned, 2 * extent - 1 - turned)

    # ------------------------------------------------------------------------- expressions
    def compute(self, x: Tensor, grid: Tensor) -> Compute:
        out = self.infer(x.type, grid.type)
        axes, spatial = x.rank - 2, x.shape[2:]
        where, inner = compute_dtype(grid.dtype), compute_dtype(x.dtype)
        first, count = TAPS[self.mode]
        taps = [reduction(count, f"t{a}") for a in range(axes)]

        def body(n: Expr, c: Expr, *o: Expr) -> Expr:
            tests: list[Expr] = []
            indices: list[Expr] = []
            weight: Expr = const(1, inner)
            for a, (extent, tap) in enumerate(zip(spatial, taps)):
                g = cast(grid[(n, *o, axes - 1 - a)], where)
                at = self._position(g, extent)
                floor = call("floor", at)
                i = cast(floor, i64) + (tap + first)
                if self.padding == "zeros":
                    tests += [as_expr(0) <= i, i < extent]
                indices.append(self._standing_for(i, extent))
                if self.mode != "nearest":
                    distance = call("abs", cast(at - floor, inner) - cast(tap + first, inner))
                    weight = weight * self._weight(distance)
            value = cast(x[(n, c, *indices)], inner)
            if self.mode != "nearest":
                value = weight * value
            value = select(all_of(tests), value, const(0, inner))
            return cast(sum_(value, *reduction_axes(*taps)), out.dtype)

        return compute(out.shape, body, "grid_sample")

    def _position(self, g: Expr, extent: int) -> Expr:
        if self.align_corners:
            at, low, high = (g + 1) / 2 * (extent - 1), 0.0, extent - 1.0
        else:
            at, low, high = ((g + 1) * extent - 1) / 2, -0.5, extent - 0.5
        if self.mode == "nearest":
            at = call("round", at)
        if self.padding == "border":
            clamped = call("min", call("max", at, 0), extent - 1)
            at = select((at < low) | (at > high), clamped, at)
        return at

    def _standing_for(self, i: Expr, extent: int) -> Expr:
        """The element read for index i, which is in range already when outside is zero."""
        if self.padding == "zeros":
            return i
        if self.padding == "border" or extent == 1:
            return call("min", call("max", i, 0), extent - 1)
        period = 2 * (extent - 1) if self.align_corners else 2 * extent
        turned = i % period
        back = (period if self.align_corners else period - 1) - turned
        return select(turned < extent, turned, back)

    def _weight(self, d: Expr) -> Expr:
        """The weight of an element at distance d."""
        if self.mode == "linear":
            return 1 - d
        near = ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1
        far = ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC
        return select(d <= 1, near, far)

    axioms = (
        law("grid_sample(add(x, y), g) = add(grid_sample(x, g), grid_sample(y, g))", "real",
            x=(2, 3, 4, 5), y=(2, 3, 4, 5), g=(2, 3, 3, 2)),
        law("grid_sample(concat(x, y, axis=1), g) = "
            "concat(grid_sample(x, g), grid_sample(y, g), axis=1)", "exact",
            x=(2, 3, 4, 5), y=(2, 2, 4, 5), g=(2, 3, 3, 2)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        types = (TensorType((2, 2, 4, 5), f32), TensorType((2, 3, 2, 2), f32))
        return (
            Sample(cls(), types),
            Sample(cls("cubic", "reflection", True), types),
            Sample(cls("nearest", "border"), types),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        axes = int(rng.integers(1, 4))
        modes: list[Mode] = ["nearest", "linear", "cubic"]
        paddings: list[Padding] = ["zeros", "border", "reflection"]
        op = cls(modes[int(rng.integers(3))], paddings[int(rng.integers(3))], bool(rng.integers(2)))
        spatial = tuple(int(v) for v in rng.integers(1, 5, axes))
        outputs = tuple(int(v) for v in rng.integers(1, 4, axes))
        types = (TensorType((2, 2, *spatial), f32), TensorType((2, *outputs, axes), f32))
        return Sample(op, types, (None, Domain(-3.0, 3.0)))


def _weights(mode: Mode, t: Array) -> list[Array]:
    """The weights of all neighbours for a position t past its floor."""
    if mode == "nearest":
        return [np.ones_like(t)]
    if mode == "linear":
        return [1 - t, t]
    a = CUBIC
    return [
        a * t * (1 - t) ** 2,
        (a + 2) * t**3 - (a + 3) * t**2 + 1,
        -(a + 2) * t**3 + (2 * a + 3) * t**2 - a * t,
        a * t**2 * (1 - t),
    ]
