"""ONNX Resize in all its versions, and Upsample.

Extents, factors and the part of the input that is read are resolved here for every axis;
`axes`, `sizes` and the aspect-ratio policies do not reach the operator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from whet.frontend.onnx.mapping import Context, maps, normalized_axis
from whet.graph.graph import Value
from whet.ops.resample import NearestMode, ResizeMode
from whet.ops.resize import Resize

MODES: dict[str, ResizeMode] = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
}


@maps("Resize", since=11)
def resize(c: Context) -> Value:
    x = c.type(0)
    axes = [normalized_axis(a, x.rank) for a in c.attr("axes") or range(x.rank)]
    shape, scales = list(x.shape), [1.0] * x.rank
    if _given(c, 2):
        for axis, scale in zip(axes, map(float, c.const(2)), strict=True):
            scales[axis], shape[axis] = scale, _scaled(x.shape[axis], scale)
    elif _given(c, 3):
        old = [x.shape[a] for a in axes]
        new, factors = _resolve_sizes(c, old, c.const_ints(3))
        for axis, extent, factor in zip(axes, new, factors, strict=True):
            shape[axis], scales[axis] = extent, factor
    else:
        c.unsupported("neither scales nor sizes are given")
    coordinates = c.attr("coordinate_transformation_mode", "half_pixel")
    op = Resize(
        tuple(shape),
        tuple(scales),
        mode=_mode(c),
        coordinates=coordinates,
        nearest=c.attr("nearest_mode", "round_prefer_floor"),
        cubic_coeff_a=float(c.attr("cubic_coeff_a", -0.75)),
        exclude_outside=bool(c.attr("exclude_outside", 0)),
        antialias=bool(c.attr("antialias", 0)),
        extrapolation=float(c.attr("extrapolation_value", 0.0)),
        roi=_roi(c, axes) if coordinates == "tf_crop_and_resize" else (),
    )
    return c(op, c.input(0))


def _given(c: Context, index: int) -> bool:
    """Early exporters pass an empty tensor for an input that they leave out."""
    value = c.optional(index)
    return value is not None and value.tensor_type.size > 0


def _scaled(extent: int, scale: float) -> int:
    """The new extent, in f32 like the factor itself: 0.7 of 10 is 7."""
    return int(np.floor(np.float32(extent) * np.float32(scale)))


def _resolve_sizes(
    c: Context, old: Sequence[int], wanted: Sequence[int]
) -> tuple[list[int], list[float]]:
    """New extents and factors of the resized axes under the aspect-ratio policy."""
    factors = [w / d for w, d in zip(wanted, old, strict=True)]
    policy = c.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return list(wanted), factors
    if policy not in ("not_larger", "not_smaller"):
        c.unsupported(f"keep_aspect_ratio_policy {policy}")
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [math.floor(factor * d + 0.5) for d in old], [factor] * len(old)


def _mode(c: Context) -> ResizeMode:
    name = c.attr("mode", "nearest")
    if name not in MODES:
        c.unsupported(f"mode {name}")
    return MODES[name]


def _roi(c: Context, axes: Sequence[int]) -> tuple[float, ...]:
    """Starts and ends of all axes; those that are not listed are read whole."""
    rank = c.type(0).rank
    starts, ends = [0.0] * rank, [1.0] * rank
    given = [float(v) for v in c.const(1)]
    for n, axis in enumerate(axes):
        starts[axis], ends[axis] = given[n], given[len(axes) + n]
    return (*starts, *ends)


# ----------------------------------------------------------------------------- before opset 11
@maps("Resize", "Upsample", since=9)
def resize_by_scales(c: Context) -> Value:
    return _scale(c, [float(s) for s in c.const(1)])


@maps("Upsample", since=7)
def upsample_by_attribute(c: Context) -> Value:
    return _scale(c, c.attr("scales"))


@maps("Upsample")
def upsample_image(c: Context) -> Value:
    return _scale(c, [1.0, 1.0, c.attr("height_scale"), c.attr("width_scale")])


def _scale(c: Context, scales: Sequence[float]) -> Value:
    """Corner-aligned coordinates.

    The specification leaves rounding open; ONNX Runtime takes the lower neighbour where an
    axis grows and the upper one where it shrinks, and models are trained against that.
    """
    shrinking, growing = [min(s, 1.0) for s in scales], [max(s, 1.0) for s in scales]
    passes: tuple[tuple[list[float], NearestMode], ...] = ((shrinking, "ceil"), (growing, "floor"))
    y = c.input(0)
    for factors, rounding in passes:
        if any(f != 1.0 for f in factors):
            old = y.tensor_type.shape
            shape = tuple(_scaled(d, f) for d, f in zip(old, factors, strict=True))
            op = Resize(
                shape, tuple(factors), mode=_mode(c), coordinates="asymmetric", nearest=rounding
            )
            y = c(op, y)
    return y
