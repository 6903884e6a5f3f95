"""Random numbers, and what can be said of them: shapes, types, bounds."""

from __future__ import annotations

import numpy as np

from tools.graph_fuzz.growth import Growth, Held
from tools.graph_fuzz.registry import generates
from tools.graph_fuzz.schemas import TO_ONNX
from whet.core.dtypes import FLOATS


def _settled(g: Growth, v: Held) -> Held:
    """A value that is the same whatever was drawn; the drawn one is not read again."""
    dtype = v.dtype
    if dtype.is_float and dtype in g.types("Mul") and g.draw.chance(0.5):
        made = g.emit("Mul", v, g.constant(np.zeros((), dtype.numpy)))
    elif dtype in g.types("Equal") and g.opset >= 7:
        made = g.emit("Equal", v, v)
    else:
        made = g.emit("Shape", v)
    g.pool.remove(v)
    return made


@generates("RandomNormal", "RandomUniform")
def of_shape(g: Growth, name: str) -> Held:
    dtype = g.draw.pick([None, TO_ONNX[g.dtype([d for d in g.types(name) if d in FLOATS])]])
    shape = g.shape(g.draw.integer(1, 3), most=300)
    return _settled(g, g.emit(name, shape=shape, dtype=dtype, seed=g.draw.pick([None, 1.0])))


@generates("RandomNormalLike", "RandomUniformLike")
def like(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name, "T1"))
    dtype = TO_ONNX[g.dtype([d for d in g.types(name, "T2") if d in FLOATS])]
    return _settled(g, g.emit(name, v, dtype=dtype, seed=g.draw.pick([None, 3.0])))


@generates("Multinomial")
def multinomial(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name, "T1"), rank=2, where=lambda v: v.size > 0)
    return _settled(g, g.emit(name, v, sample_size=g.draw.integer(1, 3), seed=1.0))


@generates("Bernoulli")
def bernoulli(g: Growth, name: str) -> Held:
    v = g.emit("Sigmoid", g.tensor([d for d in g.types(name, "T1") if d in g.types("Sigmoid")]))
    return _settled(g, g.emit(name, v, seed=g.draw.pick([None, 2.0])))
