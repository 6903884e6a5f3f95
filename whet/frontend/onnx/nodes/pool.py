"""ONNX pooling, regions of interest and sampling."""

from __future__ import annotations

import numpy as np

from whet.frontend.onnx.mapping import Context, maps
from whet.frontend.onnx.nodes.window import explicit_pads, per_axis, read_window
from whet.graph.graph import Value
from whet.ops.fill import Pad
from whet.ops.grid_sample import GridSample, Mode
from whet.ops.matmul import MatMul
from whet.ops.movement import Reshape, Transpose
from whet.ops.pool import AvgPool, LpPool, MaxPool, MaxPoolIndex, MaxUnpool
from whet.ops.reduce import ReduceMax, ReduceMean
from whet.ops.roi import MaxRoiPool, RoiAlign
from whet.ops.shared.window import Window


def _window(c: Context) -> tuple[Window, bool]:
    """The node's window and whether the last one may run over the end.

    Under `auto_pad` the number of outputs is the same in both modes.
    """
    window = read_window(c, c.type(0).shape[2:], tuple(c.attr("kernel_shape")))
    explicit = c.attr("auto_pad", "NOTSET") in ("NOTSET", "")
    return window, explicit and bool(c.attr("ceil_mode", 0))


@maps("MaxPool")
def max_pool(c: Context) -> Value | tuple[Value, Value]:
    w, ceil_mode = _window(c)
    largest = c(MaxPool(w.kernel, w.strides, w.pads, w.dilations, ceil_mode), c.input(0))
    if c.n_outputs < 2:
        return largest
    column_major = bool(c.attr("storage_order", 0))
    index = MaxPoolIndex(w.kernel, w.strides, w.pads, w.dilations, ceil_mode, column_major)
    return largest, c(index, c.input(0))


@maps("AveragePool", since=7)
def average_pool(c: Context) -> Value:
    w, ceil_mode = _window(c)
    count_pads = bool(c.attr("count_include_pad", 0))
    op = AvgPool(w.kernel, w.strides, w.pads, w.dilations, ceil_mode, count_pads)
    return c(op, c.input(0))


@maps("LpPool", since=2)
def lp_pool(c: Context) -> Value:
    w, ceil_mode = _window(c)
    op = LpPool(w.kernel, w.strides, w.pads, w.dilations, ceil_mode, c.attr("p", 2))
    return c(op, c.input(0))


@maps("GlobalLpPool", since=2)
def global_lp_pool(c: Context) -> Value:
    spatial = c.type(0).shape[2:]
    ones = (1,) * len(spatial)
    return c(LpPool(spatial, ones, (0,) * 2 * len(spatial), ones, p=c.attr("p", 2)), c.input(0))


@maps("GlobalAveragePool")
def global_average_pool(c: Context) -> Value:
    return c(ReduceMean(tuple(range(2, c.type(0).rank)), True), c.input(0))


@maps("GlobalMaxPool")
def global_max_pool(c: Context) -> Value:
    return c(ReduceMax(tuple(range(2, c.type(0).rank)), True), c.input(0))


@maps("MaxUnpool")
def max_unpool(c: Context) -> Value:
    """Indices count in the shape that the window implies; a given larger one is filled up."""
    x = c.type(0)
    spatial = x.shape[2:]
    kernel, strides = tuple(c.attr("kernel_shape")), per_axis(c, "strides", spatial)
    window = Window(kernel, strides, explicit_pads(c, spatial), (1,) * len(spatial))
    shape = (
        *x.shape[:2],
        *(
            (i - 1) * s + k - b - e
            for i, s, k, b, e in zip(spatial, strides, kernel, window.begins, window.ends)
        ),
    )
    result = c(MaxUnpool(shape), c.input(0), c.input(1))
    if c.optional(2) is None:
        return result
    wanted = c.const_ints(2)
    rest = tuple(w - got for w, got in zip(wanted, shape))
    if len(wanted) != len(shape) or min(rest) < 0:
        c.unsupported(f"output_shape {list(wanted)} where the window gives {list(shape)}")
    if not any(rest):
        return result
    zero = c.constant(0, x.dtype)
    return c(Pad((*(0 for _ in rest), *rest)), result, zero)


@maps("MaxRoiPool")
def max_roi_pool(c: Context) -> Value:
    match c.attr("pooled_shape"):
        case [height, width]:
            op = MaxRoiPool((height, width), c.attr("spatial_scale", 1.0))
        case other:
            c.unsupported(f"pooled_shape {other}")
    return c(op, c.input(0), c.input(1))


def _roi_align(c: Context, coordinates: str) -> Value:
    mode = c.attr("mode", "avg")
    if mode not in ("avg", "max") or coordinates not in ("half_pixel", "output_half_pixel"):
        c.unsupported(f"mode '{mode}' with coordinates '{coordinates}'")
    op = RoiAlign(
        (c.attr("output_height", 1), c.attr("output_width", 1)),
        c.attr("sampling_ratio", 0),
        c.attr("spatial_scale", 1.0),
        mode,
        coordinates == "half_pixel",
    )
    return c(op, c.input(0), c.input(1), c.input(2))


@maps("RoiAlign", since=10)
def roi_align_10(c: Context) -> Value:
    """Before opset 16 there was no choice of coordinates."""
    return _roi_align(c, "output_half_pixel")


@maps("RoiAlign", since=16)
def roi_align(c: Context) -> Value:
    return _roi_align(c, c.attr("coordinate_transformation_mode", "half_pixel"))


_MODES: dict[str, Mode] = {
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
    "nearest": "nearest",
}


@maps("GridSample")
def grid_sample(c: Context) -> Value:
    mode, padding = c.attr("mode", "linear"), c.attr("padding_mode", "zeros")
    if mode not in _MODES or padding not in ("zeros", "border", "reflection"):
        c.unsupported(f"mode '{mode}' with padding '{padding}'")
    align = bool(c.attr("align_corners", 0))
    return c(GridSample(_MODES[mode], padding, align), c.input(0), c.input(1))


@maps("AffineGrid")
def affine_grid(c: Context) -> Value:
    """Every pixel's place in another image: those of the pixels, as rows (x, y, 1), times theta.

    The body that ONNX declares loses the batch of a single flat image.  An axis of one pixel
    lies at 1 where corners are aligned, as in ONNX Runtime.
    """
    theta, (batch, _, *extents) = c.input(0), c.const_ints(1)
    shape, space = theta.tensor_type.shape, len(extents)
    c.require(space in (2, 3) and shape == (batch, space, space + 1), f"theta {list(shape)}")
    ends = [0.0 if c.attr("align_corners", 0) else 1.0 / max(n, 1) for n in extents]
    axes = [np.linspace(end - 1, 1 - end, n) if n > 1 or end else np.ones(n)
            for n, end in zip(extents, ends)]  # fmt: skip
    places = np.meshgrid(*axes, indexing="ij")[::-1]
    rows = np.stack([*places, np.ones(extents)], -1).reshape(-1, space + 1)
    grid = c.constant(rows, theta.tensor_type.dtype)
    found = c(MatMul(), grid, c(Transpose((0, 2, 1)), theta))
    return c(Reshape((batch, *extents, space)), found)
