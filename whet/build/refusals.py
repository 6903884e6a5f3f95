"""Nodes that do not become native code, and why, as they are kept with what was built."""

from __future__ import annotations

import json
from collections.abc import Mapping

from whet.core.caching import FileCache
from whet.graph.graph import Graph, Node


def store_refusals(cache: FileCache, key: str, graph: Graph, reasons: Mapping[Node, str]) -> None:
    """Keeps the reasons by position of the node: nodes have no names of their own."""
    found = {n: reasons[node] for n, node in enumerate(graph.nodes) if node in reasons}
    cache.put("refusals", key, json.dumps(found).encode())


def load_refusals(cache: FileCache, key: str, graph: Graph) -> dict[Node, str] | None:
    data = cache.get("refusals", key)
    if data is None:
        return None
    return {graph.nodes[int(n)]: reason for n, reason in json.loads(data).items()}
