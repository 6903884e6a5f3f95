"""Nodes of whet that are one node in ONNX: operators that take along what follows them.

    add(conv(x, w), b)                   ->   Conv(x, w, b)
    minimum(maximum(x, low), high)       ->   Clip(x, low, high)

Other runtimes fuse operators by patterns, and these are the forms that they know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from whet.graph.export_operators import EXPORTERS, Emitter, Names
from whet.graph.graph import Constant, Graph, Node, Result, Value

CONVOLUTIONS = ("conv", "conv_transpose")
BOUNDS = ("minimum", "maximum")


@dataclass(frozen=True, eq=False)
class Joined:
    """A node that is written together with the one before it."""

    inner: Node
    """The node before, which is not written by itself."""
    inputs: tuple[Value, ...]
    write: Callable[[Emitter, list[str]], Names]
    """Writes both, given the names of the inputs."""


def joined_nodes(graph: Graph) -> Mapping[Node, Joined]:
    """The nodes that are written together with one before them, which nothing else reads."""
    found: dict[Node, Joined] = {}
    taken: set[Node] = set()
    for node in graph.nodes:
        made = _with_bias(node) or _clip(node)
        if made is None or made.inner in found or made.inner in taken:
            continue
        (result,) = made.inner.results
        if len(graph.users[result]) == 1 and result not in graph.outputs:
            found[node] = made
            taken.add(made.inner)
    return found


def _and_constant(node: Node) -> tuple[Value, Constant] | None:
    """Two inputs of which one is a constant: the other one first."""
    if len(node.inputs) != 2:
        return None
    a, b = node.inputs
    if isinstance(a, Constant):
        a, b = b, a
    return (a, b) if isinstance(b, Constant) and not isinstance(a, Constant) else None


def _with_bias(node: Node) -> Joined | None:
    found = _and_constant(node) if node.op.name == "add" else None
    if found is None or not isinstance(found[0], Result):
        return None
    conv, bias = found[0].node, found[1]
    if conv.op.name not in CONVOLUTIONS:
        return None
    result = conv.results[0].tensor_type
    shape = bias.tensor_type.shape
    padded = (1,) * (len(result.shape) - len(shape)) + shape
    channels = result.shape[1]
    if node.results[0].type != result or padded != (1, channels) + (1,) * (len(padded) - 2):
        return None

    def write(e: Emitter, inputs: list[str]) -> Names:
        flat = e.constant(bias.array.reshape(channels))
        return EXPORTERS[conv.op.name](e, conv, [*inputs, flat])

    return Joined(conv, conv.inputs, write)


def _clip(node: Node) -> Joined | None:
    found = _and_constant(node) if node.op.name in BOUNDS else None
    if found is None or not isinstance(found[0], Result):
        return None
    before, last = found[0].node, found[1]
    inner = _and_constant(before) if before.op.name in BOUNDS else None
    if inner is None or before.op.name == node.op.name:
        return None
    x, first = inner
    low, high = (first, last) if node.op.name == "minimum" else (last, first)
    single = all(c.tensor_type.size == 1 for c in (low, high))
    if not single or any(n.results[0].type != x.type for n in (node, before)):
        return None
    # Of bounds that exclude each other the one that comes last counts, and in ONNX the upper one.
    if not bool(low.array.reshape(()) <= high.array.reshape(())):
        return None

    def write(e: Emitter, inputs: list[str]) -> Names:
        return e.emit("Clip", [*inputs, *(e.constant(c.array.reshape(())) for c in (low, high))])

    return Joined(before, (x,), write)
