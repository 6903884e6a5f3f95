"""ONNX Resize in all its versions, and Upsample.

Extents, factors and the part of the input that is read are resolved here for every axis;
`axes`, `sizes` and the aspect-ratio policies do not reach the operator.

Where a factor asks for a length between two whole extents, the specification and the engines
that models are trained and run with disagree.  whet does as ONNX Runtime does:

- `align_corners` puts the last position on the last one (as PyTorch does), and not on a point
  beyond it that the factor would reach;
- where no extent changes, nothing is resampled (as in PyTorch), and with `antialias` no axis
  that keeps its extent (as in Pillow).

A crop (`tf_crop_and_resize`) is done for every axis, as the specification says; ONNX Runtime
leaves out axes that keep their extent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

import numpy as np

from whet.frontend.onnx.mapping import Context, maps, normalized_axis
from whet.graph.graph import Value
from whet.ops.resize import Resize
from whet.ops.shared.resample import Coordinates, NearestMode, ResizeMode

MODES: dict[str, ResizeMode] = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
}
POLICIES = ("stretch", "not_larger", "not_smaller")


@maps("Resize", since=11)
def resize(c: Context) -> Value:
    x = c.type(0)
    axes = [normalized_axis(a, x.rank) for a in c.attr("axes") or range(x.rank)]
    old = [x.shape[a] for a in axes]
    if _given(c, 2):
        factors = _floats(c, 2, len(axes))
        new = [_scaled(d, f) for d, f in zip(old, factors)]
    else:
        c.require(_given(c, 3), "neither scales nor sizes are given")
        new, factors = _resolve_sizes(c, old, c.const_ints(3))
    coordinates = c.choice("coordinate_transformation_mode", "half_pixel", get_args(Coordinates))
    antialias = bool(c.attr("antialias", 0))
    shape, scales = list(x.shape), [1.0] * x.rank
    for axis, extent, factor in zip(axes, new, factors):
        kept = extent == x.shape[axis] and (antialias or new == old)
        shape[axis], scales[axis] = extent, 1.0 if kept else factor
    op = Resize(
        tuple(shape),
        tuple(scales),
        mode=_mode(c),
        coordinates=coordinates,
        nearest=c.choice("nearest_mode", "round_prefer_floor", get_args(NearestMode)),
        cubic_coeff_a=float(c.attr("cubic_coeff_a", -0.75)),
        exclude_outside=bool(c.attr("exclude_outside", 0)),
        antialias=antialias,
        extrapolation=float(c.attr("extrapolation_value", 0.0)),
        roi=_roi(c, axes) if coordinates == "tf_crop_and_resize" else (),
    )
    return c(op, c.input(0))


def _given(c: Context, index: int) -> bool:
    """Early exporters pass an empty tensor for an input that they leave out."""
    value = c.optional(index)
    return value is not None and value.tensor_type.size > 0


def _floats(c: Context, index: int, count: int) -> list[float]:
    """The numbers behind an input, one for each of `count` things."""
    values = [float(v) for v in np.ravel(c.const(index))]
    sound = len(values) == count and all(map(math.isfinite, values))
    c.require(sound, f"input {index} must hold {count} finite numbers")
    return values


def _scaled(extent: int, scale: float) -> int:
    """The new extent, in f32 like the factor itself: 0.7 of 10 is 7."""
    return int(np.floor(np.float32(extent) * np.float32(scale)))


def _resolve_sizes(
    c: Context, old: Sequence[int], wanted: Sequence[int]
) -> tuple[list[int], list[float]]:
    """New extents and factors of the resized axes under the aspect-ratio policy."""
    c.require(len(wanted) == len(old), f"{len(wanted)} sizes for {len(old)} axes")
    c.require(0 not in old, "an axis without extent")
    factors = [float(np.float32(w) / np.float32(d)) for w, d in zip(wanted, old)]
    policy = c.choice("keep_aspect_ratio_policy", "stretch", POLICIES)
    if policy == "stretch":
        return list(wanted), factors
    factor = min(factors) if policy == "not_larger" else max(factors)
    lengths = [float(np.float32(factor) * np.float32(d)) for d in old]
    return [math.floor(length + 0.5) for length in lengths], [factor] * len(old)


def _mode(c: Context) -> ResizeMode:
    return MODES[c.choice("mode", "nearest", tuple(MODES))]


def _roi(c: Context, axes: Sequence[int]) -> tuple[float, ...]:
    """Starts and ends of all axes; those that are not listed are read whole."""
    rank = c.type(0).rank
    starts, ends = [0.0] * rank, [1.0] * rank
    given = _floats(c, 1, 2 * len(axes))
    for n, axis in enumerate(axes):
        starts[axis], ends[axis] = given[n], given[len(axes) + n]
    return (*starts, *ends)


# ----------------------------------------------------------------------------- before opset 11
@maps("Resize", "Upsample", since=9)
def resize_by_scales(c: Context) -> Value:
    return _scale(c, _floats(c, 1, c.type(0).rank))


@maps("Upsample", since=7)
def upsample_by_attribute(c: Context) -> Value:
    scales = c.attr("scales")
    c.require(len(scales) == c.type(0).rank, f"{len(scales)} scales for {c.type(0)}")
    return _scale(c, scales)


@maps("Upsample")
def upsample_image(c: Context) -> Value:
    c.require(c.type(0).rank == 4, f"{c.type(0)} is not a batch of images")
    return _scale(c, [1.0, 1.0, c.attr("height_scale"), c.attr("width_scale")])


def _scale(c: Context, scales: Sequence[float]) -> Value:
    """Corner-aligned coordinates.

    The specification leaves rounding open; ONNX Runtime takes the lower neighbour where an
    axis grows and the upper one where it shrinks, and models are trained against that.
    """
    shrinking, growing = [min(s, 1.0) for s in scales], [max(s, 1.0) for s in scales]
    passes: tuple[tuple[list[float], NearestMode], ...] = ((shrinking, "ceil"), (growing, "floor"))
    y = c.input(0)
    if all(_scaled(d, s) == d for d, s in zip(y.tensor_type.shape, scales)):
        return y
    for factors, rounding in passes:
        if any(f != 1.0 for f in factors):
            old = y.tensor_type.shape
            shape = tuple(_scaled(d, f) for d, f in zip(old, factors))
            op = Resize(
                shape, tuple(factors), mode=_mode(c), coordinates="asymmetric", nearest=rounding
            )
            y = c(op, y)
    return y
