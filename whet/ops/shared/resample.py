"""The origin of resized positions: coordinates, neighbours and weights along one axis.

Resizing is separable, so everything that distinguishes its many modes is one small table per
axis: for each output position the input positions it reads, and with which weights.
Coordinates are computed in f32, as the engines that models are exported for do: which
neighbour is nearest can hang on the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from whet.core.types import Array

ResizeMode = Literal["nearest", "linear", "cubic"]
Coordinates = Literal[
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]
NearestMode = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
TIE = 1e-6
"""How close to the middle between two neighbours a coordinate counts as the middle: rounding
has moved it (2 / (4 / 7) is 3.4999998 in f32).  ONNX Runtime has the same bound."""


@dataclass(frozen=True, slots=True)
class AxisScale:
    """The resizing of one axis: extents, the scale factor, and the part [start, end] that is read.

    The factor is given apart from the extents because it may lie anywhere between two of them.
    """

    old: int
    new: int
    factor: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class AxisTable:
    """Output position i is the sum over t of weights[i, t] * input[positions[i, t]].

    `outside` marks output positions whose coordinate lies beyond the input.
    """

    positions: Array
    weights: Array
    outside: Array

    @property
    def is_copy(self) -> bool:
        """Each output position is one input position, unchanged."""
        return self.positions.shape[1] == 1 and bool((self.weights == 1).all())

    def is_identity(self, extent: int) -> bool:
        """The axis is left as it is."""
        return self.is_copy and np.array_equal(self.positions[:, 0], np.arange(extent))


def coordinates(axis: AxisScale, kind: Coordinates) -> Array:
    """The (fractional) input coordinate of every output position.

    A factor of 1 leaves an axis as it is, where `tf_half_pixel_for_nn` would move it by half a
    position; only a crop is one for every factor.
    """
    x = np.arange(axis.new, dtype=np.float32)
    factor, half = np.float32(axis.factor), np.float32(0.5)
    last = np.float32(axis.old - 1)
    if kind == "tf_crop_and_resize":
        start, end = np.float32(axis.start), np.float32(axis.end)
        if axis.new == 1:
            return np.full_like(x, half * (start + end) * last)
        return start * last + x * (end - start) * last / np.float32(axis.new - 1)
    if axis.new == axis.old and factor == 1:
        return x
    match kind:
        case "half_pixel":
            return (x + half) / factor - half
        case "half_pixel_symmetric":
            # Centres both images on each other when the factor does not give whole extents.
            shrink = np.float32(axis.new) / (factor * np.float32(axis.old))
            offset = np.float32(axis.old) / 2 * (1 - shrink)
            exact = np.float64(offset) + (x.astype(np.float64) + 0.5) / np.float64(factor) - 0.5
            return exact.astype(np.float32)
        case "pytorch_half_pixel":
            return (x + half) / factor - half if axis.new > 1 else np.zeros_like(x)
        case "tf_half_pixel_for_nn":
            return (x + half) / factor
        case "align_corners":
            # By whole extents: the factor may ask for a length between two of them.
            return x * last / np.float32(axis.new - 1) if axis.new > 1 else np.zeros_like(x)
        case "asymmetric":
            return x / factor


def nearest_table(axis: AxisScale, kind: Coordinates, rounding: NearestMode) -> AxisTable:
    """One neighbour each."""
    x = coordinates(axis, kind).astype(np.float64)  # so that adding a half does not round
    match rounding:
        case "round_prefer_floor":
            chosen = np.ceil(x - 0.5 - TIE)
        case "round_prefer_ceil":
            chosen = np.floor(x + 0.5 + TIE)
        case "floor":
            chosen = np.floor(x)
        case "ceil":
            chosen = np.ceil(x)
    positions = np.clip(chosen.astype(np.int64), 0, axis.old - 1)[:, None]
    return AxisTable(positions, np.ones(positions.shape), _outside(axis, x))


def weighted_table(
    axis: AxisScale,
    kind: Coordinates,
    mode: ResizeMode,
    *,
    cubic_coeff_a: float,
    exclude_outside: bool,
    antialias: bool,
) -> AxisTable:
    """Linear or cubic weights of the surrounding positions.

    Positions beyond the edge repeat the edge, or count for nothing with `exclude_outside`.
    With `antialias` an axis that shrinks averages over as many positions as it merges.
    """
    x = coordinates(axis, kind).astype(np.float64)
    stretch = min(axis.factor, 1.0) if antialias else 1.0
    reach = int(np.ceil((1 if mode == "linear" else 2) / stretch))
    around = np.floor(x)[:, None] + np.arange(1 - reach, reach + 1)
    distance = np.abs(around - x[:, None]) * stretch
    weights = _linear(distance) if mode == "linear" else _cubic(distance, cubic_coeff_a)
    if exclude_outside:
        weights = np.where((around >= 0) & (around < axis.old), weights, 0.0)
    total = weights.sum(axis=1, keepdims=True)
    weights = weights / np.where(total == 0, 1.0, total)
    positions = np.clip(around.astype(np.int64), 0, axis.old - 1)
    used = (weights != 0).any(axis=0)
    return AxisTable(positions[:, used], weights[:, used], _outside(axis, x))


def _outside(axis: AxisScale, x: Array) -> Array:
    return (x < 0) | (x > axis.old - 1)


def _linear(distance: Array) -> Array:
    return np.maximum(1 - distance, 0.0)


def _cubic(d: Array, a: float) -> Array:
    """Keys' cubic convolution kernel with parameter a."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
