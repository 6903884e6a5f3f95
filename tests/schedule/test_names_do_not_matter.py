"""Nothing is chosen by operator name: copies of all operators give the same kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.build.comparing import plan_of
from whet.core.cpu import PRESETS
from whet.core.dtypes import f32
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Node, Value
from whet.graph.passes.expand_composites import expand_composites
from whet.graph.rewrite import rebuild
from whet.ops import REGISTRY
from whet.ops.base import Op
from whet.schedule.default import default_choice
from whet.tasks.steps import LoopStep, Step

TARGET = PRESETS["x86-64-v3"]
RNG = np.random.default_rng(3)


def weights(b: GraphBuilder, *shape: int) -> Value:
    return b.constant(RNG.standard_normal(shape).astype(np.float32))


def image_model() -> Graph:
    """Convolutions of several kinds, pools, an addition, a dense layer and softmax."""
    b = GraphBuilder()
    conv, transposed = REGISTRY["conv"], REGISTRY["conv_transpose"]
    x = image = b.input("x", TensorType((1, 3, 18, 18), f32))
    x = b.one(conv((2, 2), (1,) * 4, (1, 1), 1), x, weights(b, 16, 3, 3, 3))
    x = b.one(REGISTRY["relu"](), x)
    x = b.one(REGISTRY["max_pool"]((2, 2), (1, 1), (0,) * 4, (1, 1), False), x)
    y = b.one(conv((1, 1), (1,) * 4, (1, 1), 1), x, weights(b, 16, 16, 3, 3))
    y = b.one(conv((1, 1), (1,) * 4, (1, 1), 16), y, weights(b, 16, 1, 3, 3))
    x = b.one(REGISTRY["add"](), x, y)
    x = b.one(transposed((2, 2), (1,) * 4, (1, 1), (0, 0), 1), x, weights(b, 16, 8, 4, 4))
    x = b.one(REGISTRY["reduce_mean"]((2, 3), False), x)
    x = b.one(REGISTRY["matmul"](), x, weights(b, 8, 10))
    return Graph((image,), (b.one(REGISTRY["softmax"](1), x),), ("y",))


def text_model() -> Graph:
    """A block of attention: products of activations, normalization, a gate."""
    b = GraphBuilder()
    x = tokens = b.input("x", TensorType((12, 16), f32))
    one, zero = weights(b, 16), weights(b, 16)
    x = b.one(REGISTRY["layer_norm"](1, 1e-5), x, one, zero)
    q = b.one(REGISTRY["matmul"](), x, weights(b, 16, 16))
    k = b.one(REGISTRY["transpose"]((1, 0)), b.one(REGISTRY["matmul"](), x, weights(b, 16, 16)))
    score = b.one(REGISTRY["softmax"](1), b.one(REGISTRY["matmul"](), q, k))
    y = b.one(REGISTRY["gelu"]("tanh"), b.one(REGISTRY["matmul"](), score, x))
    y = b.one(REGISTRY["concat"](1), b.one(REGISTRY["sigmoid"](), y), x)
    return Graph((tokens,), (y,), ("y",))


def fields_of(op: Op) -> dict[str, Any]:
    return {f.name: getattr(op, f.name) for f in dataclasses.fields(op)}  # type: ignore[arg-type]


def stranger(cls: type[Op], name: str) -> type[Op]:
    """A copy of an operator under another name, which is no subclass of the original.

    Its definition still is the original's: what an operator means may depend on its name.
    """

    def defined_as(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *args: original(cls(**fields_of(self)), *args)

    members = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    for member in ("infer", "compute", "program"):
        original = getattr(cls, member)
        members[member] = None if original is None else defined_as(original)
    return type(name.capitalize(), cls.__bases__, {**members, "name": name})


def with_strangers(graph: Graph) -> Graph:
    copies = {cls: stranger(cls, f"stranger{n}") for n, cls in enumerate(REGISTRY.values())}

    def step(b: GraphBuilder, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        return b.results(copies[type(node.op)](**fields_of(node.op)), *inputs)

    return rebuild(graph, step)


def kernels(graph: Graph) -> list[tuple[str, str]]:
    """Keys and program texts of all steps, in order."""
    found = []
    for step in plan_of(graph).steps:
        assert isinstance(step, (Step, LoopStep))
        if isinstance(step, LoopStep):
            found.append((step.key, str(step.program)))
        else:
            choice = default_choice(step.task, TARGET, 2)
            found.append((step.key, str(choice.kernel("k").program)))
    return found


@pytest.mark.parametrize("make", [image_model, text_model])
def test_renamed_operators_give_the_same_kernels(make: Callable[[], Graph]) -> None:
    graph = expand_composites(make())
    renamed = with_strangers(graph)
    assert not {n.op.name for n in graph.nodes} & {n.op.name for n in renamed.nodes}
    expected = kernels(graph)
    assert len(expected) > 4
    assert kernels(renamed) == expected
