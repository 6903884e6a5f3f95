"""Parts of a graph as graphs of their own, with values for what they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from whet.core.types import Array
from whet.graph.graph import Constant, Graph, Input, Node, Value, apply, make_input
from whet.graph.interpret import interpret


@dataclass(frozen=True)
class Case:
    """A graph, and an array for each of its inputs by name."""

    graph: Graph
    arrays: Mapping[str, Array]


class Cutter:
    """Cuts parts out of a graph whose values are known for certain inputs."""

    def __init__(self, graph: Graph, arrays: Sequence[Array]) -> None:
        self.graph = graph
        self.known: dict[Value, Array] = dict(zip(graph.inputs, arrays, strict=True))

        def keep(node: Node, results: tuple[Array, ...]) -> None:
            self.known.update(zip(node.results, results, strict=True))

        interpret(graph, arrays, observe=keep)

    def outputs_of(self, nodes: Iterable[Node]) -> tuple[Value, ...]:
        """The results of the nodes that others read, or that the graph gives."""
        part = set(nodes)
        given = set(self.graph.outputs)
        return tuple(
            r
            for node in self.graph.nodes
            if node in part
            for r in node.results
            if r in given or any(u not in part for u in self.graph.users.get(r, ()))
        )

    def case(self, nodes: Iterable[Node], outputs: Sequence[Value] | None = None) -> Case:
        """The nodes alone: what they read of others are inputs, what others read of them outputs.

            y = f(x); z = g(y); r = h(z)   ->   z = g(y) with y as input   (nodes = {g})

        `outputs` leaves some of the outputs out.
        """
        part = set(nodes)
        now: dict[Value, Value] = {}
        inputs: dict[Input, Array] = {}
        names: dict[Node, str] = {}
        taken = {v.name for v in self.graph.inputs}

        def read(value: Value) -> Value:
            if isinstance(value, Constant):
                return value
            if value not in now:
                number = len(inputs)
                while (name := f"value{number}") in taken:
                    number += 1
                taken.add(name)
                own = value.name if isinstance(value, Input) else name
                made = make_input(own, value.tensor_type)
                inputs[made] = self.known[value]
                now[value] = made
            return now[value]

        for node in self.graph.nodes:
            if node in part:
                made = apply(node.op, *map(read, node.inputs))
                now.update(zip(node.results, made, strict=True))
                if node in self.graph.names:
                    names.setdefault(made[0].node, self.graph.names[node])
        wanted = dict.fromkeys(now[v] for v in outputs or self.outputs_of(part))
        whole = Graph(tuple(inputs), tuple(wanted), tuple(f"y{n}" for n in range(len(wanted))))
        used = {v for v in whole.values() if isinstance(v, Input)}
        kept = {v: a for v, a in inputs.items() if v in used}
        small = Graph(tuple(kept), whole.outputs, whole.output_names, names)
        return Case(small, {v.name: a for v, a in kept.items()})
