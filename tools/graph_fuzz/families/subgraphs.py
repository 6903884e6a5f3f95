"""Bodies of control flow: small graphs that see the values around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onnx import helper

from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import GENERATORS
from tools.graph_fuzz.schemas import TO_ONNX
from whet.core.dtypes import FLOATS
from whet.core.types import Array, TensorType

SIMPLE = (
    "Add", "Mul", "Sub", "Relu", "Tanh", "Sigmoid", "Max", "Min", "Abs", "Neg", "Where", "Clip",
    "Transpose", "Concat", "Slice", "ReduceSum", "ReduceMax", "MatMul", "Softmax", "Cast", "Less",
    "Identity", "Mod", "Gather", "LeakyRelu", "Pad",
)  # fmt: skip
"""What bodies are made of."""


@dataclass(frozen=True)
class GrownBody:
    """A subgraph and its outputs."""

    graph: Any
    outputs: tuple[Held, ...]


def grow_body(
    g: Growth, arguments: Sequence[Array], give: int = 0, states: Sequence[TensorType] = (),
    first: Sequence[str] = (), seeds: Sequence[TensorType] = (), closed: bool = False,
) -> GrownBody:  # fmt: skip
    """A subgraph that takes `arguments` and gives first values of the types of `states`, then
    `give` others.

    Names in `first` are given before all of these.  With `seeds` it starts from values of these
    types: a branch takes no arguments, and what it computes with comes from outside.  A `closed`
    one reads nothing from there.
    """
    inner = Growth(g.draw, g.opset, g.style, empty=g.empty, common=g.common, outer=g, closed=closed)
    inputs = [inner.input(a) for a in arguments]
    inner.pool += inputs
    for t in seeds:
        inner.emit("Identity", inner.same(t.dtype, t.shape))
    for _ in range(g.draw.integer(1, 4)):
        name = g.draw.pick(SIMPLE)
        try:
            with inner.attempt():
                GENERATORS["", name](inner, name)
        except Impossible:
            continue
    outputs = [_of_type(inner, t) for t in states]
    candidates = [v for v in inner.pool if v.size] or inputs
    for _ in range(give):
        if not candidates:
            raise Impossible
        outputs.append(inner.emit("Identity", g.draw.pick(candidates[-4:])))
    graph = helper.make_graph(
        inner.nodes, inner.fresh_name("body"),
        [_info(v) for v in inputs],
        [helper.make_empty_tensor_value_info(n) for n in first] + [_info(v) for v in outputs],
        inner.initializers,
    )  # fmt: skip
    return GrownBody(graph, tuple(outputs))


def _info(v: Held) -> Any:
    return helper.make_tensor_value_info(v.name, TO_ONNX[v.dtype], v.shape)


def _of_type(g: Growth, t: TensorType) -> Held:
    """A value that the body has computed, of the type that a state must keep."""
    found = [v for v in g.pool if v.type == t]
    computed = [v for v in found if v.name not in {i.name for i in g.inputs}]
    if computed and g.draw.chance(0.8):
        return g.emit("Identity", g.draw.pick(computed))
    if t.dtype in FLOATS and t.dtype in g.types("Tanh"):
        other = g.same(t.dtype, t.shape)
        return g.emit("Tanh", g.emit("Add", g.draw.pick(found), other))
    return g.emit("Identity", g.draw.pick(found))
