"""Operators that only make or describe tensors: most of an exported model's nodes, and none
of its work.  All but Dropout and Identity give constants once shapes are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from whet.core.dtypes import bool_, f32, i64
from whet.frontend.onnx.mapping import MAX_INDICES, Context, Converted, maps
from whet.frontend.onnx.tensors import FROM_ONNX
from whet.ops.movement import Expand


@maps("Constant")
def constant(c: Context) -> Converted:
    for name, dtype in (
        ("value", None),
        ("sparse_value", None),
        ("value_float", f32),
        ("value_floats", f32),
        ("value_int", i64),
        ("value_ints", i64),
    ):
        data = c.attr(name)
        if data is not None:
            return c.builder.constant(data) if dtype is None else c.constant(data, dtype)
    c.unsupported("strings are not supported")


@maps("Identity")
def identity(c: Context) -> Converted:
    return (c.inputs[0],)


@maps("Shape")
def shape(c: Context) -> Converted:
    found = c.type(0).shape
    return c.constant(found[slice(c.attr("start", 0), c.attr("end"))], i64)


@maps("Size")
def size(c: Context) -> Converted:
    return c.constant(c.type(0).size, i64)


@maps("ConstantOfShape", since=9)
def constant_of_shape(c: Context) -> Converted:
    value = c.attr("value")
    fill = np.zeros(1, np.float32) if value is None else np.reshape(value, -1)
    wanted = c.const_ints(0)
    if fill.size != 1 or min(wanted, default=0) < 0:
        c.unsupported("the shape or the value is not valid")
    scalar = c.builder.constant(fill.reshape(()))
    return c(Expand(wanted), scalar)


@maps("Range", since=11)
def range_(c: Context) -> Converted:
    start, limit, delta = (c.const_scalar(n) for n in range(3))
    if not delta:
        c.unsupported("the step is zero")
    length = (float(limit) - float(start)) / float(delta)
    c.require(math.isfinite(length), "the range has no end")
    dtype = c.type(0).dtype
    exact: Any = np.int64 if dtype.is_integer else np.float64
    places = c.indices(max(math.ceil(length), 0)).astype(exact)
    values = exact(start) + places * exact(delta)
    return c.constant(values.astype(dtype.numpy), dtype)


@maps("EyeLike")
def eye_like(c: Context) -> Converted:
    t = c.type(0)
    if t.rank != 2 or t.size > MAX_INDICES:
        c.unsupported(f"the input is {t}, not a matrix of moderate size")
    number = c.attr("dtype")
    dtype = t.dtype if number is None else FROM_ONNX.get(number)
    if dtype is None:
        c.unsupported(f"element type {number}")
    rows, columns = t.shape
    offset = max(-rows, min(c.attr("k", 0), columns))
    return c.constant(np.eye(rows, columns, offset), dtype)


@maps("Dropout")
def dropout(c: Context) -> Converted:
    """At inference, and with a ratio of 0, Dropout is the identity."""
    training = c.optional(2) is not None and bool(c.const_scalar(2))
    ratio = float(c.const_scalar(1)) if c.optional(1) is not None and training else 0.5
    if training and ratio != 0:
        c.unsupported("training mode drops elements at random")
    x = c.input(0)
    if c.n_outputs == 1:
        return x
    return x, c(Expand(c.type(0).shape), c.constant(True, bool_))
