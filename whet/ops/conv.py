"""Convolution and transposed convolution over any number of spatial axes.

Values are [batch, channels, *spatial]; a bias is a separate addition.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypedDict

import numpy as np

from whet.core.dtypes import NUMERIC, DType, compute_dtype, dtype_of, f16, f32, i32
from whet.core.types import Array, Shape, TensorType, type_of
from whet.ir.expr import Axis, Expr, as_expr, cast, const, select
from whet.ir.tensor import Compute, Tensor, compute, sum_
from whet.ops.base import Law, Op, Sample, law, operator, require
from whet.ops.matmul import matrix_product
from whet.ops.shared.spatial_laws import (
    SPATIAL,
    added,
    border,
    kernel_of_one,
    only_in_space,
    per_channel,
    repeated,
    still,
    strided,
    swapped,
)
from whet.ops.shared.window import Window, reduction, reduction_axes

COLUMNS_LIMIT_BYTES = 256 << 20
"""Largest copy of windows that the reference makes at once."""

# Attributes of the laws' examples: uneven strides and pads, so that no law holds by symmetry.
UNEVEN = "strides=[1, 2], pads=[1, 0, 1, 2], dilations=[1, 1]"
ANY = "strides=s, pads=p, dilations=d"


class Example(TypedDict):
    """Values of the attribute variables."""

    s: Shape
    p: Shape
    d: Shape


EXAMPLE = Example(s=(1, 2), p=(1, 0, 1, 2), d=(1, 1))
VOLUME = Example(s=(1, 2, 1), p=(1, 0, 0, 1, 2, 0), d=(1, 1, 2))
EXAMPLES = {2: EXAMPLE, 3: VOLUME}
IMAGES: dict[int, Shape] = {2: (4, 5), 3: (4, 5, 6)}
KERNELS: dict[int, Shape] = {2: (3, 3), 3: (3, 3, 2)}
"""Spatial extents of the laws' examples, by the number of spatial axes."""
POINT = still(2)


class SpreadExample(Example):
    """Values of the attribute variables of a transposed convolution."""

    o: Shape


SPREAD = f"{ANY}, output_padding=o"
SPREAD_EXAMPLES = {
    2: SpreadExample(s=(2, 1), p=(0, 1, 1, 0), d=(1, 1), o=(1, 0)),
    3: SpreadExample(s=(2, 1, 1), p=(0, 1, 0, 1, 0, 0), d=(1, 1, 2), o=(1, 0, 0)),
}


def _check_types(op: Op, x: TensorType, w: TensorType, groups: int) -> None:
    require(x.dtype == w.dtype, op, "element types differ", x, w, code="WH1103")
    require(x.dtype in NUMERIC, op, f"no meaning for {x.dtype}", x, w, code="WH1103")
    require(x.rank >= 3 and w.rank == x.rank, op,
            "both inputs need two leading and the same number of spatial axes", x, w)  # fmt: skip
    require(groups >= 1, op, f"{groups} groups", x, w, code="WH1104")


def _alike(n: int) -> tuple[str, ...]:
    """That images x and z, and filters w and v, differ in their channels at most."""
    batch = ("dim(x, 0) == dim(z, 0)",)
    images = tuple(f"dim(x, {2 + axis}) == dim(z, {2 + axis})" for axis in range(n))
    return (*batch, *images, *(f"dim(w, {2 + axis}) == dim(v, {2 + axis})" for axis in range(n)))


def _spatial_laws(n: int) -> Iterator[Law]:
    """Laws of convolutions over n spatial axes that speak of single axes."""
    example, spatial, kernel = EXAMPLES[n], IMAGES[n], KERNELS[n]
    one, still_ = (1,) * n, still(n)
    # A factor per output channel goes into the filters, whatever the groups.
    yield law(f"mul(conv(x, w, {ANY}, groups=g), c) = "
              f"conv(x, mul(w, transpose(c, perm={swapped(n)})), {ANY}, groups=g)", "real",
              when=(f"shape(c) == {per_channel('dim(w, 0)', n)}",), **example, g=2,
              x=(2, 4, *spatial), w=(6, 2, *kernel), c=(1, 6, *one))  # fmt: skip
    # A factor per input channel does so only in one group.
    yield law(f"conv(mul(x, c), w, {ANY}, groups=1) = conv(x, mul(w, c), {ANY}, groups=1)",
              "real", when=(f"shape(c) == {per_channel('dim(x, 1)', n)}",), **example,
              x=(2, 3, *spatial), w=(4, 3, *kernel), c=(1, 3, *one))  # fmt: skip
    # An addend per input channel becomes one per output channel where nothing is padded.
    extents = ", ".join(f"dim(w, {2 + axis})" for axis in range(n))
    inside = f"strides=s, pads={repeated(0, 2 * n)}, dilations=d, groups=g"
    yield law(f"conv(add(x, c), w, {inside}) = add(conv(x, w, {inside}), "
              f"conv(expand(c, shape=[1, dim(c, 1), {extents}]), w, {still_}, groups=g))", "real",
              when=(f"shape(c) == {per_channel('dim(x, 1)', n)}",), s=example["s"],
              d=example["d"], g=2, x=(2, 4, *spatial), w=(6, 2, *kernel),
              c=(1, 4, *one))  # fmt: skip
    yield law(f"add(conv(x, w, {ANY}, groups=1), conv(z, v, {ANY}, groups=1)) = "
              f"conv(concat(x, z, axis=1), concat(w, v, axis=1), {ANY}, groups=1)", "real",
              when=("dim(x, 1) == dim(w, 1)", "dim(w, 0) == dim(v, 0)", *_alike(n)),
              **example, x=(2, 3, *spatial), w=(4, 3, *kernel), z=(2, 2, *spatial),
              v=(4, 2, *kernel))  # fmt: skip
    # A 1x1 convolution after another one multiplies into its filters.
    yield law(f"conv(conv(x, w, {ANY}, groups=1), v, {still_}, groups=1) = conv(x, "
              f"transpose(conv(transpose(w, perm={swapped(n)}), v, {still_}, groups=1), "
              f"perm={swapped(n)}), {ANY}, groups=1)", "real", when=kernel_of_one("v", n),
              **example, x=(2, 3, *spatial), w=(4, 3, *kernel), v=(5, 4, *one))  # fmt: skip
    # Padding can be done beforehand, and what was padded before need not be.
    yield law(f"conv(x, w, {ANY}, groups=g) = conv(pad(x, 0, pads={border('p', n)}), w, "
              f"strides=s, pads={repeated(0, 2 * n)}, dilations=d, groups=g)", "exact",
              **example, g=2, x=(2, 4, *spatial), w=(6, 2, *kernel))  # fmt: skip
    yield law(f"conv(pad(x, 0, pads=q), w, {ANY}, groups=g) = "
              f"conv(x, w, strides=s, pads={added('p', 'q', n)}, dilations=d, groups=g)", "exact",
              when=(only_in_space("q", n),), **example, g=2,
              q=(0, 0, *(1, 2, 0)[:n], 0, 0, *(2, 0, 1)[:n]), x=(2, 4, *spatial),
              w=(6, 2, *kernel))  # fmt: skip
    # With kernel 1 a stride only leaves out elements, which can be done beforehand.
    yield law(f"conv(x, w, strides=s, pads={repeated(0, 2 * n)}, dilations=d, groups=g) = "
              f"conv({strided('x', 's', n)}, w, {still_}, groups=g)", "exact",
              when=kernel_of_one("w", n), s=example["s"], d=example["d"], g=2,
              x=(2, 4, *spatial), w=(6, 2, *one))  # fmt: skip


@operator("conv", "x", "w")
class Conv(Op):
    """Correlation of x [N, C, *spatial] with filters w [M, C / groups, *kernel].

    Output channel m sees only the input channels of its group, m * groups // M.  `pads` are
    zeros: begins of all axes, then ends.  Half precision is summed in f32 and rounded once.
    """

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1

    def window(self, w: Shape) -> Window:
        return Window(w[2:], self.strides, self.pads, self.dilations)

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        _check_types(self, x, w, self.groups)
        window = self.window(w.shape)
        window.check(self, x.shape[2:])
        require(x.shape[1] == w.shape[1] * self.groups and w.shape[0] % self.groups == 0, self,
                f"channels do not fit {self.groups} groups", x, w)  # fmt: skip
        return x.with_shape((x.shape[0], w.shape[0], *window.outputs(self, x.shape[2:])))

    def compute(self, x: Tensor, w: Tensor) -> Compute:
        out = self.infer(x.type, w.type)
        inner = compute_dtype(x.dtype)
        window = self.window(w.shape)
        per_group = w.shape[0] // self.groups
        c, k = reduction(w.shape[1], "c"), window.kernel_indices()

        def body(n: Expr, m: Expr, *o: Axis) -> Expr:
            group = as_expr(0) if self.groups == 1 else m // per_group
            value = window.read(x, (n, group * w.shape[1] + c), o, k, 0)
            product = cast(value, inner) * cast(w[(m, c, *k)], inner)
            return cast(sum_(product, *reduction_axes(c, *k)), out.dtype)

        return compute(out.shape, body, "conv")

    def reference(self, x: Array, w: Array) -> Array:
        inner = compute_dtype(dtype_of(x)).numpy
        window = self.window(w.shape)
        outputs = window.outputs(self, x.shape[2:])
        padded = window.pad(x.astype(inner, copy=False), outputs, 0)
        grouped = padded.reshape(len(x), self.groups, w.shape[1], *padded.shape[2:])
        filters = w.astype(inner, copy=False)
        filters = filters.reshape(self.groups, len(w) // self.groups, *w.shape[1:])
        if self.groups > 1 and w.shape[1] == 1:
            result = _depthwise(grouped[:, :, 0], filters[:, :, 0], window, outputs)
        else:
            result = _by_columns(grouped, filters, window, outputs)
        return result.reshape(len(x), len(w), *outputs).astype(x.dtype, copy=False)

    axioms = (
        # Linear in both inputs, whatever the groups.
        law(f"conv(x, add(w, v), {ANY}, groups=g) = "
            f"add(conv(x, w, {ANY}, groups=g), conv(x, v, {ANY}, groups=g))", "real",
            when=("shape(w) == shape(v)",), **EXAMPLE, g=2,
            x=(2, 4, 5, 6), w=(6, 2, 3, 3), v=(6, 2, 3, 3)),
        law(f"conv(add(x, y), w, {ANY}, groups=g) = "
            f"add(conv(x, w, {ANY}, groups=g), conv(y, w, {ANY}, groups=g))", "real",
            when=("shape(x) == shape(y)",), **EXAMPLE, g=2,
            x=(2, 4, 5, 6), y=(2, 4, 5, 6), w=(6, 2, 3, 3)),
        law(f"conv(mul(x, c), w, {ANY}, groups=g) = mul(conv(x, w, {ANY}, groups=g), c)",
            "real", **EXAMPLE, g=2, x=(2, 4, 5, 6), w=(6, 2, 3, 3), c=()),
        law(f"conv(x, mul(w, c), {ANY}, groups=g) = mul(conv(x, w, {ANY}, groups=g), c)",
            "real", **EXAMPLE, g=2, x=(2, 4, 5, 6), w=(6, 2, 3, 3), c=()),
        *(law for n in SPATIAL for law in _spatial_laws(n)),
        # Merging along the batch, whatever the groups.
        law(f"concat(conv(x, w, {ANY}, groups=g), conv(y, w, {ANY}, groups=g), axis=0) = "
            f"conv(concat(x, y, axis=0), w, {ANY}, groups=g)", "exact", **EXAMPLE, g=2,
            x=(2, 4, 5, 6), y=(3, 4, 5, 6), w=(6, 2, 3, 3)),
        # Merging along channels is false for groups > 1: channels would change their group.
        law(f"concat(conv(x, w, {ANY}, groups=1), conv(x, v, {ANY}, groups=1), axis=1) = "
            f"conv(x, concat(w, v, axis=0), {ANY}, groups=1)", "exact", **EXAMPLE,
            x=(2, 3, 4, 5), w=(4, 3, 3, 3), v=(2, 3, 3, 3)),
        # Two convolutions of equal shapes side by side are one of twice the groups.
        law(f"concat(conv(x, w, {ANY}, groups=g), conv(y, v, {ANY}, groups=g), axis=1) = "
            f"conv(concat(x, y, axis=1), concat(w, v, axis=0), {ANY}, groups=2 * g)", "exact",
            when=("shape(x) == shape(y)", "shape(w) == shape(v)"), **EXAMPLE, g=1,
            x=(2, 3, 4, 5), w=(4, 3, 3, 3), y=(2, 3, 4, 5), v=(4, 3, 3, 3)),
        law(f"conv(x, w, {UNEVEN}, groups=2) = conv(x, pad(w, 0, pads=[0, 0, 1, 1, 0, 0, 1, 1]), "
            "strides=[1, 2], pads=[2, 1, 2, 3], dilations=[1, 1], groups=2)", "real",
            x=(2, 4, 5, 6), w=(6, 2, 3, 3)),
        # Kernel 1 and stride 1 is a matrix product over the channels.
        law(f"conv(x, w, {POINT}, groups=1) = reshape(matmul(reshape(w, shape=[dim(w, 0), "
            "dim(w, 1)]), reshape(x, shape=[dim(x, 0), dim(x, 1), dim(x, 2) * dim(x, 3)])), "
            "shape=[dim(x, 0), dim(w, 0), dim(x, 2), dim(x, 3)])", "real",
            when=("dim(w, 2) == 1", "dim(w, 3) == 1"), x=(2, 3, 4, 5), w=(4, 3, 1, 1)),
        # The transposed image under transposed filters gives the transposed result.
        law("transpose(conv(x, w, strides=[1, 2], pads=[0, 1, 2, 3], dilations=[2, 1]), "
            "perm=[0, 1, 3, 2]) = conv(transpose(x, perm=[0, 1, 3, 2]), "
            "transpose(w, perm=[0, 1, 3, 2]), strides=[2, 1], pads=[1, 0, 3, 2], "
            "dilations=[1, 2])", "real", x=(2, 3, 6, 5), w=(4, 3, 2, 3)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        def case(op: Conv, x: Shape, w: Shape) -> Sample:
            return Sample(op, (TensorType(x, f32), TensorType(w, f32)))

        return (
            case(cls((1, 1), (1, 1, 1, 1), (1, 1)), (1, 3, 5, 6), (4, 3, 3, 3)),
            case(cls((2,), (0, 1), (2,), 2), (2, 4, 9), (6, 2, 3)),
            case(cls((1, 2), (0, 2, 1, 0), (1, 1), 4), (1, 4, 4, 5), (4, 1, 2, 3)),
            case(cls((1, 1, 2), (1, 0, 1, 0, 0, 1), (1, 1, 1)), (1, 2, 3, 4, 5), (2, 2, 2, 1, 3)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        window, groups, x, w, dtype = _random_convolution(rng)
        op = cls(window.strides, window.pads, window.dilations, groups)
        return Sample(op, (TensorType(x, dtype), TensorType(w, dtype)))


def _depthwise(x: Array, w: Array, window: Window, outputs: Shape) -> Array:
    """x [N, G, *padded], w [G, M, *kernel]: each channel with its own M filters."""
    result = np.zeros((len(x), *w.shape[:2], *outputs), x.dtype)
    ones = (1,) * len(outputs)
    for k, tap in zip(np.ndindex(window.kernel), window.taps(x, outputs)):
        result += tap[:, :, None] * w[(..., *k)].reshape(1, *w.shape[:2], *ones)
    return result


def _by_columns(x: Array, w: Array, window: Window, outputs: Shape) -> Array:
    """x [N, G, C, *padded], w [G, M, C, *kernel]: windows become columns of a matrix product.

    Copying all windows would take kernel-size times the memory of the input, so it is done
    for some images or rows at a time.
    """
    n, groups, channels = x.shape[:3]
    per_group = w.shape[1]
    depth = channels * math.prod(window.kernel)
    rows_of_filters = w.reshape(groups, per_group, depth)
    windows = window.view(x, outputs)
    row_axis = 3 + len(window.kernel)
    lead = (slice(None),) * (row_axis - 1)
    result = np.empty((n, groups, per_group, *outputs), x.dtype)
    row_bytes = groups * depth * math.prod(outputs[1:]) * x.itemsize
    for images, rows in _blocks(n, outputs[0], row_bytes):
        block = windows[(images, *lead, rows)]
        shape = (len(block), groups, per_group, block.shape[row_axis], *outputs[1:])
        columns = block.reshape(len(block), groups, depth, math.prod(shape[3:]))
        result[images, :, :, rows] = matrix_product(rows_of_filters, columns).reshape(shape)
    return result


def _blocks(images: int, rows: int, row_bytes: int) -> Iterator[tuple[slice, slice]]:
    """Parts of all rows of all images that keep to the limit, as large as possible."""
    fitting = max(1, COLUMNS_LIMIT_BYTES // max(1, row_bytes))
    images_at_once, rows_at_once = max(1, fitting // rows), min(fitting, rows)
    for i in range(0, images, images_at_once):
        for r in range(0, rows, rows_at_once):
            yield slice(i, i + images_at_once), slice(r, r + rows_at_once)


def _spread_laws(n: int) -> Iterator[Law]:
    """Laws of transposed convolutions over n spatial axes."""
    example, spatial, kernel = SPREAD_EXAMPLES[n], (3, 4, 2)[:n], (3, 2, 3)[:n]
    one = (1,) * n

    def spread(x: str, w: str, groups: int | str = "g") -> str:
        return f"conv_transpose({x}, {w}, {SPREAD}, groups={groups})"

    x, y, w = (2, 4, *spatial), (1, 4, *spatial), (4, 3, *kernel)
    yield law(f"{spread('x', 'add(w, v)')} = add({spread('x', 'w')}, {spread('x', 'v')})", "real",
              when=("shape(w) == shape(v)",), **example, g=2, x=x, w=w, v=w)  # fmt: skip
    yield law(f"{spread('add(x, y)', 'w')} = add({spread('x', 'w')}, {spread('y', 'w')})", "real",
              when=("shape(x) == shape(y)",), **example, g=2, x=x, y=x, w=w)  # fmt: skip
    yield law(f"{spread('mul(x, c)', 'w')} = mul({spread('x', 'w')}, c)", "real",
              **example, g=2, x=x, w=w, c=())  # fmt: skip
    yield law(f"{spread('x', 'mul(w, c)')} = mul({spread('x', 'w')}, c)", "real",
              **example, g=2, x=x, w=w, c=())  # fmt: skip
    yield law(f"concat({spread('x', 'w')}, {spread('y', 'w')}, axis=0) = "
              f"{spread('concat(x, y, axis=0)', 'w')}", "exact",
              **example, g=2, x=x, y=y, w=w)  # fmt: skip
    # Filters are laid out [C, M]: input channels merge on their axis 0, output ones on 1.
    yield law(f"add({spread('x', 'w', 1)}, {spread('z', 'v', 1)}) = "
              f"{spread('concat(x, z, axis=1)', 'concat(w, v, axis=0)', 1)}", "real", **example,
              when=("dim(x, 1) == dim(w, 0)", "dim(w, 1) == dim(v, 1)", *_alike(n)),
              x=x, w=w, z=(2, 2, *spatial), v=(2, 3, *kernel))  # fmt: skip
    yield law(f"concat({spread('x', 'w', 1)}, {spread('x', 'v', 1)}, axis=1) = "
              f"{spread('x', 'concat(w, v, axis=1)', 1)}", "exact", **example,
              x=x, w=w, v=(4, 2, *kernel))  # fmt: skip
    # A factor per output channel lies along the filters' second axis, one per input channel
    # along the first.
    yield law(f"mul({spread('x', 'w', 1)}, c) = {spread('x', 'mul(w, c)', 1)}", "real",
              when=(f"shape(c) == {per_channel('dim(w, 1)', n)}",), **example,
              x=x, w=w, c=(1, 3, *one))  # fmt: skip
    turned = f"transpose(c, perm={swapped(n)})"
    yield law(f"{spread('mul(x, c)', 'w')} = {spread('x', f'mul(w, {turned})')}", "real",
              when=(f"shape(c) == {per_channel('dim(x, 1)', n)}",), **example, g=2,
              x=x, w=w, c=(1, 4, *one))  # fmt: skip
    # With kernel 1 and stride 1 it is a convolution with the filters' axes swapped.
    yield law(f"conv_transpose(x, w, {still(n)}, output_padding={repeated(0, n)}) = "
              f"conv(x, transpose(w, perm={swapped(n)}), {still(n)})", "real",
              when=kernel_of_one("w", n), x=x, w=(4, 3, *one))  # fmt: skip


@operator("conv_transpose", "x", "w")
class ConvTranspose(Op):
    """Transposed convolution of x [N, C, *spatial] with filters w [C, M / groups, *kernel].

    Every input element adds its multiple of the filter at position * stride; `pads` are cut
    off the result, and `output_padding` extends it at the end.
    """

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int = 1

    def window(self, w: Shape) -> Window:
        return Window(w[2:], self.strides, self.pads, self.dilations)

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        _check_types(self, x, w, self.groups)
        window = self.window(w.shape)
        window.check(self, x.shape[2:])
        require(x.shape[1] == w.shape[0] and w.shape[0] % self.groups == 0, self,
                f"channels do not fit {self.groups} groups", x, w)  # fmt: skip
        require(len(self.output_padding) == x.rank - 2 and min(self.output_padding) >= 0, self,
                f"output_padding {list(self.output_padding)}", x, w, code="WH1104")  # fmt: skip
        image = tuple(
            s * (i - 1) + span + extra - b - e
            for i, s, span, extra, b, e in zip(
                x.shape[2:], self.strides, window.spans, self.output_padding,
                window.begins, window.ends,
            )
        )  # fmt: skip
        require(min(x.shape[2:]) >= 1, self, "an image without elements", x, w)
        require(min(image) >= 1, self, f"pads {list(self.pads)} cut everything off", x, w)
        return x.with_shape((x.shape[0], w.shape[1] * self.groups, *image))

    def compute(self, x: Tensor, w: Tensor) -> Compute:
        out = self.infer(x.type, w.type)
        inner = compute_dtype(x.dtype)
        window = self.window(w.shape)
        channels, per_group = w.shape[0] // self.groups, w.shape[1]
        c, k = reduction(channels, "c"), window.kernel_indices()

        def body(n: Expr, m: Expr, *at: Expr) -> Expr:
            if self.groups == 1:
                channel, own = c, m
            else:
                channel, own = m // per_group * channels + c, m % per_group
            met, o = window.source(x.shape[2:], at, k)
            product = cast(x[(n, channel, *o)], inner) * cast(w[(channel, own, *k)], inner)
            value = select(met, product, const(0, inner))
            return cast(sum_(value, *reduction_axes(c, *k)), out.dtype)

        return compute(out.shape, body, "conv_transpose")

    def reference(self, x: Array, w: Array) -> Array:
        inner = compute_dtype(dtype_of(x)).numpy
        out = self.infer(type_of(x), type_of(w)).shape
        spatial, window = x.shape[2:], self.window(w.shape)
        channels, taps = len(w) // self.groups, w.shape[1] * math.prod(window.kernel)
        filters = w.astype(inner, copy=False).reshape(self.groups, channels, taps)
        filters = np.swapaxes(filters, 1, 2)
        values = x.astype(inner, copy=False)
        values = values.reshape(len(x), self.groups, channels, math.prod(spatial))
        result = np.empty(out, x.dtype)
        image_bytes = out[1] * math.prod((*window.kernel, *spatial)) * inner.itemsize
        for images, _ in _blocks(len(x), 1, image_bytes):
            columns = matrix_product(filters, values[images])
            columns = columns.reshape(len(columns), out[1], *window.kernel, *spatial)
            result[images] = window.overlap_add(columns, out[2:])
        return result

    axioms = (
        *(law for n in SPATIAL for law in _spread_laws(n)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        def case(op: ConvTranspose, x: Shape, w: Shape) -> Sample:
            return Sample(op, (TensorType(x, f32), TensorType(w, f32)))

        return (
            case(cls((2, 2), (1, 1, 1, 1), (1, 1), (1, 1)), (1, 3, 3, 4), (3, 4, 3, 3)),
            case(cls((3,), (0, 1), (2,), (0,), 2), (2, 4, 4), (4, 3, 3)),
            case(cls((1, 2, 1), (0,) * 6, (1, 1, 1), (0, 0, 0)), (1, 2, 2, 3, 2), (2, 2, 2, 2, 1)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        window, groups, x, w, dtype = _random_convolution(rng)
        spatial = len(window.kernel)
        extra = tuple(int(e) for e in rng.integers(0, 2, spatial))
        # Cut at most what the kernel's span adds, so that something is left.
        pads = tuple(min(p, span // 2) for p, span in zip(window.pads, window.spans * 2))
        op = cls(window.strides, pads, window.dilations, extra, groups)
        filters = (x[1], int(rng.integers(1, 4)), *w[2:])
        return Sample(op, (TensorType(x, dtype), TensorType(filters, dtype)))


def _random_convolution(
    rng: np.random.Generator,
) -> tuple[Window, int, Shape, Shape, DType]:
    """A window, groups, and the shapes of x and of the filters, for one to three axes."""
    rank = int(rng.integers(1, 4))

    def draw(low: int, high: int, count: int = rank) -> Shape:
        return tuple(int(v) for v in rng.integers(low, high, count))

    window = Window(draw(1, 4), draw(1, 4), draw(0, 3, 2 * rank), draw(1, 3))
    groups = int(rng.choice([1, 1, 2, 3]))
    per_in, per_out, batch = draw(1, 3, 3)
    spatial = tuple(span + int(rng.integers(0, 4)) for span in window.spans)
    x = (batch, groups * per_in, *spatial)
    w = (groups * per_out, per_in, *window.kernel)
    dtype = (f32, f32, f16, i32)[int(rng.integers(4))]
    return window, groups, x, w, dtype
