"""Nodes that do not become native code, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping

from whet.codegen.llvm.support import has_code
from whet.core.caching import FileCache
from whet.core.types import TensorType
from whet.graph.graph import Graph, Node
from whet.ops.scan import Scan


def why_not_native(node: Node) -> str | None:
    """Why a node cannot be part of a native segment, or None if it can."""
    if node.op.host:
        return "the shape of its result depends on data"
    if isinstance(node.op, Scan):
        return "its body is native code, which runs once per step"
    if node.op.compute is None and node.op.program is None:
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
