"""Element types in ONNX: their numbers, and which operators are defined for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from onnx import TensorProto, defs

from whet.core.dtypes import DType
from whet.core.errors import GraphError, fail

Parameters = tuple[tuple[str, frozenset[int]], ...]

_ELEMENT_TYPES: dict[str, int] = {
    "f64": TensorProto.DOUBLE, "f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16, "i64": TensorProto.INT64, "i32": TensorProto.INT32,
    "i16": TensorProto.INT16, "i8": TensorProto.INT8, "u64": TensorProto.UINT64,
    "u32": TensorProto.UINT32, "u16": TensorProto.UINT16, "u8": TensorProto.UINT8,
    "bool": TensorProto.BOOL, "f8e4m3fn": TensorProto.FLOAT8E4M3FN,
    "f8e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ, "f8e5m2": TensorProto.FLOAT8E5M2,
    "f8e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ, "i4": TensorProto.INT4, "u4": TensorProto.UINT4,
}  # fmt: skip

_CARRIERS: dict[int, tuple[int, ...]] = {
    TensorProto.BFLOAT16: (TensorProto.FLOAT,),
    TensorProto.FLOAT16: (TensorProto.FLOAT,),
    TensorProto.BOOL: (TensorProto.UINT8, TensorProto.INT32),
    TensorProto.INT8: (TensorProto.INT32, TensorProto.INT64),
    TensorProto.INT16: (TensorProto.INT32, TensorProto.INT64),
    TensorProto.UINT8: (TensorProto.INT32, TensorProto.INT64),
    TensorProto.UINT16: (TensorProto.INT32, TensorProto.INT64),
    TensorProto.UINT32: (TensorProto.INT64,),
}
"""Larger types in which an operator gives the same result, once that is cast back: half
precision is computed in f32 anyway, and integers wrap around alike."""


def element_type(dtype: DType) -> int:
    """The ONNX number of an element type; `WH1204` if the exported opset does not have it."""
    found = _ELEMENT_TYPES.get(dtype.name)
    if found is None:
        fail("WH1204", f"element type {dtype} cannot be exported to ONNX", kind=GraphError)
    return found


@dataclass(frozen=True, slots=True)
class TypePlan:
    """The application of an operator to inputs of given types; 0 stands for an unknown type."""

    input_casts: tuple[int | None, ...]
    """The type to cast each input to, or None."""
    output_types: tuple[int, ...]
    """What the operator then gives."""
    output_casts: tuple[int | None, ...]
    """The type to cast each output to, or None."""


class NotInOnnxError(Exception):
    """ONNX does not define the operator for the element types, nor for any that could carry
    them."""


def plan_types(op_type: str, opset: int, inputs: Sequence[int], outputs: int) -> TypePlan:
    """The casts that make the operator's inputs types for which ONNX defines it."""
    signature = _signature(op_type, opset)
    parameters = [_parameter(signature.inputs, n) for n in range(len(inputs))]
    bound: dict[str, int] = {}
    carried: dict[str, int] = {}
    for given, (variable, allowed) in zip(inputs, parameters):
        if not given or variable in bound:
            continue
        fitting = [c for c in (given, *_CARRIERS.get(given, ())) if c in allowed]
        if not fitting:
            raise NotInOnnxError
        bound[variable], carried[variable] = given, fitting[0]
    changed = {v for v in bound if bound[v] != carried[v]}
    results = [_parameter(signature.outputs, n) for n in range(outputs)]
    return TypePlan(
        tuple(carried[v] if t and v in changed else None for t, (v, _) in zip(inputs, parameters)),
        tuple(carried.get(v, min(types) if len(types) == 1 else 0) for v, types in results),
        tuple(bound[v] if v in changed else None for v, _ in results),
    )


def _parameter(parameters: Parameters, position: int) -> tuple[str, frozenset[int]]:
    """The declared input or output at a position; the last one may repeat."""
    return parameters[min(position, len(parameters) - 1)]


@dataclass(frozen=True, slots=True)
class _Signature:
    """Type variable and allowed types of each input and output."""

    inputs: Parameters
    outputs: Parameters


@cache
def _signature(op_type: str, opset: int) -> _Signature:
    schema = defs.get_schema(op_type, opset, "")

    def formal(parameter: defs.OpSchema.FormalParameter) -> tuple[str, frozenset[int]]:
        types = frozenset(n for n in map(_number, parameter.types) if n)
        return parameter.type_str, types

    return _Signature(tuple(map(formal, schema.inputs)), tuple(map(formal, schema.outputs)))


def _number(text: str) -> int:
    """The number of `tensor(float)` and the like; 0 for sequences and other kinds."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return int(getattr(TensorProto, name.upper(), 0))
