"""Results that are moved at once are written where they are moved to, if sketches can do so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.targets import HOST
from whet.codegen.cuda.support import has_code
from whet.core.dtypes import f32
from whet.core.gpu import PRESETS
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Graph, Value
from whet.graph.interpret import interpret
from whet.graph.passes import expand_composites
from whet.ir.program import Buffer
from whet.ops.activation import Relu
from whet.ops.matmul import MatMul
from whet.ops.movement import Reshape, Transpose
from whet.ops.softmax import Softmax
from whet.schedule.gpu_prices import GpuPrice
from whet.schedule.prices import AnalyticPrice
from whet.tasks.places import Storage
from whet.tasks.plan import plan_graph
from whet.tasks.price import Price
from whet.tasks.products import evaluate_fast
from whet.tasks.steps import Step

GPU = GpuPrice(PRESETS["cuda-sm_90a"], "real")
Make = Callable[[GraphBuilder, Value, Value], tuple[Value, ...]]


def graph_of(make: Make) -> Graph:
    """What becomes of a product of 4 heads, 24 x 32 each."""
    b = GraphBuilder()
    x, w = b.input("x", TensorType((4, 24, 16), f32)), b.input("w", TensorType((4, 16, 32), f32))
    outputs = make(b, x, w)
    names = tuple(f"y{n}" for n in range(len(outputs)))
    return expand_composites(Graph((x, w), outputs, names))


def merged_heads(b: GraphBuilder, y: Value) -> Value:
    return b(Reshape((24, 128)), b(Transpose((1, 0, 2)), y))


def multiplied(b: GraphBuilder, x: Value) -> Value:
    shape = (x.tensor_type.shape[-1], 8)
    return b(
        MatMul(), x, b.constant(np.linspace(-1, 1, shape[0] * 8, dtype=np.float32).reshape(shape))
    )


def then_moved(b: GraphBuilder, x: Value, w: Value) -> tuple[Value, ...]:
    return (multiplied(b, merged_heads(b, b(Relu(), b(MatMul(), x, w)))),)


def then_moved_twice(b: GraphBuilder, x: Value, w: Value) -> tuple[Value, ...]:
    """Heads side by side, and one below the other again."""
    apart = b(Reshape((24, 4, 32)), merged_heads(b, b(MatMul(), x, w)))
    return (multiplied(b, b(Reshape((96, 32)), b(Transpose((1, 0, 2)), apart))),)


def then_split(b: GraphBuilder, x: Value, w: Value) -> tuple[Value, ...]:
    """Rows of a group go apart, which no strides can say."""
    groups = b(Reshape((3, 8, 4, 32)), merged_heads(b, b(MatMul(), x, w)))
    return (multiplied(b, b(Reshape((96, 32)), b(Transpose((2, 1, 0, 3)), groups))),)


def then_turned(b: GraphBuilder, x: Value, w: Value) -> tuple[Value, ...]:
    """Neighbours do not stay neighbours: a kernel of its own reads and writes neighbours."""
    moved = b(Reshape((32, 4 * 24)), b(Transpose((2, 1, 0)), b(MatMul(), x, w)))
    return (multiplied(b, moved),)


def then_moved_and_read(b: GraphBuilder, x: Value, w: Value) -> tuple[Value, ...]:
    """What is moved is also read as it lies."""
    y = b(MatMul(), x, w)
    return multiplied(b, merged_heads(b, y)), b(Softmax(2), y)


def steps_of(graph: Graph, price: Price) -> list[Step]:
    plan = plan_graph(graph, price, has_code)
    return [s for part in plan.plans.values() for s in part.steps if isinstance(s, Step)]


def moves(steps: list[Step]) -> int:
    """Steps that compute nothing."""
    return sum(all(isinstance(n.op, (Transpose, Reshape)) for n in s.nodes) for s in steps)


def results_of(graph: Graph, steps: list[Step], given: dict[Value, Array]) -> list[Array]:
    """What the steps leave in memory, each taken by what its task means."""
    memory: dict[Storage, Array] = {}

    def elements(storage: Storage, buffer: Buffer) -> Array:
        if storage not in memory:
            known = storage.value
            start = known.array if isinstance(known, Constant) else given.get(known)
            filled = np.full(storage.size, np.nan, np.float32) if start is None else start
            memory[storage] = np.ascontiguousarray(filled).reshape(-1)
        strides = [s * 4 for s in buffer.element_strides]
        flat = memory[storage][buffer.offset :]
        return np.lib.stride_tricks.as_strided(flat, buffer.shape, strides)

    for step in steps:
        task = step.task
        read = {t: elements(step.storages[t], task.buffers[t]).copy() for t in task.inputs}
        for t, made in zip(task.outputs, evaluate_fast(task.outputs, read), strict=True):
            elements(step.storages[t], task.buffers[t])[...] = made
    found = {s.value: m for s, m in memory.items() if s.kind == "output"}
    return [found[v].reshape(v.tensor_type.shape) for v in graph.outputs]


@pytest.mark.parametrize(
    ("make", "left"),
    [
        (then_moved, 0),
        (then_moved_twice, 0),
        (then_split, 1),
        (then_turned, 1),
        (then_moved_and_read, 1),
    ],
)
def test_moves_are_part_of_the_step_before(make: Make, left: int) -> None:
    graph = graph_of(make)
    steps = steps_of(graph, GPU)
    assert moves(steps) == left
    rng = np.random.default_rng(0)
    given = {v: rng.standard_normal(v.tensor_type.shape).astype(np.float32) for v in graph.inputs}
    wanted = interpret(graph, tuple(given.values()))
    for got, want in zip(results_of(graph, steps, given), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_cpus_move_in_a_step_of_its_own() -> None:
    steps = steps_of(graph_of(then_moved), AnalyticPrice(HOST, 1, "real"))
    assert moves(steps) == 1
