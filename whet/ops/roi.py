"""Pooling of regions of interest: boxes whose place and size are data.

How many elements a box covers depends on its coordinates, so these are loop programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from whet.core.conversion import convert_array
from whet.core.dtypes import FLOATS, compute_dtype, dtype_of, f32, i64
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr, Var, as_expr, call, cast, const, select
from whet.ir.program import Allocate, Buffer, If, Let, Loop, Program, Stmt, Store
from whet.ops.base import Domain, NoAlgebra, Op, Sample, operator, require
from whet.ops.pool import lowest


def _define(definitions: Sequence[tuple[Var, Expr]], body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The body under names for values, later ones in terms of earlier ones."""
    block = tuple(body)
    for var, value in reversed(definitions):
        block = (Let(var, value, block),)
    return block


def _for_each(names: Sequence[str], extents: Sequence[int], body: Sequence[Stmt]) -> Stmt:
    """Nested loops, the first name outermost."""
    block = tuple(body)
    for name, extent in reversed(list(zip(names, extents))):
        block = (Loop(Var(name), as_expr(extent), block),)
    (loop,) = block
    return loop


MAX_POINTS = 1 << 20
"""Along one axis of a box; an image has fewer elements there."""
R, C, PH, PW = (Var(name) for name in ("r", "c", "ph", "pw"))


@operator("roi_align", "x", "rois", "batch_indices")
class RoiAlign(Op):
    """Boxes of x [N, C, H, W], each divided into `output_size` bins of interpolated samples.

    rois [R, 4] holds x1, y1, x2, y2 of every box in units of 1 / spatial_scale elements, and
    batch_indices [R] its image.  A bin is the mean (`avg`) of sampling_ratio squared linearly
    interpolated points, or as many as its size says when that is 0; `max` takes the largest
    weighted neighbour of all points instead.  With `half_pixel`, element i is centred at i + 0.5.
    """

    output_size: tuple[int, int]
    sampling_ratio: int = 0
    spatial_scale: float = 1.0
    mode: Literal["avg", "max"] = "avg"
    half_pixel: bool = True

    def infer(self, x: TensorType, rois: TensorType, batch_indices: TensorType) -> TensorType:
        given = (x, rois, batch_indices)
        require(x.dtype in FLOATS and rois.dtype == x.dtype and batch_indices.dtype == i64, self,
                "element types do not fit", *given, code="WH1103")  # fmt: skip
        require(x.rank == 4 and rois.rank == 2 and rois.shape[1] == 4, self,
                "an image batch and boxes of four numbers are needed", *given)  # fmt: skip
        require(0 not in x.shape[2:], self, "an image without elements", *given)
        require(batch_indices.shape == rois.shape[:1], self, "one image per box is needed", *given)
        require(min(self.output_size) >= 1 and self.sampling_ratio >= 0, self,
                "sizes must be positive", *given, code="WH1104")  # fmt: skip
        require(max(self.output_size) * self.sampling_ratio <= MAX_POINTS, self,
                "too many sampling points", *given, code="WH1107")  # fmt: skip
        return x.with_shape((rois.shape[0], x.shape[1], *self.output_size))

    def reference(self, x: Array, rois: Array, batch_indices: Array) -> Array:
        inner = compute_dtype(dtype_of(x)).numpy
        out: Array = np.zeros((len(rois), x.shape[1], *self.output_size), inner)
        scale, shift = inner.type(self.spatial_scale), inner.type(0.5 * self.half_pixel)
        require(bool(((batch_indices >= 0) & (batch_indices < len(x))).all()), self,
                "a box lies in an image that does not exist", code="WH1302")  # fmt: skip
        for box, image, result in zip(rois.astype(inner), batch_indices, out):
            x1, y1, x2, y2 = box * scale - shift
            ys, rows, y_weights, y_valid = self._samples(y1, y2, self.output_size[0], x.shape[2])
            xs, columns, x_weights, x_valid = self._samples(x1, x2, self.output_size[1], x.shape[3])
            if not ys or not xs:
                continue
            # [C, bins_y, points_y, 2, bins_x, points_x, 2]: the four neighbours, weighted
            near = x[image].astype(inner)[:, rows[..., None, None, None], columns]
            weighted = near * y_weights[..., None, None, None] * x_weights
            # Outside of the image is nothing, whatever the nearest element is.
            valid = y_valid[:, :, None, None, None, None] & x_valid[:, :, None]
            weighted = np.where(valid, weighted, inner.type(0))
            if self.mode == "avg":
                result[...] = weighted.sum((2, 3, 5, 6)) / inner.type(ys * xs)
            else:
                result[...] = weighted.max((2, 3, 5, 6))
        return out.astype(x.dtype)

    def _samples(
        self, low: Array, high: Array, bins: int, extent: int
    ) -> tuple[int, Array, Array, Array]:
        """Points per bin, and [bins, points, 2] neighbours with their weights, of one axis; and
        which of the [bins, points] lie in the image."""
        size = high - low
        if not self.half_pixel:
            size = np.maximum(size, 1)
        step = size / low.dtype.type(bins)
        # Written so that it fails for NaN as well.
        require(bool(step * bins <= MAX_POINTS), self, "a box is too large", code="WH1107")
        points = self.sampling_ratio or max(0, int(np.ceil(step)))
        inside = (np.arange(points) + 0.5).astype(low.dtype) * step / low.dtype.type(max(points, 1))
        at = low + np.arange(bins).astype(low.dtype)[:, None] * step + inside
        valid = (at >= -1) & (at <= extent)
        first = np.clip(np.floor(at), 0, extent - 1)
        fraction = np.where(first >= extent - 1, 0, np.maximum(at, 0) - first).astype(low.dtype)
        indices = np.stack([first, np.minimum(first + 1, extent - 1)], -1)
        weights = np.stack([1 - fraction, fraction], -1)
        inside = np.clip(convert_array(indices, i64), 0, extent - 1)  # also where they are NaN
        return points, inside, weights.astype(low.dtype), valid

    def program(self, x: TensorType, rois: TensorType, batch_indices: TensorType) -> Program:
        t = compute_dtype(x.dtype)
        out_type = self.infer(x, rois, batch_indices)
        image, boxes, batch, out = (
            Buffer(name, type.shape, type.dtype)
            for name, type in zip(
                ("x", "rois", "batch_indices", "out"), (x, rois, batch_indices, out_type)
            )
        )
        total = Buffer("total", (), t)
        points = {axis: Var(f"points_{axis}") for axis in "yx"}
        definitions: list[tuple[Var, Expr]] = []
        inner: list[tuple[Var, Expr]] = []
        valid: list[Expr] = []
        neighbours: list[list[tuple[Expr, Expr]]] = []
        for axis, first, bin_, bins, extent in (
            ("y", 1, PH, self.output_size[0], x.shape[2]),
            ("x", 0, PW, self.output_size[1], x.shape[3]),
        ):
            low, step = Var(f"low_{axis}", t), Var(f"step_{axis}", t)
            start, end = (
                cast(boxes[R, n], t) * self.spatial_scale - 0.5 * self.half_pixel
                for n in (first, first + 2)
            )
            size = end - low if self.half_pixel else call("max", end - low, 1.0)
            count = (
                as_expr(self.sampling_ratio)
                if self.sampling_ratio
                else call("max", cast(call("ceil", step), i64), 0)
            )
            definitions += [(low, start), (step, size / float(bins)), (points[axis], count)]
            at, near = Var(f"at_{axis}", t), Var(f"near_{axis}")
            part = Var(f"part_{axis}", t)
            offset = (cast(Var(f"i{axis}"), t) + 0.5) * step / cast(points[axis], t)
            floor = cast(call("floor", call("max", at, 0.0)), i64)
            inner += [
                (at, low + cast(bin_, t) * step + offset),
                (near, call("min", floor, extent - 1)),
                (part, select(near < extent - 1, call("max", at, 0.0) - cast(near, t), 0.0)),
            ]
            valid += [at >= -1.0, at <= float(extent)]
            neighbours.append([(near, 1.0 - part), (call("min", near + 1, extent - 1), part)])
        weighted = [
            wy * wx * cast(image[batch[R], C, y, xx], t)
            for y, wy in neighbours[0]
            for xx, wx in neighbours[1]
        ]
        ok = valid[0] & valid[1] & valid[2] & valid[3]
        point: tuple[Stmt, ...]
        count = points["y"] * points["x"]
        if self.mode == "avg":
            value = weighted[0] + weighted[1] + weighted[2] + weighted[3]
            point = (If(ok, (Store(total, (), total[()] + value),)),)
            start_value = const(0.0, t)
            final = total[()] / cast(call("max", count, 1), t)
        else:
            value = call("max", call("max", *weighted[:2]), call("max", *weighted[2:]))
            best = call("max", total[()], select(ok, value, 0.0))
            point = (Store(total, (), best),)
            start_value = const(lowest(t), t)
            final = select(count > 0, total[()], 0.0)
        sampling = Loop(
            Var("iy"),
            points["y"],
            (Loop(Var("ix"), points["x"], _define(inner, point)),),
        )
        body = (
            Store(total, (), start_value),
            sampling,
            Store(out, (R, C, PH, PW), cast(final, x.dtype)),
        )
        loops = _for_each(("r", "c", "ph", "pw"), out.shape, _define(definitions, body))
        return Program(self.name, (image, boxes, batch), (out,), (Allocate(total, (loops,)),))

    axioms = NoAlgebra("which elements are read depends on data")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        types = (TensorType((2, 2, 6, 5), f32), TensorType((3, 4), f32), TensorType((3,), i64))
        domains = (None, Domain(-1.0, 7.0), Domain(0, 2))
        return (
            Sample(cls((2, 3), 2), types, domains),
            Sample(cls((2, 2), 0, 0.5, "max", False), types, domains),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        height, width = (int(v) for v in rng.integers(1, 4, 2))
        mode: Literal["avg", "max"] = "avg" if rng.random() < 0.5 else "max"
        scale = float(rng.choice([0.25, 0.5, 1.0]))
        op = cls((height, width), int(rng.integers(0, 3)), scale, mode, bool(rng.integers(2)))
        types = (TensorType((2, 1, 4, 5), f32), TensorType((2, 4), f32), TensorType((2,), i64))
        return Sample(op, types, (None, Domain(-1.0, 8.0), Domain(0, 2)))


@operator("max_roi_pool", "x", "rois")
class MaxRoiPool(Op):
    """Boxes of x [N, C, H, W], each divided into `output_size` bins of which the maxima remain.

    rois [R, 5] holds image, x1, y1, x2, y2 of every box in units of 1 / spatial_scale
    elements, rounded to whole elements; a bin that covers nothing is zero.
    """

    output_size: tuple[int, int]
    spatial_scale: float = 1.0

    def infer(self, x: TensorType, rois: TensorType) -> TensorType:
        require(x.dtype in FLOATS and rois.dtype == x.dtype, self, "element types do not fit",
                x, rois, code="WH1103")  # fmt: skip
        require(x.rank == 4 and rois.rank == 2 and rois.shape[1] == 5, self,
                "an image batch and boxes of five numbers are needed", x, rois)  # fmt: skip
        require(min(self.output_size) >= 1, self, "sizes must be positive", x, rois, code="WH1104")
        return x.with_shape((rois.shape[0], x.shape[1], *self.output_size))

    def reference(self, x: Array, rois: Array) -> Array:
        inner = compute_dtype(dtype_of(x)).numpy
        out: Array = np.zeros((len(rois), x.shape[1], *self.output_size), x.dtype)
        images = rois[:, 0].astype(np.int64)
        require(bool(((images >= 0) & (images < len(x))).all()), self,
                "a box lies in an image that does not exist", code="WH1302")  # fmt: skip
        corners = rois[:, 1:].astype(inner) * inner.type(self.spatial_scale)
        corners = np.copysign(np.floor(np.abs(corners) + inner.type(0.5)), corners)
        for r, (image, (x1, y1, x2, y2)) in enumerate(zip(images, corners)):
            rows = self._bins(y1, y2, self.output_size[0], x.shape[2])
            columns = self._bins(x1, x2, self.output_size[1], x.shape[3])
            for i, row in enumerate(rows):
                for j, column in enumerate(columns):
                    covered = x[image, :, row, column]
                    if covered.size:
                        out[r, :, i, j] = covered.max((1, 2))
        return out

    def _bins(self, low: Array, high: Array, bins: int, extent: int) -> list[slice]:
        """The elements of one axis that each bin covers."""
        step = np.maximum(high - low + 1, 1) / low.dtype.type(bins)
        edges = np.arange(bins + 1).astype(low.dtype) * step
        starts = np.clip(np.floor(edges[:-1]) + low, 0, extent).astype(int)
        stops = np.clip(np.ceil(edges[1:]) + low, 0, extent).astype(int)
        return [slice(a, max(a, b)) for a, b in zip(starts, stops)]

    def program(self, x: TensorType, rois: TensorType) -> Program:
        t = compute_dtype(x.dtype)
        out_type = self.infer(x, rois)
        image, boxes, out = (
            Buffer(name, type.shape, type.dtype)
            for name, type in zip(("x", "rois", "out"), (x, rois, out_type))
        )
        best = Buffer("best", (), x.dtype)
        definitions: list[tuple[Var, Expr]] = []
        for axis, first, bin_, bins, extent in (
            ("y", 2, PH, self.output_size[0], x.shape[2]),
            ("x", 1, PW, self.output_size[1], x.shape[3]),
        ):
            low, high, step = (Var(f"{name}_{axis}", t) for name in ("low", "high", "step"))
            start, count = Var(f"start_{axis}"), Var(f"count_{axis}")

            def clipped(edge: Expr, low: Expr = low, extent: int = extent) -> Expr:
                return cast(call("min", call("max", edge + low, 0.0), float(extent)), i64)

            stop = clipped(call("ceil", (cast(bin_, t) + 1.0) * step))
            definitions += [
                (low, _rounded(cast(boxes[R, first], t) * self.spatial_scale)),
                (high, _rounded(cast(boxes[R, first + 2], t) * self.spatial_scale)),
                (step, call("max", high - low + 1.0, 1.0) / float(bins)),
                (start, clipped(call("floor", cast(bin_, t) * step))),
                (count, call("max", stop - start, 0)),
            ]
        iy, ix = Var("iy"), Var("ix")
        at = (cast(boxes[R, 0], i64), C, Var("start_y") + iy, Var("start_x") + ix)
        keep = Store(best, (), call("max", best[()], image[at]))
        covered = Var("count_y") * Var("count_x") > 0
        body = (
            Store(best, (), const(lowest(x.dtype), x.dtype)),
            Loop(iy, Var("count_y"), (Loop(ix, Var("count_x"), (keep,)),)),
            Store(out, (R, C, PH, PW), select(covered, best[()], const(0.0, x.dtype))),
        )
        loops = _for_each(("r", "c", "ph", "pw"), out.shape, _define(definitions, body))
        return Program(self.name, (image, boxes), (out,), (Allocate(best, (loops,)),))

    axioms = NoAlgebra("which elements are read depends on data")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        # All five numbers of a box come from one range, so its image must exist throughout it.
        types = (TensorType((4, 2, 5, 6), f32), TensorType((3, 5), f32))
        return (Sample(cls((2, 3)), types, (None, Domain(0.0, 4.0))),)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        height, width = (int(v) for v in rng.integers(1, 4, 2))
        op = cls((height, width), float(rng.choice([0.5, 1.0, 2.0])))
        types = (TensorType((4, 2, 5, 6), f32), TensorType((2, 5), f32))
        return Sample(op, types, (None, Domain(0.0, 4.0)))


def _rounded(value: Expr) -> Expr:
    """The nearest whole number, halves away from zero."""
    up, down = call("floor", value + 0.5), call("ceil", value - 0.5)
    return select(value >= 0.0, up, down)
