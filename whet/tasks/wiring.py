"""Groups of nodes by how they are wired: what repeats in a model, or from one graph of a search to
the next, is looked at once.

[y = matmul(a, b), z = relu(y)]   ->   sources a, b; matmul of 0, 1; relu of 2; output 3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.core.types import TensorType
from whet.graph.graph import Constant, Node, Value
from whet.ops.base import Op

LITERAL_TYPES = frozenset({"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"})
"""Constants of one element become literals of these types."""


@dataclass(frozen=True, slots=True)
class Source:
    """A value that a group reads: its type, whether it holds numbers only, and its bytes if it is
    a literal."""

    type: TensorType
    finite: bool
    literal: bytes | None


@dataclass(frozen=True, slots=True)
class Wiring:
    """The nodes of a group in order.  Values are numbered: sources first, then all results."""

    sources: tuple[Source, ...]
    nodes: tuple[tuple[Op, tuple[int, ...]], ...]
    outputs: tuple[int, ...]


def wiring_of(nodes: Sequence[Node], outputs: Sequence[Value]) -> tuple[Wiring, tuple[Value, ...]]:
    """The wiring of nodes whose outputs are needed, and the values behind its sources."""
    results = {v for node in nodes for v in node.results}
    sources = tuple(dict.fromkeys(v for n in nodes for v in n.inputs if v not in results))
    numbers: dict[Value, int] = {v: n for n, v in enumerate(sources)}
    wired = []
    for node in nodes:
        wired.append((node.op, tuple(numbers[v] for v in node.inputs)))
        for v in node.results:
            numbers[v] = len(numbers)
    ends = tuple(numbers[v] for v in outputs)
    return Wiring(tuple(map(_source, sources)), tuple(wired), ends), sources


def _source(v: Value) -> Source:
    if not isinstance(v, Constant):
        return Source(v.tensor_type, True, None)
    t = v.tensor_type
    literal = t.size == 1 and t.dtype.name in LITERAL_TYPES
    return Source(t, v.is_finite, v.array.tobytes() if literal else None)
