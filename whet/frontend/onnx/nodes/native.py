"""Nodes of the domain `whet`: operators that the exporter could not say in ONNX."""

from __future__ import annotations

from whet.core.errors import WhetError
from whet.frontend.onnx.mapping import Context, maps
from whet.graph.export_operators import NATIVE_DOMAIN
from whet.graph.graph import Value
from whet.graph.terms import parse_attributes
from whet.ops import REGISTRY
from whet.ops.base import make_op


def _native(c: Context) -> tuple[Value, ...]:
    """The operator of the same name, with its attributes in the notation of graph text."""
    try:
        op = make_op(c.op_type, parse_attributes(str(c.attr("attributes", ""))))
    except WhetError as error:
        c.unsupported(error.message)
    return c.results(op, *(c.input(n) for n in range(len(c.inputs))))


maps(*REGISTRY, domain=NATIVE_DOMAIN)(_native)
