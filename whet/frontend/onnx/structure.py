"""Checks on the structure of a model: names, order, opsets.

They run before anything is converted, so that the rest of the front end can rely on every
name being text, defined once, and defined before it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import onnx

from whet.core.errors import ModelError, UnsupportedError, check, fail

MAX_DEPTH = 24
"""How deep subgraphs and function calls may nest."""


def check_structure(model: Any) -> None:
    """Raise a `ModelError` unless the model's graph and functions are well formed."""
    check_opsets(model.opset_import, "the model")
    _check_graph(model.graph, frozenset(), 0)
    for function in model.functions:
        title = f"function '{function.name}'"
        _check_texts(title, (function.name, function.domain, function.overload))
        check_opsets(function.opset_import, title)
        given = _distinct(title, function.input)
        _check_nodes(title, function.node, given, 0)
    keys = [function_key(f.domain, f.name, f.overload) for f in model.functions]
    _check(len(keys) == len(set(keys)), "the model defines a function twice")


def check_opsets(imports: Any, title: str) -> None:
    """The opset versions must be ones that this front end knows."""
    _check_texts(title, [o.domain for o in imports])
    opsets = opset_versions(imports)
    newest = onnx.defs.onnx_opset_version()
    version = opsets.get("")
    _check(len(opsets) == len(imports), f"{title} imports an operator set twice")
    if version is not None:
        check(
            version <= newest,
            "WH2002",
            f"{title} uses opset {version}; opsets up to {newest} are supported",
            hint="onnx.version_converter can change the opset of a model",
            kind=UnsupportedError,
        )


def opset_versions(imports: Any) -> dict[str, int]:
    """Operator set versions by domain."""
    return {plain_domain(o.domain): int(o.version) for o in imports}


def plain_domain(domain: str) -> str:
    """The domain with the long spelling of the default one shortened."""
    return "" if domain == "ai.onnx" else domain


def function_key(domain: str, name: str, overload: str) -> tuple[str, str, str]:
    return plain_domain(domain), name, overload


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs among the node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def names_read(node: Any) -> set[str]:
    """The names that a node needs from outside, also inside its subgraphs."""
    found = {name for name in node.input if name}
    for graph in subgraphs(node):
        found |= names_captured(graph)
    return found


def names_captured(graph: Any) -> set[str]:
    """The names that a subgraph needs from outside."""
    found: set[str] = set()
    inner = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    inner |= {s.values.name for s in graph.sparse_initializer}
    for child in graph.node:
        found |= names_read(child) - inner
        inner |= set(child.output)
    return found | {o.name for o in graph.output if o.name} - inner


def _check_graph(graph: Any, outer: frozenset[str], depth: int) -> None:
    title = f"graph '{graph.name}'"
    _check(depth <= MAX_DEPTH, "the model's subgraphs are nested too deeply")
    _check_texts(title, [graph.name])
    inputs = _distinct(f"{title}: inputs", [i.name for i in graph.input])
    constants = _distinct(
        f"{title}: initializers",
        [t.name for t in graph.initializer] + [s.values.name for s in graph.sparse_initializer],
    )
    _distinct(f"{title}: outputs", [o.name for o in graph.output], repeats=True)
    _check_texts(title, [v.name for v in graph.value_info])
    defined = _check_nodes(title, graph.node, inputs | constants, depth, outer)
    for output in graph.output:
        _check(
            output.name in defined or output.name in outer,
            f"{title}: nothing produces the output '{output.name}'",
        )


def _check_nodes(
    title: str,
    nodes: Any,
    given: frozenset[str],
    depth: int,
    outer: frozenset[str] = frozenset(),
) -> set[str]:
    """The names that are defined after the nodes; each must be defined before it is read."""
    defined = set(given)
    for position, node in enumerate(nodes):
        where = describe(node)
        _check_texts(title, (node.op_type, node.domain, node.name, node.overload))
        _check_texts(where, [a.name for a in node.attribute])
        _check_texts(where, [a.ref_attr_name for a in node.attribute])
        _check_texts(where, node.input)
        _check_texts(where, node.output)
        for name in node.input:
            if name and name not in defined and name not in outer:
                _fail_undefined(where, name, nodes[position:])
        for graph in subgraphs(node):
            _check_graph(graph, outer | defined, depth + 1)
        for name in node.output:
            if name:
                _check(name not in defined, f"{where} defines '{name}' a second time")
                defined.add(name)
    return defined


def _fail_undefined(where: str, name: str, rest: Sequence[Any]) -> None:
    for node in rest:
        if name in node.output:
            fail(
                "WH2003",
                f"{where} reads '{name}', which {describe(node)} produces only later",
                "the graph has a cycle or its nodes are not in order",
                kind=ModelError,
            )
    fail("WH2003", f"{where} reads '{name}', which nothing produces", kind=ModelError)


def describe(node: Any) -> str:
    """The node in words, for messages."""
    return f"{node.op_type} node '{node.name}'" if node.name else f"a node of type {node.op_type}"


def _distinct(title: str, names: Any, *, repeats: bool = False) -> frozenset[str]:
    _check_texts(title, names)
    found = frozenset(names)
    _check(repeats or len(found) == len(names), f"{title} has a name twice")
    _check("" not in found, f"{title} has an empty name")
    return found


def _check_texts(title: str, values: Any) -> None:
    # protobuf gives bytes for a text that is not UTF-8
    _check(all(isinstance(v, str) for v in values), f"{title}: a name is not text (UTF-8)")


def _check(condition: bool, message: str) -> None:
    check(condition, "WH2003", message, kind=ModelError)
