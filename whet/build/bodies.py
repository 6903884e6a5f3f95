"""Bodies of control flow as compiled code, for operators that run between segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from whet.core.types import Array, TensorType
from whet.graph.graph import Graph, Node
from whet.ops.base import Body, Builder, Op
from whet.runtime.executable import Executable
from whet.tasks.bodies import body_graphs


@dataclass(frozen=True, eq=False)
class CompiledBody:
    """A body that runs as native code; `taken` are its inputs that the code takes."""

    body: Body
    executable: Executable
    taken: tuple[int, ...]

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return self.body.input_types

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return self.body.output_types

    def run(self, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        return self.executable([arrays[n] for n in self.taken])

    def build(self, builder: Builder, *values: Any) -> tuple[Any, ...]:
        return self.body.build(builder, *values)

    def widened(self) -> Body:
        return self.body.widened()


def with_compiled_bodies(node: Node, compile_graph: Callable[[Graph], Executable]) -> Op:
    """The node's operator, whose bodies, if it has any, are compiled."""
    made = {
        name: CompiledBody(getattr(node.op, name), compile_graph(inner.graph), inner.taken)
        for name, inner in body_graphs(node).items()
    }
    if not made:
        return node.op
    return dataclasses.replace(node.op, **made)  # type: ignore[type-var]
