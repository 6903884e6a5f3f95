"""Operators whose result has a shape that depends on data."""

from __future__ import annotations

import numpy as np

from tools.graph_fuzz.families.movement import some_axis
from tools.graph_fuzz.growth import Growth, Held
from tools.graph_fuzz.registry import generates


@generates("NonZero")
def nonzero(g: Growth, name: str) -> Held:
    return g.emit(name, g.tensor(g.types(name), rank=range(1, 4)))


@generates("Unique")
def unique(g: Growth, name: str) -> Held | list[Held]:
    v = g.tensor(g.types(name), rank=range(1, 4), where=lambda v: 0 < v.size <= 500)
    if v.dtype.is_float:  # of computed ones, rounding decides which are the same
        v = g.fresh(v.dtype, v.shape)
    axis = some_axis(g, v.rank) if g.draw.chance(0.4) else None
    return g.emit(name, v, outputs=g.draw.integer(1, 4), axis=axis,
                  sorted=g.draw.pick([None, 0, 1]))  # fmt: skip


@generates("Compress")
def compress(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 4), where=lambda v: v.size > 0)
    axis = some_axis(g, v.rank) if g.draw.chance(0.6) else None
    if axis is not None and g.opset < 11:
        axis %= v.rank
    extent = v.size if axis is None else v.shape[axis]
    chosen = g.draw.rng.integers(0, 2, g.draw.integer(1, extent)).astype(np.bool_)
    if not g.empty:
        chosen[0] = True
    return g.emit(name, v, g.operand(chosen), axis=axis)


@generates("NonMaxSuppression")
def non_max_suppression(g: Growth, name: str) -> Held:
    batch, classes, boxes = g.draw.integer(1, 2), g.draw.integer(1, 3), g.draw.integer(1, 8)
    corners = g.draw.rng.integers(0, 12, (batch, boxes, 2))
    sizes = g.draw.rng.integers(1, 6, (batch, boxes, 2))
    centered = g.draw.pick([None, 0, 1])
    coordinates = np.concatenate([corners, sizes if centered else corners + sizes], -1)
    # Scores that all differ: equal ones may be kept in any order.
    scores = g.draw.rng.permutation(batch * classes * boxes).reshape(batch, classes, boxes) / 64.0
    most = g.ints([g.draw.integer(1, 4)])
    overlap = g.constant(np.asarray([0.37], np.float32)) if g.draw.chance(0.6) else None
    least = g.constant(np.asarray([0.11], np.float32)) if g.draw.chance(0.5) else None
    return g.emit(
        name, g.operand((coordinates / 4).astype(np.float32)), g.operand(scores.astype(np.float32)),
        most, overlap, least, center_point_box=centered,
    )  # fmt: skip
