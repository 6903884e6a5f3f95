"""Names of build results in the cache."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from whet.core.digest import digest_text
from whet.core.target import Target
from whet.graph.body import describe_content
from whet.graph.graph import Graph


def build_key(graph: Graph, target: Target, *options: str) -> str:
    """Equal for graphs that compute the same, built by the same program for the same machine."""
    return digest_text(*describe_content(graph), target.to_json(), *options, program_key())


@cache
def program_key() -> str:
    """Changes whenever a source file of whet does."""
    root = Path(__file__).resolve().parents[1]
    found = []
    for path in sorted(root.rglob("*.py")):
        status = path.stat()
        found.append(f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}")
    return digest_text(*found)
