"""Collecting what is unsupported, to report it all at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from whet.core.dtypes import DType
from whet.core.errors import UnsupportedError
from whet.graph.graph import Value

if TYPE_CHECKING:
    from whet.frontend.onnx.convert import Scope

SHOWN_NODES = 3


@dataclass(frozen=True, slots=True)
class Failed:
    """Stands for an output of a node that is reported as unsupported."""

    dtype: DType | None = None


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
    if isinstance(value, tuple):
        return "sequence"
    dtype = _dtype(value)
    return str(dtype) if dtype else "?"


def _dtype(value: Any) -> DType | None:
    if isinstance(value, Value):
        return value.type.dtype
    return value.dtype if isinstance(value, Failed) else None


def failed_outputs(node: Any, schema: Any | None, values: Mapping[str, Any]) -> tuple[Failed, ...]:
    """Stand-ins for the outputs of a node that cannot be converted.

    An output has the element type of the first input that is declared with the same type.
    """
    if schema is None:
        return (Failed(),) * len(node.output)
    known = {p.type_str: _dtype(values.get(name)) for p, name in reversed(_pairs(schema, node))}
    declared = [p.type_str for p in schema.outputs]
    return tuple(
        Failed(known.get(declared[min(n, len(declared) - 1)])) for n in range(len(node.output))
    )


def _pairs(schema: Any, node: Any) -> list[tuple[Any, str]]:
    """The node's inputs beside their declarations; the last of these may stand for several."""
    formal = schema.inputs
    return [(formal[min(n, len(formal) - 1)], name) for n, name in enumerate(node.input) if formal]
