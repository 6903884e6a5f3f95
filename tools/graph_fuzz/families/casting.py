"""Conversions between element types."""

from __future__ import annotations

from typing import Any

from tools.graph_fuzz.growth import Growth, Held
from tools.graph_fuzz.registry import generates
from tools.graph_fuzz.schemas import TO_ONNX
from whet.core.dtypes import bool_, f8e8m0


@generates("Cast", "CastLike")
def cast(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name, "T1"))
    allowed = [d for d in g.types(name, "T2") if d != v.dtype and g.may_convert(v.array, d)]
    to = g.dtype(allowed)
    settings: dict[str, Any] = {}
    if g.opset >= 19 and to.is_float and to.bits == 8 and to != f8e8m0:
        settings["saturate"] = g.draw.pick([None, 1, 0])
    if g.opset >= 24 and to == f8e8m0:
        settings["round_mode"] = g.draw.pick([None, "up", "down", "nearest"])
    if name == "Cast":
        return g.emit(name, v, to=TO_ONNX[to], **settings)
    return g.emit(name, v, g.same(to, g.shape(1)), **settings)


@generates("BitCast")
def bit_cast(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name, "T1"))
    allowed = [d for d in g.types(name, "T2") if d.bits == v.dtype.bits and d != bool_]
    return g.emit(name, v, to=TO_ONNX[g.dtype(allowed)])
