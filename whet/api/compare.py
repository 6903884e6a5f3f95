"""The distance of two results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whet.core.dtypes import dtype_of
from whet.core.precision import PRECISIONS, STRICT
from whet.core.types import Array, type_of


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The differences that count as none.

    By default the largest error may be `max_error` of the range of the expected values.  With
    `rtol` or `atol` every element may be off by `atol + rtol * |expected|` instead.  Integers
    and booleans must be equal unless an `atol` or `rtol` is given.
    """

    max_error: float = PRECISIONS[STRICT].tolerance
    rtol: float | None = None
    atol: float | None = None

    @property
    def elementwise(self) -> bool:
        return self.rtol is not None or self.atol is not None

    def __str__(self) -> str:
        if self.elementwise:
            return f"atol {self.atol or 0:g}, rtol {self.rtol or 0:g}"
        return f"{self.max_error:g} of the range"


@dataclass(frozen=True, slots=True)
class Difference:
    """The distance of one result from what was expected.

    `max_abs` is the largest absolute error, `max_rel` the largest error relative to its own
    element, `of_range` the largest error relative to the range of the expected values.
    `problem` says what cannot be put into numbers: other types, NaN or infinity elsewhere.
    """

    name: str
    max_abs: float
    max_rel: float
    of_range: float
    within: bool
    problem: str | None = None


def compare(name: str, got: Array, expected: Array, tolerance: Tolerance) -> Difference:
    """The difference of two arrays.  Widened (f64) expectations of a float result are fine."""
    problem = _incomparable(got, expected)
    if problem is not None:
        return Difference(name, np.inf, np.inf, np.inf, within=False, problem=problem)
    if not dtype_of(got).is_float:
        return _compare_exact(name, got, expected, tolerance)
    a, b = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    special = ~finite & ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if special.any() or not np.isfinite(a[finite]).all():
        problem = "NaN or infinity where it was not expected, or the other way round"
        return Difference(name, np.inf, np.inf, np.inf, within=False, problem=problem)
    return _measure(name, a[finite], b[finite], tolerance)


def _incomparable(got: Array, expected: Array) -> str | None:
    a, b = type_of(got), type_of(expected)
    if a.shape != b.shape or (a.dtype != b.dtype and not (a.dtype.is_float and b.dtype.is_float)):
        return f"{a} where {b} was expected"
    return None


def _compare_exact(name: str, got: Array, expected: Array, tolerance: Tolerance) -> Difference:
    wrong = np.asarray(got != expected)
    if not wrong.any():
        return Difference(name, 0.0, 0.0, 0.0, within=True)
    found = _measure(name, got.astype(np.float64).ravel(), expected.astype(np.float64).ravel(),
                     tolerance)  # fmt: skip
    within = tolerance.elementwise and found.within
    problem = None if within else f"{int(wrong.sum())} of {wrong.size} elements differ"
    return Difference(name, found.max_abs, found.max_rel, found.of_range, within, problem)


def _measure(name: str, a: Array, b: Array, tolerance: Tolerance) -> Difference:
    """The difference of finite values."""
    if not a.size:
        return Difference(name, 0.0, 0.0, 0.0, within=True)
    error, size = np.abs(a - b), np.abs(b)
    max_abs = float(error.max())
    relative = np.divide(error, size, out=np.where(error > 0, np.inf, 0.0), where=size > 0)
    of_range = max_abs / (float(b.max() - b.min()) or float(size.max()) or 1.0)
    if tolerance.elementwise:
        allowed = (tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * size
        within = bool((error <= allowed).all())
    else:
        within = of_range <= tolerance.max_error
    return Difference(name, max_abs, float(relative.max()), of_range, within)
