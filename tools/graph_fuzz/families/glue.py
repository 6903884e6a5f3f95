"""Operators that make or describe tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from tools.graph_fuzz.schemas import TO_ONNX
from whet.core.dtypes import bool_, f32, i64


@generates("Constant")
def constant(g: Growth, name: str) -> Held:
    kinds = ["value"]
    if g.opset >= 12:
        kinds += ["value_float", "value_floats", "value_int", "value_ints"]
    kind = g.draw.pick(kinds)
    if g.opset >= 11 and g.draw.chance(0.15):
        return g.emit(name, sparse_value=_sparse(g))
    if kind == "value":
        return g.emit(name, value=g.array(g.dtype(g.types(name)), g.shape()))
    array = g.array(
        f32 if "float" in kind else i64, g.shape(1, extent=5) if kind[-1] == "s" else ()
    )
    if not array.size:
        raise Impossible
    return g.emit(name, **{kind: array.tolist()})


def _sparse(g: Growth) -> Any:
    """A tensor of which few elements are not zero."""
    shape = tuple(max(d, 1) for d in g.shape(g.draw.integer(1, 2), most=200))
    size = int(np.prod(shape))
    count = g.draw.integer(1, min(size, 5))
    places = np.sort(g.draw.rng.permutation(size)[:count]).astype(np.int64)
    values = numpy_helper.from_array(g.array(f32, (count,)), "values")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(places, "places"), shape)


@generates("Shape", "Size")
def measured(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    limits: dict[str, Any] = {}
    if name == "Shape" and g.opset >= 15 and v.rank:
        limits = {k: g.draw.pick([None, g.draw.integer(-v.rank, v.rank)]) for k in ("start", "end")}
    return g.emit(name, v, **limits)


@generates("ConstantOfShape")
def constant_of_shape(g: Growth, name: str) -> Held:
    value = None if g.draw.chance(0.3) else g.array(g.dtype(g.types(name, "T2")), (1,))
    return g.emit(name, g.ints(g.shape(most=600)), value=value)


@generates("Range")
def range_(g: Growth, name: str) -> Held:
    dtype = g.dtype(g.types(name))
    start, step = g.draw.integer(-5, 5), g.draw.pick([-2, -1, 1, 2, 3])
    limit = start + step * g.draw.integer(1, 20)
    numbers = np.array([start, limit, step]) / (4 if dtype.is_float else 1)
    parts = [g.constant(np.asarray(x).astype(dtype.numpy)) for x in numbers]
    return g.emit(name, *parts)


@generates("EyeLike")
def eye_like(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name, "T1"), rank=2)
    to = g.draw.pick([None, TO_ONNX[g.dtype(g.types(name, "T2"))]])
    return g.emit(name, v, dtype=to, k=g.draw.pick([None, g.draw.integer(-3, 3)]))


@generates("Dropout")
def dropout(g: Growth, name: str) -> Held:
    """Not in training mode, in which it is random, unless nothing is dropped."""
    v = g.tensor(g.types(name))
    outputs = g.draw.integer(1, 2) if g.opset >= 10 else 1
    if g.opset < 12:
        return g.emit(name, v, outputs=outputs, ratio=g.draw.pick([None, 0.25]))
    ratio = g.draw.pick([0.0, 0.25, None])
    given = None if ratio is None else g.constant(np.asarray(ratio, np.float32))
    training = g.constant(np.asarray(ratio == 0.0)) if g.draw.chance(0.5) else None
    assert bool_ in g.types(name, "T2")
    return g.emit(name, v, given, training, outputs=outputs)
