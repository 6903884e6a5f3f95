"""ONNX conversions between element types."""

from __future__ import annotations

from whet.core.dtypes import DType
from whet.frontend.onnx.mapping import Context, maps
from whet.frontend.onnx.tensors import FROM_ONNX, onnx_type_name
from whet.graph.graph import Value
from whet.ops.casting import Bitcast, Cast


def dtype_attribute(c: Context, name: str) -> DType | None:
    """The element type that an attribute names by its ONNX number; None for 0 or nothing."""
    number = c.attr(name, 0)
    if number and number not in FROM_ONNX:
        c.unsupported(f"{onnx_type_name(number)} tensors are not supported")
    return FROM_ONNX.get(number)


def _cast(c: Context, to: DType) -> Value:
    x = c.input(0)
    if x.tensor_type.dtype == to:
        return x
    rounding = c.attr("round_mode", "up")
    if rounding not in ("up", "down", "nearest"):
        c.unsupported(f"round_mode '{rounding}'")
    return c(Cast(to, bool(c.attr("saturate", 1)), rounding), x)


@maps("Cast")
def cast(c: Context) -> Value:
    return _cast(c, dtype_attribute(c, "to") or c.unsupported("no type to convert to"))


@maps("CastLike")
def cast_like(c: Context) -> Value:
    return _cast(c, c.type(1).dtype)


@maps("BitCast")
def bit_cast(c: Context) -> Value:
    return c(Bitcast(dtype_attribute(c, "to") or c.unsupported("no type given")), c.input(0))
