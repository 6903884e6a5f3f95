"""Functions: operators whose meaning is a list of other nodes.

A model may define functions of its own, and many operators of the standard are declared with
a function body; both are inlined.  An operator that is not in the mapping table is thus still
supported when all operators of its body are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import helper

from whet.core.errors import ModelError, fail
from whet.frontend.onnx.attributes import Attributes, find_schema, find_signature
from whet.frontend.onnx.mapping import Converted
from whet.frontend.onnx.structure import describe
from whet.frontend.onnx.tensors import FROM_ONNX
from whet.graph.graph import Value

_TO_ONNX = {dtype: number for number, dtype in FROM_ONNX.items()}


@dataclass(frozen=True, slots=True)
class Function:
    """A function's interface and its nodes."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: Sequence[Any]
    opset_import: Any
    defaults: Mapping[str, Any]

    @staticmethod
    def of_model(proto: Any, defaults: Mapping[str, Any] | None = None) -> Function:
        """The function behind a FunctionProto."""
        own = {a.name: a for a in proto.attribute_proto}
        return Function(
            proto.name,
            tuple(proto.input),
            tuple(proto.output),
            proto.node,
            proto.opset_import,
            {**(defaults or {}), **own},
        )


def has_function(domain: str, op_type: str, opset: int) -> bool:
    """True if the operator set declares a body for the operator, for some node at least."""
    schema = find_schema(domain, op_type, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def declared_function(
    node: Any, domain: str, opset: int, attributes: Attributes, inputs: Sequence[Converted]
) -> Function | None:
    """The body that the operator set declares for this node, or None if it declares none."""
    schema = find_schema(domain, node.op_type, opset)
    signature = find_signature(domain, node.op_type, opset)
    if schema is None or signature is None:
        return None
    versions = [v for v in schema.function_opset_versions if v <= opset]
    dependent = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if versions:
        body = schema.get_function_with_opset_version(max(versions))
    elif dependent:
        body = _dependent_body(schema, max(dependent), node, attributes, inputs)
    else:
        return None
    proto: Any = onnx.FunctionProto()
    try:
        proto.ParseFromString(body)
    except DecodeError:
        return None  # the body does not exist for inputs of these types
    return Function.of_model(proto, signature.defaults)


def _dependent_body(
    schema: Any, version: int, node: Any, attributes: Attributes, inputs: Sequence[Converted]
) -> bytes:
    """A body that depends on the node's attributes and on the types of its inputs."""
    plain: Any = helper.make_node(node.op_type, node.input, node.output, domain=node.domain)
    for name, attribute in attributes.items():
        copy = plain.attribute.add()
        copy.CopyFrom(attribute)
        copy.name = name
    types = [_type_proto(value).SerializeToString() for value in inputs]
    try:
        return bytes(
            schema.get_context_dependent_function_with_opset_version(
                version, plain.SerializeToString(), types
            )
        )
    except (RuntimeError, ValueError) as error:  # what the onnx package throws for bad nodes
        fail("WH2003", f"{describe(node)} is not valid: {error}", kind=ModelError)


def _type_proto(value: Converted) -> Any:
    if isinstance(value, tuple):
        inner = _type_proto(value[0]) if value else onnx.TypeProto()
        return helper.make_sequence_type_proto(inner)
    if isinstance(value, Value):
        t = value.tensor_type
        return helper.make_tensor_type_proto(_TO_ONNX[t.dtype], t.shape)
    return onnx.TypeProto()
