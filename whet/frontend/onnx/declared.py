"""Declared types: what a model says of its values, compared with what is inferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.core.errors import ModelError, fail
from whet.core.types import TensorType
from whet.frontend.onnx.mapping import Converted
from whet.frontend.onnx.tensors import FROM_ONNX, Foreign, onnx_type_name
from whet.graph.graph import Value


def check_declared(name: str, declared: Any, value: Converted) -> str | None:
    """Compare a TypeProto with the value that was found for the name.

    Gives a sentence if the shapes disagree: exporters leave stale ones behind, and nothing
    depends on them.  Raises a `ModelError` for another element type or kind of value.
    """
    kind = declared.WhichOneof("value")
    if kind == "optional_type":
        inner = declared.optional_type.elem_type
        return None if value is None else check_declared(name, inner, value)
    if kind == "sequence_type" and isinstance(value, tuple):
        inner = declared.sequence_type.elem_type
        return next(filter(None, (check_declared(name, inner, item) for item in value)), None)
    if kind == "tensor_type" and isinstance(value, Value):
        tensor = declared.tensor_type
        said = _contradiction(name, describe_type(declared), str(value.type))
        if tensor.elem_type != 0 and FROM_ONNX.get(tensor.elem_type) != value.type.dtype:
            fail("WH2003", said, kind=ModelError)
        return None if _shapes_agree(tensor, value) else said
    found = "a sequence" if isinstance(value, tuple) else "a tensor"
    if (kind == "tensor_type" and isinstance(value, tuple)) or (
        kind == "sequence_type" and isinstance(value, Value)
    ):
        fail("WH2003", _contradiction(name, describe_type(declared), found), kind=ModelError)
    return None


def disagreements(said: Mapping[str, str], outputs: Sequence[str]) -> tuple[str, ...]:
    """Notes on the shapes that disagree: a line per output, and one for all values inside."""
    lines = [said[name] for name in outputs if name in said]
    inside = [text for name, text in said.items() if name not in outputs]
    if inside:
        more = len(inside) - 1
        others = f"; likewise {more} other value{'s' * (more != 1)} inside it" if more else ""
        lines.append(f"{inside[0]}{others}")
    return tuple(lines)


def _contradiction(name: str, declared: str, found: str) -> str:
    return f"the model declares '{name}' as {declared}, but it is {found}"


def _shapes_agree(declared: Any, value: Value) -> bool:
    if not declared.HasField("shape"):
        return True
    dims = declared.shape.dim
    if len(dims) != value.type.rank:
        return False
    if not isinstance(value.type, TensorType):
        return True
    return all(
        not d.HasField("dim_value") or d.dim_value < 0 or d.dim_value == size
        for d, size in zip(dims, value.type.shape)
    )


def describe_type(declared: Any) -> str:
    """A TypeProto in words, such as `f32[batch, 3, ?]` or `sequence of f32`."""
    match declared.WhichOneof("value"):
        case "tensor_type":
            tensor = declared.tensor_type
            dtype = FROM_ONNX.get(tensor.elem_type)
            name = str(dtype) if dtype else onnx_type_name(tensor.elem_type)
            if not tensor.HasField("shape"):
                return name
            return f"{name}[{', '.join(_show_dim(d) for d in tensor.shape.dim)}]"
        case "sequence_type":
            return f"sequence of {describe_type(declared.sequence_type.elem_type)}"
        case "optional_type":
            return f"optional {describe_type(declared.optional_type.elem_type)}"
        case "map_type":
            return "map"
        case "sparse_tensor_type":
            return "sparse tensor"
    return "no type"


def _show_dim(dim: Any) -> str:
    return str(dim.dim_value) if dim.HasField("dim_value") else str(dim.dim_param) or "?"


def foreign_type(declared: Any) -> Foreign:
    """A stand-in for a value of a type that whet does not have."""
    return Foreign(f"values of type {describe_type(declared)} are not supported")
