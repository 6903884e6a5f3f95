"""The declarations of ONNX operators: element types by number and by type variable."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import onnx

from whet.core.dtypes import DType
from whet.frontend.onnx.attributes import find_schema
from whet.frontend.onnx.tensors import FROM_ONNX

TO_ONNX: Mapping[DType, int] = {dtype: number for number, dtype in FROM_ONNX.items()}


def _named() -> dict[str, DType]:
    kinds: Any = onnx.TensorProto.DataType
    return {f"tensor({kinds.Name(n).lower()})": dtype for n, dtype in FROM_ONNX.items()}


_BY_NAME = _named()


@cache
def declared_types(op_type: str, opset: int, domain: str) -> Mapping[str, tuple[DType, ...]] | None:
    """The types that each type variable may stand for; None if there is no such operator.

    A parameter of a fixed type counts as a variable with the type's own name.
    """
    schema = find_schema(domain, op_type, opset)
    if schema is None:
        return None
    found = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    for parameter in (*schema.inputs, *schema.outputs):
        found.setdefault(parameter.type_str, [parameter.type_str])
    return {
        variable: tuple(_BY_NAME[t] for t in types if t in _BY_NAME)
        for variable, types in found.items()
    }
