"""Values brought into a range where an operator has a meaning."""

from __future__ import annotations

import numpy as np

from tools.graph_fuzz.growth import Growth, Held, Impossible
from whet.core.dtypes import FLOATS

LEFT_OUTSIDE = 0.3
"""How often values of a special graph stay outside the range: the result is then NaN."""


def within(g: Growth, v: Held, low: float, high: float) -> Held:
    """The value, clipped or computed such that all its numbers are between the limits."""
    wide = v.array.astype(np.float64)
    inside = not v.size or bool(((wide >= low) & (wide <= high)).all())
    if inside or (g.special and g.draw.chance(LEFT_OUTSIDE)):
        return v
    if v.dtype not in FLOATS:
        raise Impossible
    if low <= 0 and high >= 1 and v.dtype in g.types("Sigmoid") and g.draw.chance(0.4):
        return g.emit("Sigmoid", v)
    if low >= 0 and not np.isnan(wide).any() and v.dtype in g.types("Abs"):
        magnitude = g.emit("Abs", v)
        least = g.constant(np.asarray(max(low, 0.0) + 0.125, v.dtype.numpy))
        shifted = g.emit("Add", magnitude, least)
        if float(shifted.array.astype(np.float64).max(initial=0)) <= high:
            return shifted
    return clipped(g, v, low, high)


def clipped(g: Growth, v: Held, low: float, high: float) -> Held:
    """The value between the limits."""
    limits = np.array([max(low, -1e4), min(high, 1e4)])
    if g.opset < 11:
        if v.dtype not in g.types("Clip"):
            raise Impossible
        return g.emit("Clip", v, min=float(limits[0]), max=float(limits[1]))
    bounds = [g.constant(np.asarray(x, v.dtype.numpy)) for x in limits]
    return g.emit("Clip", v, *bounds)


def nonzero(g: Growth, v: Held) -> Held:
    """The value, without zeros (and without -1 among integers: the least one has no
    counterpart), or a constant in its place."""
    bad = v.array == 0
    if v.dtype.kind == "int":
        bad = bad | (v.array == -1)
    if not bad.any() or (g.special and v.dtype.is_float):
        return v
    if not g.common and not v.dtype.is_float and g.draw.chance(0.3):
        return v  # which ends the process elsewhere
    array = g.array(v.dtype, v.shape)
    three = np.asarray(3).astype(v.dtype.numpy)
    wrong = (array == 0) | ((array == -1) if v.dtype.kind == "int" else (array == 0))
    return g.operand(np.where(wrong, three, array))
