"""Units of rounding, and numbers moved by some of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.dtypes import DType
from whet.core.types import Array

ROUNDING = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
"""Half the distance of neighbours, relative to the number, of the types that compute."""
TINY = {"f64": 2.0**-1074, "f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}
"""The distance of the smallest numbers."""
SMALLEST = {"f64": 2.0**-1022, "f32": 2.0**-126, "f16": 2.0**-24, "bf16": 2.0**-126}
"""The smallest numbers with all digits; half precision is computed in f32."""
FRACTION = {"f64": 2.0**40, "f32": 2.0**24, "f16": 2.0**11, "bf16": 2.0**8}
"""Numbers with no more digits than this count as exact: for f64 fewer than it has, because
there is no wider type to compare with."""


@dataclass(frozen=True)
class Noise:
    """How much rounding is exaggerated, in run number `number`.

    With `everywhere`, exact results are moved too.
    """

    rng: np.random.Generator
    number: int = 0
    amplitude: float = 4.0
    everywhere: bool = False

    def draw(self, array: Array) -> Array:
        """A number between -1 and 1 for every element: in every other run the same one for
        equal elements, as those of one function are moved alike, in fact."""
        if self.number % 2 == 0:
            return self.rng.uniform(-1, 1, array.shape)
        values, places = np.unique(array, return_inverse=True)
        return self.rng.uniform(-1, 1, values.shape)[places].reshape(array.shape)

    def moved(self, array: Array, dtype: DType, where: Any = True, least: float = 0.0) -> Array:
        """The numbers moved by up to `amplitude` units of rounding, and by `least`."""
        factor = 1 + self.draw(array) * (self.amplitude * ROUNDING[dtype.name])
        step = self.rng.uniform(-1, 1, array.shape) * max(TINY[dtype.name], least)
        with np.errstate(all="ignore"):
            return np.where(where & np.isfinite(array), array * factor + step, array)

    def shifted(self, array: Array, size: Any, inner: str, *, zeros: Any = False) -> Array:
        """The numbers, with or without zeros, moved by up to a unit of rounding of that size.

        In every third run, those that are no larger than that unit vanish: where numbers of
        that size were subtracted, nothing may be left, and zero is what no other noise gives.
        """
        unit = size * ROUNDING[inner]
        with np.errstate(all="ignore"):
            moved = array + self.draw(array) * unit
        if self.number % 3 == 2:
            moved = np.where(np.abs(array) <= unit, 0.0, moved)
        return np.where(np.isfinite(array) & (zeros | (array != 0)), moved, array)


def is_exact(array: Array, dtype: DType) -> Array:
    """Which numbers the type holds as they are."""
    with np.errstate(all="ignore"):
        fraction, _ = np.frexp(array)
        scaled = fraction * FRACTION[dtype.name]
        return (scaled == np.rint(scaled)) | ~np.isfinite(array)


def largest(array: Array) -> float:
    """The size of the largest finite number."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0))
