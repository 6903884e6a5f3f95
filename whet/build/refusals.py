"""Nodes that do not become native code, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping

from whet.build.bodies import body_graphs
from whet.codegen.llvm.support import has_code
from whet.core.caching import FileCache
from whet.core.types import TensorType
from whet.graph.graph import Graph, Node


def why_not_native(node: Node) -> str | None:
    """Why a node cannot be part of a native segment, or None if it can."""
    inner = body_graphs(node)
    if node.op.host:
        note = ", and its body is compiled on its own" if inner else ""
        return f"the shape of its result depends on data{note}"
    for body in inner.values():
        for part in body.graph.nodes:
            reason = why_not_native(part)
            if reason is not None:
                return f"its body is compiled on its own, because of {part.op.name}: {reason}"
    if node.op.compute is None and node.op.program is None and not inner:
        return "it has neither tensor expressions nor loops"
    for t in (v.type for v in (*node.inputs, *node.results)):
        if not has_code(t.dtype):
            return f"the type {t.dtype} only stores"
        if isinstance(t, TensorType) and t.size == 0:
            return "a tensor without elements"
    return None


def store_refusals(cache: FileCache, key: str, graph: Graph, reasons: Mapping[Node, str]) -> None:
    """Keeps the reasons by position of the node: nodes have no names of their own."""
    found = {n: reasons[node] for n, node in enumerate(graph.nodes) if node in reasons}
    cache.put("refusals", key, json.dumps(found).encode())


def load_refusals(cache: FileCache, key: str, graph: Graph) -> dict[Node, str] | None:
    data = cache.get("refusals", key)
    if data is None:
        return None
    return {graph.nodes[int(n)]: reason for n, reason in json.loads(data).items()}
