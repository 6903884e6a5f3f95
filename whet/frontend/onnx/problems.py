"""Collecting what is unsupported, to report it all at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from whet.core.errors import UnsupportedError
from whet.graph.graph import Value

if TYPE_CHECKING:
    from whet.frontend.onnx.convert import Scope

SHOWN_NODES = 3


@dataclass(slots=True)
class Problems:
    """Unsupported nodes, grouped by operator, element types and reason."""

    _found: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)

    def add(self, node: Any, scope: Scope, reason: str) -> None:
        """Notes that a node cannot be converted."""
        domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
        types = ", ".join(_show(scope.values.get(name)) for name in node.input if name)
        group = self._found.setdefault((f"{domain}{node.op_type}", types, reason), [])
        group.append(node.name or ", ".join(node.output))

    def raise_if_any(self) -> None:
        """Raise one error with a line per group: operator, types, reason, count, nodes."""
        if not self._found:
            return
        total = sum(map(len, self._found.values()))
        raise UnsupportedError(
            "WH2002",
            f"the model has {total} node{'s' * (total != 1)} that whet does not support",
            details=tuple(_line(*key, nodes) for key, nodes in self._found.items()),
        )


def _line(op: str, types: str, reason: str, nodes: list[str]) -> str:
    names = ", ".join(f"'{n}'" for n in dict.fromkeys(nodes[:SHOWN_NODES]))
    more = ", ..." if len(nodes) > SHOWN_NODES else ""
    return f"{len(nodes)}x {op}({types}): {reason} (node {names}{more})"


def _show(value: Any) -> str:
    if isinstance(value, Value):
        return str(value.type.dtype)
    return "sequence" if isinstance(value, tuple) else "?"
