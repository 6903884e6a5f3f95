"""Declared types: what a model says of its values, compared with what is inferred."""

from __future__ import annotations

from typing import Any

from whet.core.errors import ModelError, fail
from whet.core.types import TensorType
from whet.frontend.onnx.mapping import Converted
from whet.frontend.onnx.tensors import FROM_ONNX, Foreign, onnx_type_name
from whet.graph.graph import Value


def check_declared(name: str, declared: Any, value: Converted) -> None:
    """Raise a `ModelError` if a TypeProto contradicts the value that was found for the name."""
    kind = declared.WhichOneof("value")
    if kind == "optional_type":
        if value is not None:
            check_declared(name, declared.optional_type.elem_type, value)
        return
    if kind == "sequence_type" and isinstance(value, tuple):
        for item in value:
            check_declared(name, declared.sequence_type.elem_type, item)
        return
    if kind == "tensor_type" and isinstance(value, Value):
        if not _agrees(declared.tensor_type, value):
            _fail(name, describe_type(declared), str(value.type))
        return
    found = "a sequence" if isinstance(value, tuple) else "a tensor"
    if (kind == "tensor_type" and isinstance(value, tuple)) or (
        kind == "sequence_type" and isinstance(value, Value)
    ):
        _fail(name, describe_type(declared), found)


def _agrees(declared: Any, value: Value) -> bool:
    dtype = FROM_ONNX.get(declared.elem_type)
    if declared.elem_type != 0 and dtype != value.type.dtype:
        return False
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
    """What stands for a value of a type that whet does not have."""
    return Foreign(f"values of type {describe_type(declared)} are not supported")


def _fail(name: str, declared: str, found: str) -> None:
    fail(
        "WH2003",
        f"the model declares '{name}' as {declared}, but it is {found}",
        kind=ModelError,
    )
