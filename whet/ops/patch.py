"""Patches of an image: putting columns together, and convolution on displaced windows."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from whet.core.conversion import convert_array
from whet.core.dtypes import FLOATS, NUMERIC, compute_dtype, dtype_of, f16, f32, i64
from whet.core.types import Array, Shape, TensorType
from whet.ir.expr import Expr, all_of, as_expr, call, cast, const, select
from whet.ir.tensor import Compute, Tensor, compute, sum_
from whet.ops.base import Op, Sample, law, operator, require
from whet.ops.matmul import matrix_product
from whet.ops.shared.row_major import flat_index
from whet.ops.shared.window import Window, reduction, reduction_axes

# Attributes of the laws' examples.
FOLD = "image=[4, 5], block=[2, 3], strides=[2, 1], pads=[1, 0, 1, 0], dilations=[1, 1]"


@operator("col2im", "x")
class Col2Im(Op):
    """Columns [N, C * prod(block), blocks] added up into images [N, C, *image].

    Column l holds the block that the window meets at its l-th place in row-major order, so
    this is the transpose of cutting an image into windows.
    """

    image: tuple[int, ...]
    block: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def window(self) -> Window:
        return Window(self.block, self.strides, self.pads, self.dilations)

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype in NUMERIC, self, f"no meaning for {x.dtype}", x, code="WH1103")
        require(x.rank == 3, self, "columns need three axes", x)
        self.window.check(self, self.image)
        blocks = self.window.outputs(self, self.image)
        require(x.shape[2] == math.prod(blocks), self,
                f"{list(blocks)} blocks fit into the image", x)  # fmt: skip
        size = math.prod(self.block)
        require(x.shape[1] % size == 0, self, f"blocks have {size} elements", x)
        return x.with_shape((x.shape[0], x.shape[1] // size, *self.image))

    def reference(self, x: Array) -> Array:
        blocks = self.window.outputs(self, self.image)
        columns = x.astype(compute_dtype(dtype_of(x)).numpy, copy=False)
        columns = columns.reshape(len(x), x.shape[1] // math.prod(self.block), *self.block, *blocks)
        return self.window.overlap_add(columns, self.image).astype(x.dtype)

    def compute(self, x: Tensor) -> Compute:
        out = self.infer(x.type)
        inner = compute_dtype(x.dtype)
        blocks = self.window.outputs(self, self.image)
        k = self.window.kernel_indices()

        def body(n: Expr, c: Expr, *at: Expr) -> Expr:
            met, o = self.window.source(blocks, at, k)
            row = c * math.prod(self.block) + flat_index(k, self.block)
            value = select(met, cast(x[n, row, flat_index(o, blocks)], inner), const(0, inner))
            return cast(sum_(value, *reduction_axes(*k)), out.dtype)

        return compute(out.shape, body, "col2im")

    axioms = (
        law(f"col2im(add(x, y), {FOLD}) = add(col2im(x, {FOLD}), col2im(y, {FOLD}))", "real",
            when=("shape(x) == shape(y)",), x=(2, 12, 9), y=(2, 12, 9)),
        law(f"col2im(concat(x, y, axis=1), {FOLD}) = "
            f"concat(col2im(x, {FOLD}), col2im(y, {FOLD}), axis=1)", "exact",
            x=(2, 12, 9), y=(2, 6, 9)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls((4, 5), (2, 3), (2, 1), (1, 0, 1, 0), (1, 1)),
                   (TensorType((2, 12, 9), f32),)),
            Sample(cls((6,), (2,), (1,), (0, 0), (3,)), (TensorType((1, 2, 3), f32),)),
        )  # fmt: skip

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        rank = int(rng.integers(1, 4))
        block, strides, dilations = (
            tuple(int(v) for v in rng.integers(1, 4, rank)) for _ in range(3)
        )
        pads = tuple(int(v) for v in rng.integers(0, 3, 2 * rank))
        window = Window(block, strides, pads, dilations)
        image = tuple(span + int(rng.integers(0, 4)) for span in window.spans)
        op = cls(image, block, strides, pads, dilations)
        rows = math.prod(block) * int(rng.integers(1, 3))
        columns = math.prod(window.outputs(op, image))
        dtype = (f32, f16, i64)[int(rng.integers(3))]
        return Sample(op, (TensorType((2, rows, columns), dtype),))


@operator("deform_conv", "x", "w", "offset", "mask")
class DeformConv(Op):
    """Convolution whose windows look at displaced, interpolated positions.

    x [N, C, *spatial], w [M, C / groups, *kernel]; for every output position and kernel
    position, `offset` [N, offset_groups * kernel * axes, *outputs] moves where the input is
    read (linear between elements, zero outside) and `mask` [N, offset_groups * kernel,
    *outputs] scales what is read.  The input channels are divided among the offset groups.
    """

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1
    offset_groups: int = 1

    def window(self, w: Shape) -> Window:
        return Window(w[2:], self.strides, self.pads, self.dilations)

    def infer(
        self, x: TensorType, w: TensorType, offset: TensorType, mask: TensorType
    ) -> TensorType:
        given = (x, w, offset, mask)
        require(all(t.dtype == x.dtype for t in given) and x.dtype in FLOATS, self,
                "inputs are not of one floating-point type", *given, code="WH1103")  # fmt: skip
        require(x.rank >= 3 and w.rank == x.rank, self,
                "image and filters need the same spatial axes", *given)  # fmt: skip
        window = self.window(w.shape)
        window.check(self, x.shape[2:])
        require(self.groups >= 1 and x.shape[1] == w.shape[1] * self.groups
                and w.shape[0] % self.groups == 0, self,
                f"channels do not fit {self.groups} groups", *given)  # fmt: skip
        require(self.offset_groups >= 1 and x.shape[1] % self.offset_groups == 0, self,
                f"channels do not fit {self.offset_groups} offset groups", *given)  # fmt: skip
        outputs = window.outputs(self, x.shape[2:])
        places = self.offset_groups * math.prod(window.kernel)
        expected = (x.shape[0], places * (x.rank - 2), *outputs)
        require(offset.shape == expected, self, f"offset must be {list(expected)}", *given)
        expected = (x.shape[0], places, *outputs)
        require(mask.shape == expected, self, f"mask must be {list(expected)}", *given)
        return x.with_shape((x.shape[0], w.shape[0], *outputs))

    def reference(self, x: Array, w: Array, offset: Array, mask: Array) -> Array:
        inner = compute_dtype(dtype_of(x)).numpy
        window = self.window(w.shape)
        n, spatial, kernel = len(x), x.shape[2:], window.kernel
        outputs, axes, sets = offset.shape[2:], len(kernel), self.offset_groups
        places = (n, sets, math.prod(kernel), math.prod(outputs))
        moved = offset.astype(inner).reshape(n, sets, places[2], axes, places[3])
        positions = []
        for a in range(axes):
            shape = [1] * axes
            shape[a] = -1
            k = (np.arange(kernel[a]) * self.dilations[a]).reshape(shape)
            o = (np.arange(outputs[a]) * self.strides[a] - self.pads[a]).reshape(shape)
            k, o = np.broadcast_to(k, kernel).ravel(), np.broadcast_to(o, outputs).ravel()
            positions.append(moved[:, :, :, a] + (k[:, None] + o).astype(inner))
        # [N, offset group, *spatial, channel of it], read at [N, offset group, place, output]
        image = np.moveaxis(x.astype(inner).reshape(n, sets, x.shape[1] // sets, *spatial), 2, -1)
        batch, group = np.ogrid[:n, :sets]
        read: Array = np.zeros((*places, image.shape[-1]), inner)
        for corner in product((0, 1), repeat=axes):
            weight, inside = np.ones(places, inner), np.ones(places, np.bool_)
            at: list[Array] = []
            for p, side, extent in zip(positions, corner, spatial):
                low = np.floor(p)
                index = convert_array(low, i64) + side
                weight *= (p - low) if side else 1 - (p - low)
                inside &= (index >= 0) & (index < extent)
                at.append(np.clip(index, 0, extent - 1))
            lead = (batch[..., None, None], group[..., None, None])
            read += np.where(inside[..., None], weight[..., None] * image[(*lead, *at)], 0)
        read *= mask.astype(inner).reshape(*places)[..., None]
        columns = np.moveaxis(read, -1, 2)  # [N, offset group, channel, place, output]
        taps = w.shape[1] * places[2]
        columns = columns.reshape(n, self.groups, taps, places[3])
        filters = w.astype(inner).reshape(self.groups, len(w) // self.groups, taps)
        result = matrix_product(filters, columns)
        return result.reshape(n, len(w), *outputs).astype(x.dtype)

    def compute(self, x: Tensor, w: Tensor, offset: Tensor, mask: Tensor) -> Compute:
        out = self.infer(x.type, w.type, offset.type, mask.type)
        inner = compute_dtype(x.dtype)
        window = self.window(w.shape)
        axes, kernel = len(window.kernel), window.kernel
        per_offset = x.shape[1] // self.offset_groups

        def sampled(n: Expr, c: Expr, *rest: Expr) -> Expr:
            k, o = rest[:axes], rest[axes:]
            place = c // per_offset * math.prod(kernel) + flat_index(k, kernel)
            floors: list[Expr] = []
            fractions: list[Expr] = []
            for a, still in enumerate(window.meeting(o, k)):
                shift = cast(offset[(n, place * axes + a, *o)], inner)
                at = cast(still, inner) + shift
                floor = call("floor", at)
                floors.append(cast(floor, i64))
                fractions.append(at - floor)
            total: Expr = const(0, inner)
            for corner in product((0, 1), repeat=axes):
                at_corner = tuple(f + side for f, side in zip(floors, corner))
                value = cast(x[(n, c, *at_corner)], inner)
                for fraction, side in zip(fractions, corner):
                    value = value * (fraction if side else const(1, inner) - fraction)
                tests = [as_expr(0) <= i for i in at_corner]
                tests += [i < extent for i, extent in zip(at_corner, x.shape[2:])]
                total = total + select(all_of(tests), value, const(0, inner))
            return total * cast(mask[(n, place, *o)], inner)

        columns = compute((*x.shape[:2], *kernel, *out.shape[2:]), sampled, "columns")
        per_group = w.shape[0] // self.groups
        c, k = reduction(w.shape[1], "c"), window.kernel_indices()

        def body(n: Expr, m: Expr, *o: Expr) -> Expr:
            group = as_expr(0) if self.groups == 1 else m // per_group
            value = columns[(n, group * w.shape[1] + c, *k, *o)] * cast(w[(m, c, *k)], inner)
            return cast(sum_(value, *reduction_axes(c, *k)), out.dtype)

        return compute(out.shape, body, "deform_conv")

    axioms = (
        law("deform_conv(x, add(w, v), o, m, strides=[1, 1], pads=[0, 0, 0, 0], "
            "dilations=[1, 1]) = add("
            "deform_conv(x, w, o, m, strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1]), "
            "deform_conv(x, v, o, m, strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1]))",
            "real", when=("shape(w) == shape(v)",), x=(1, 2, 4, 4), w=(3, 2, 2, 2), v=(3, 2, 2, 2),
            o=(1, 8, 3, 3), m=(1, 4, 3, 3)),
        law("deform_conv(add(x, y), w, o, m, strides=[1, 1], pads=[0, 0, 0, 0], "
            "dilations=[1, 1]) = add("
            "deform_conv(x, w, o, m, strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1]), "
            "deform_conv(y, w, o, m, strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1]))",
            "real", when=("shape(x) == shape(y)",), x=(1, 2, 4, 4), y=(1, 2, 4, 4), w=(3, 2, 2, 2),
            o=(1, 8, 3, 3), m=(1, 4, 3, 3)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            _deformed(cls((1, 1), (1, 1, 1, 1), (1, 1)), (1, 2, 4, 5), (3, 2, 3, 3)),
            _deformed(cls((2, 1), (0, 1, 1, 0), (1, 2), 2, 2), (2, 4, 5, 5), (4, 2, 2, 2)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        axes = int(rng.integers(1, 4))
        groups, sets, batch = (int(v) for v in rng.integers(1, 3, 3))
        kernel, strides, dilations = (
            tuple(int(v) for v in rng.integers(1, 3, axes)) for _ in range(3)
        )
        pads = tuple(int(v) for v in rng.integers(0, 2, 2 * axes))
        spatial = tuple(int(v) for v in rng.integers(3, 6, axes))
        op = cls(strides, pads, dilations, groups, sets)
        return _deformed(op, (batch, 2 * groups, *spatial), (2 * groups, 2, *kernel))


def _deformed(op: DeformConv, x: Shape, w: Shape) -> Sample:
    """The operator on inputs of these shapes, with fitting offsets and mask."""
    outputs = op.window(w).outputs(op, x[2:])
    places = op.offset_groups * math.prod(w[2:])
    shapes = (x, w, (x[0], places * len(outputs), *outputs), (x[0], places, *outputs))
    return Sample(op, tuple(TensorType(s, f32) for s in shapes))
