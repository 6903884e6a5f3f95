"""Graphs as attributes of operators: the step of a `scan`, the sides of a `branch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from whet.core.digest import digest_text
from whet.core.dtypes import f64
from whet.core.types import Array, TensorType
from whet.graph.graph import (
    Constant,
    Graph,
    Input,
    Node,
    Value,
    apply,
    make_input,
    topological,
)
from whet.graph.interpret import interpret
from whet.ops.base import Builder

SMALL_CONSTANT = 64
"""Constants of at most this many elements stay inside a body; larger ones are passed in, so
that weights are found among the constants of the graph around it."""


@dataclass(frozen=True, eq=False)
class GraphBody:
    """A Graph seen as a `Body`: equal if it computes the same thing, whatever the names."""

    graph: Graph
    precise: bool = False

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple(self._carried(v.tensor_type) for v in self.graph.inputs)

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple(self._carried(v.tensor_type) for v in self.graph.outputs)

    def _carried(self, t: TensorType) -> TensorType:
        wide = self.precise and t.dtype.is_float and not t.dtype.is_storage_only
        return t.with_dtype(f64) if wide else t

    def run(self, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        return interpret(self.graph, arrays, precise=self.precise)

    def build(self, builder: Builder, *values: Value) -> tuple[Value, ...]:
        """The graph's outputs, written out in terms of the values."""
        replaced: dict[Value, Value] = dict(zip(self.graph.inputs, values, strict=True))
        for node in self.graph.nodes:
            made = builder(node.op, *(replaced.get(v, v) for v in node.inputs))
            results = made if isinstance(made, tuple) else (made,)
            replaced.update(zip(node.results, results, strict=True))
        return tuple(replaced.get(v, v) for v in self.graph.outputs)

    def widened(self) -> GraphBody:
        return GraphBody(self.graph, precise=True)

    @cached_property
    def digest(self) -> str:
        """A digest of what the graph computes."""
        return digest_text(str(self.precise), *describe_content(self.graph))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphBody) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"body:{self.digest}"


def describe_content(graph: Graph) -> list[str]:
    """One line per input, node and output, with values numbered in order of appearance."""
    label: dict[Value, str] = {}
    lines = []
    for n, value in enumerate(graph.inputs):
        label[value] = f"input{n}"
        lines.append(f"{label[value]}: {value.type}")

    def show(value: Value) -> str:
        return f"constant:{value.digest}" if isinstance(value, Constant) else label[value]

    for n, node in enumerate(graph.nodes):
        lines.append(f"node{n} = {node.op}({', '.join(map(show, node.inputs))})")
        label.update({r: f"node{n}.{k}" for k, r in enumerate(node.results)})
    return [*lines, f"return {', '.join(map(show, graph.outputs))}"]


def fresh_inputs(types: Sequence[TensorType]) -> tuple[Input, ...]:
    """Fresh inputs for the step of a body: not equal to any other input, whatever its name."""
    return tuple(Input(f"step{n}", t) for n, t in enumerate(types))


def close_body(
    inputs: Sequence[Input], outputs: Sequence[Value]
) -> tuple[GraphBody, tuple[Value, ...]]:
    """The body from inputs to outputs, and the outside values that it reads besides.

    What does not depend on the inputs is computed outside, once:

        step(h) = tanh(matmul(h, transpose(w)))   ->   step(h, t) = tanh(matmul(h, t))
                                                       read from outside: transpose(w)
    """
    inside: set[Value] = set(inputs)
    nodes = topological(outputs)
    for node in nodes:
        # Random numbers are drawn anew in every step.
        if not node.op.deterministic or not inside.isdisjoint(node.inputs):
            inside.update(node.results)
    read = dict.fromkeys(
        [v for node in nodes if node.results[0] in inside for v in node.inputs] + list(outputs)
    )
    outside = tuple(v for v in read if v not in inside and not _is_small_constant(v))
    names = [*(f"x{n}" for n in range(len(inputs))), *(f"c{n}" for n in range(len(outside)))]
    kept = [node for node in nodes if node.results[0] in inside]
    return _body((*inputs, *outside), names, kept, outputs), outside


def whole_body(inputs: Sequence[Input], outputs: Sequence[Value]) -> GraphBody:
    """The body from inputs to outputs, with all that it computes and all constants inside.

    This is for bodies that may not run at all, such as those of a branch.
    """
    names = [f"x{n}" for n in range(len(inputs))]
    return _body(inputs, names, topological(outputs), outputs)


def body_between(given: Sequence[Value], outputs: Sequence[Value]) -> GraphBody:
    """The body from given values, wherever they come from, to outputs that need no others."""
    names = [f"x{n}" for n in range(len(given))]
    return _body(given, names, topological(outputs, given), outputs)


def _body(
    given: Sequence[Value], names: Sequence[str], nodes: Sequence[Node], outputs: Sequence[Value]
) -> GraphBody:
    """The nodes as a graph whose inputs have these names and stand for the given values."""
    own = tuple(make_input(name, v.tensor_type) for name, v in zip(names, given, strict=True))
    replaced: dict[Value, Value] = dict(zip(given, own, strict=True))
    for node in nodes:
        made = apply(node.op, *(replaced.get(v, v) for v in node.inputs))
        replaced.update(zip(node.results, made, strict=True))
    results = tuple(replaced.get(v, v) for v in outputs)
    return GraphBody(Graph(own, results, tuple(f"y{n}" for n in range(len(results)))))


def _is_small_constant(value: Value) -> bool:
    return isinstance(value, Constant) and value.tensor_type.size <= SMALL_CONSTANT
