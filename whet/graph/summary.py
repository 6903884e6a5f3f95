"""A summary of a graph, its parts and rough costs, for people and reports."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from whet.core.types import TensorType
from whet.graph.graph import Constant, Graph, Node, Result, make_input
from whet.graph.passes.expand_composites import ExpandingBuilder
from whet.graph.rewrite import bodies
from whet.ir.expr import Binary, Call, Expr, Read, Reduce, elements
from whet.ir.tensor import Compute, placeholder, stages
from whet.ops.base import Op


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """Counts and estimates; `str` gives a small table."""

    nodes: Mapping[str, int]
    """Operator name to the number of nodes, the most frequent first."""
    flops: int
    """Arithmetic operations on floating-point values, a multiply-add being two."""
    weight_bytes: int
    """Constants, each counted once."""
    activation_bytes: int
    """All results of nodes together, were each stored."""
    peak_bytes: int
    """The most activation bytes alive at a time, when nodes run in order without views."""

    def __str__(self) -> str:
        lines = [
            f"nodes        {sum(self.nodes.values())}",
            f"flops        {self.flops:,}",
            f"weights      {self.weight_bytes:,} bytes",
            f"activations  {self.activation_bytes:,} bytes, {self.peak_bytes:,} at a time",
        ]
        width = max((len(name) for name in self.nodes), default=0)
        return "\n".join(lines + [f"  {name:{width}}  {n}" for name, n in self.nodes.items()])


def summarize(graph: Graph) -> GraphSummary:
    """The summary of a graph; bodies of scans count for weights and flops, not as nodes."""
    counts = Counter(node.op.name for node in graph.nodes)
    weights = set(_constants(graph))
    return GraphSummary(
        dict(counts.most_common()),
        sum(map(node_flops, graph.nodes)),
        sum(c.tensor_type.nbytes for c in weights),
        sum(_result_bytes(node) for node in graph.nodes),
        _peak_bytes(graph),
    )


def node_flops(node: Node) -> int:
    """Floating-point operations of a node, read off its tensor expressions.

    A composite counts what it expands into, a scan its body times its length; an operator
    that is a loop program or runs on the host counts nothing.
    """
    if inside := bodies(node.op):
        steps = int(node.op.attributes().get("length", 1))
        return steps * sum(node_flops(n) for body in inside.values() for n in body.nodes)
    types = tuple(v.type for v in node.inputs)
    if not all(isinstance(t, TensorType) for t in types):
        return 0
    return _flops(node.op, tuple(t for t in types if isinstance(t, TensorType)))


def _flops(op: Op, types: tuple[TensorType, ...]) -> int:
    if op.compute is not None:
        tensors = tuple(placeholder(t.shape, t.dtype, f"x{n}") for n, t in enumerate(types))
        computed = (t for t in stages(op.compute_tensors(tensors)) if isinstance(t, Compute))
        return sum(math.prod(t.shape) * _scalar_flops(t.body) for t in computed)
    if op.expand is not None:
        builder = ExpandingBuilder()
        inputs = tuple(make_input(f"x{n}", t) for n, t in enumerate(types))
        outputs = builder.results(op, *inputs)
        inner = Graph(inputs, outputs, tuple(f"y{n}" for n in range(len(outputs))))
        return sum(map(node_flops, inner.nodes))
    return 0


def _scalar_flops(e: Expr) -> int:
    """Floating-point operations for one element: float-valued arithmetic and reductions.

    Index arithmetic is free, and both sides of a select count, as vector code computes them.
    """
    inner = 0 if isinstance(e, Read) else sum(map(_scalar_flops, e.children()))
    match e:
        case Reduce(axes=axes):
            return elements(axes) * (inner + int(e.dtype.is_float))
        case Binary() | Call():
            return inner + int(e.dtype.is_float)
    return inner


def _constants(graph: Graph) -> Iterator[Constant]:
    yield from graph.constants
    for node in graph.nodes:
        for body in bodies(node.op).values():
            yield from _constants(body)


def _result_bytes(node: Node) -> int:
    return sum(r.type.nbytes for r in node.results if isinstance(r.type, TensorType))


def _peak_bytes(graph: Graph) -> int:
    """The largest sum of results alive after any node; a result lives until its last reader."""
    last = {v: node for node in graph.nodes for v in node.inputs}
    kept, alive, peak = set(graph.outputs), 0, 0
    for node in graph.nodes:
        alive += _result_bytes(node)
        peak = max(peak, alive)
        done = [v for v in dict.fromkeys(node.inputs) if last[v] is node]
        done += [r for r in node.results if r not in last]
        alive -= sum(
            v.type.nbytes
            for v in done
            if isinstance(v, Result) and v not in kept and isinstance(v.type, TensorType)
        )
    return peak
