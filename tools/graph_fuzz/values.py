"""Numbers for inputs and weights: on a grid where arithmetic is exact, all over the place, or
special."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tools.graph_fuzz.draw import Draw
from whet.core.dtypes import ALL, DType, f8e8m0
from whet.core.types import Array, Shape

STYLES: Mapping[str, float] = {
    "grid": 30, "ties": 15, "uniform": 30, "positive": 8, "wide": 7, "shifted": 3, "special": 12,
}  # fmt: skip
"""Kinds of values, and how often a graph has them.

grid      multiples of 1/8: sums and products of a few are exact
ties      few different small integers: equal values everywhere
uniform   all bits of the fraction in use
positive  uniform, above zero
wide      many orders of magnitude
shifted   a large mean, a small deviation
special   a grid with NaN, infinities, denormal numbers, -0 and the largest ones
"""

SPECIAL_SHARE = 0.08
EXTREMES = 0.1
"""How often an integer tensor has the ends of its range in it."""

WEIGHTS: Mapping[str, float] = {
    "f32": 40, "f64": 6, "f16": 8, "bf16": 8, "i64": 6, "i32": 8, "i16": 3, "i8": 5, "u64": 2,
    "u32": 2, "u16": 2, "u8": 5, "bool": 4, "f8e4m3fn": 1, "f8e4m3fnuz": 1, "f8e5m2": 1,
    "f8e5m2fnuz": 1, "f8e8m0": 1, "f4e2m1": 1, "i4": 1, "u4": 1, "i2": 1, "u2": 1,
}  # fmt: skip
"""How often an element type is drawn where several are possible."""

COMMON = frozenset(["f32", "f64", "i64", "i32", "u8", "i8", "bool"])
"""Element types that all implementations have."""

assert WEIGHTS.keys() == {d.name for d in ALL}, "every element type has a weight"


def draw_array(
    draw: Draw, dtype: DType, shape: Shape, style: str, *, extremes: bool = True
) -> Array:
    """An array of that kind of values; integers sometimes with the `extremes` of their range."""
    if dtype.kind == "bool":
        return draw.rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        return _integers(draw, dtype, shape, extremes=extremes)
    if dtype == f8e8m0:
        return np.exp2(draw.rng.integers(-6, 7, shape).astype(np.float32)).astype(dtype.numpy)
    made = _floats(draw, dtype, shape, style)
    with np.errstate(over="ignore"):
        made = made.astype(dtype.numpy)
    return _with_specials(draw, made, dtype) if style == "special" else made


def _integers(draw: Draw, dtype: DType, shape: Shape, *, extremes: bool) -> Array:
    low, high = integer_range(dtype)
    small = draw.rng.integers(max(low, -8), min(high, 8) + 1, shape)
    made = small.astype(dtype.numpy)
    if extremes and made.size and draw.chance(EXTREMES):
        places = draw.rng.random(shape) < 0.2
        widest = np.uint64 if dtype.kind == "uint" else np.int64
        ends = np.array([low, high, max(low, -1)], widest).astype(dtype.numpy)
        made = np.where(places, ends[draw.rng.integers(0, 3, shape)], made)
    return np.asarray(made)


def integer_range(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest integer of the type."""
    if dtype.kind == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def _floats(draw: Draw, dtype: DType, shape: Shape, style: str) -> Array:
    rng = draw.rng
    if style == "ties":
        return rng.integers(-3, 4, shape).astype(np.float64)
    if style == "uniform":
        return rng.uniform(-2, 2, shape)
    if style == "positive":
        return rng.uniform(0.1, 3, shape)
    if style == "wide":
        reach = 12 if dtype.bits >= 32 else 5
        sign = rng.integers(0, 2, shape) * 2 - 1
        return np.ldexp(sign * rng.uniform(1, 2, shape), rng.integers(-reach, reach, shape))
    if style == "shifted":
        return (1000 if dtype.bits >= 32 else 50) + rng.uniform(-1, 1, shape)
    return rng.integers(-16, 17, shape) / 8.0


def _with_specials(draw: Draw, array: Array, dtype: DType) -> Array:
    info = _limits(dtype)
    if info is None:
        return array
    tiny, largest = info
    every = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, tiny, -tiny, 3 * tiny, largest])
    # Few kinds at a time: where all are there, everything becomes NaN.
    allowed = every[draw.rng.permutation(len(every))[: draw.integer(1, 4)]]
    places = draw.rng.random(array.shape) < SPECIAL_SHARE
    chosen = allowed[draw.rng.integers(0, len(allowed), array.shape)].astype(dtype.numpy)
    return np.where(places, chosen, array)


def _limits(dtype: DType) -> tuple[float, float] | None:
    """The smallest denormal and the largest number, of the types that compute."""
    return {
        "f64": (5e-324, 1.7e308), "f32": (1.4e-45, 3.4e38), "f16": (6e-8, 65504.0),
        "bf16": (9.2e-41, 3.3e38),
    }.get(dtype.name)  # fmt: skip
