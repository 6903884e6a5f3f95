"""ONNX operators whose result has a shape that depends on data."""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import DType, f32, i64
from whet.frontend.onnx.mapping import Context, maps, normalized_axis
from whet.graph.graph import Constant, Value
from whet.ops.gather import Gather
from whet.ops.host import Compress, NonMaxSuppression, NonZero, Unique
from whet.ops.movement import Reshape


@maps("NonZero", since=9)
def nonzero(c: Context) -> Value:
    return c(NonZero(), c.input(0))


@maps("Unique", since=11)
def unique(c: Context) -> tuple[Value, ...]:
    axis = c.attr("axis")
    if axis is not None:
        axis = normalized_axis(axis, c.type(0).rank)
    return c.results(Unique(axis, bool(c.attr("sorted", 1))), c.input(0))


@maps("Compress", since=9)
def compress(c: Context) -> Value:
    x, axis, condition = c.type(0), c.attr("axis"), c.input(1)
    if axis is not None:
        axis = normalized_axis(axis, x.rank)
    if not isinstance(condition, Constant):
        return c(Compress(axis), c.input(0), condition)
    # A known condition makes a known shape: no host operator is needed.
    kept = c.constant(np.flatnonzero(condition.array), i64)
    if axis is None:
        return c(Gather(0), c(Reshape((x.size,)), c.input(0)), kept)
    return c(Gather(axis), c.input(0), kept)


@maps("NonMaxSuppression", since=10)
def non_max_suppression(c: Context) -> Value:
    def setting(index: int, default: float, dtype: DType) -> Value:
        value = c.optional(index)
        return c.constant(default, dtype) if value is None else c(Reshape(()), value)

    return c(
        NonMaxSuppression(bool(c.attr("center_point_box", 0))),
        c.input(0),
        c.input(1),
        setting(2, 0, i64),
        setting(3, 0.0, f32),
        setting(4, float("-inf"), f32),
    )
