"""Node attributes: compared with what the operator set declares, then decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
from onnx import AttributeProto

from whet.core.errors import ModelError, check, fail
from whet.frontend.onnx.external import ExternalData
from whet.frontend.onnx.mapping import Unsupported
from whet.frontend.onnx.structure import describe
from whet.frontend.onnx.tensors import Foreign, read_sparse, read_tensor

OLDEST_OPSET = 7

Attributes = Mapping[str, Any]
"""Attribute protos by name."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The declaration of an operator in an operator set, as far as a node must agree with it."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    required_inputs: int
    """How many leading inputs must not be left out."""
    types: Mapping[str, int]
    required: tuple[str, ...]
    defaults: Mapping[str, Any]


def find_schema(domain: str, op_type: str, opset: int) -> Any | None:
    """The operator's declaration as of that opset version, or None."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


@cache
def changed_since(op_type: str, opset: int) -> bool:
    """True if the oldest supported opset defines an operator otherwise than an older one."""
    old, new = (find_schema("", op_type, version) for version in (opset, OLDEST_OPSET))
    return old is None or new is None or old.since_version != new.since_version


@cache
def find_signature(domain: str, op_type: str, opset: int) -> Signature | None:
    """The declared signature, or None for an operator that the `onnx` package does not know."""
    schema = find_schema(domain, op_type, opset)
    if schema is None:
        return None
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    leading = 0
    for parameter in schema.inputs:
        if parameter.option != single:
            break
        leading += 1
    return Signature(
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        leading,
        {name: int(a.type.value) for name, a in schema.attributes.items()},
        tuple(name for name, a in schema.attributes.items() if a.required),
        {
            name: a.default_value
            for name, a in schema.attributes.items()
            if a.default_value.type != AttributeProto.UNDEFINED
        },
    )


def check_node(node: Any, attributes: Attributes, signature: Signature) -> None:
    """Raise a `ModelError` unless the node agrees with the declaration of its operator."""
    where = describe(node)
    for what, names, (low, high) in (
        ("inputs", node.input, signature.inputs),
        ("outputs", node.output, signature.outputs),
    ):
        _check(
            low <= len(names) <= high,
            f"{where} has {len(names)} {what}, its operator {low} to {high}",
        )
    _check(
        all(node.input[: signature.required_inputs]), f"{where} leaves out an input that it needs"
    )
    for name, attribute in attributes.items():
        expected = signature.types.get(name)
        _check(expected is not None, f"{where} has the unknown attribute '{name}'")
        _check(
            attribute.type == expected,
            f"attribute '{name}' of {where} has the wrong type",
        )
    for name in signature.required:
        _check(name in attributes, f"{where} lacks the attribute '{name}'")


def named_attributes(node: Any, bound: Attributes | None) -> dict[str, Any]:
    """The node's attributes by name.

    Inside a function an attribute may refer to one of the function's own: it is replaced by
    what `bound` holds for that, and left out if the caller left it out.
    """
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        where = f"{describe(node)}: attribute '{attribute.name}'"
        _check(attribute.name not in found, f"{where} is given twice")
        if attribute.ref_attr_name:
            _check(bound is not None, f"{where} refers to a function's, outside of one")
            assert bound is not None
            if attribute.ref_attr_name in bound:
                found[attribute.name] = bound[attribute.ref_attr_name]
        else:
            found[attribute.name] = attribute
    return found


def decode_attributes(node: Any, attributes: Attributes, external: ExternalData) -> dict[str, Any]:
    """Values: int, float, str, list, NumPy array for a tensor, the proto for a graph."""
    return {name: _decoded(node, a, external) for name, a in attributes.items()}


def _decoded(node: Any, attribute: Any, external: ExternalData) -> Any:
    reader = _READERS.get(attribute.type)
    if reader is not None:
        return reader(attribute)
    where = f"{describe(node)}: attribute '{attribute.name}'"
    match attribute.type:
        case AttributeProto.STRING:
            return _text(attribute.s, where)
        case AttributeProto.STRINGS:
            return [_text(s, where) for s in attribute.strings]
        case AttributeProto.TENSOR:
            return _known(read_tensor(attribute.t, external))
        case AttributeProto.TENSORS:
            return [_known(read_tensor(t, external)) for t in attribute.tensors]
        case AttributeProto.SPARSE_TENSOR:
            return _known(read_sparse(attribute.sparse_tensor, external))
    fail("WH2003", f"{where} has no type that is known", kind=ModelError)


_READERS: dict[int, Callable[[Any], Any]] = {
    AttributeProto.FLOAT: lambda a: float(a.f),
    AttributeProto.INT: lambda a: int(a.i),
    AttributeProto.FLOATS: lambda a: [float(v) for v in a.floats],
    AttributeProto.INTS: lambda a: [int(v) for v in a.ints],
    AttributeProto.GRAPH: lambda a: a.g,
    AttributeProto.GRAPHS: lambda a: list(a.graphs),
    AttributeProto.TYPE_PROTO: lambda a: a.tp,
    AttributeProto.TYPE_PROTOS: lambda a: list(a.type_protos),
}


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        fail("WH2003", f"{where} is not text (UTF-8)", kind=ModelError)


def _known(array: Any) -> Any:
    if isinstance(array, Foreign):
        raise Unsupported(array.reason)
    return array


def _check(condition: bool, message: str) -> None:
    check(condition, "WH2003", message, kind=ModelError)
