"""Plans of transformers on GPUs: one kernel for every attention, where that pays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from whet.codegen.cuda.support import has_code
from whet.core.dtypes import f32
from whet.core.gpu import PRESETS
from whet.core.precision import PRECISIONS
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value
from whet.graph.passes import expand_composites
from whet.graph.passes.half_precision import half_precision
from whet.ops.arithmetic import Add, Mul
from whet.ops.matmul import MatMul
from whet.ops.movement import Reshape, Transpose
from whet.ops.softmax import Softmax
from whet.schedule.families.gpu_contraction.law import LAWS
from whet.schedule.gpu_prices import GpuPrice
from whet.tasks.plan import plan_graph
from whet.tasks.steps import Step

LEAF = {"fp32": {"ffma"}, "fp32x3": {"ffma", "fp32x3"}, "tf32": {"tf32"}, "fp16": {"mma"},
        "bf16": {"mma"}}  # fmt: skip


def weight(b: GraphBuilder, rows: int, columns: int) -> Value:
    return b.constant(np.zeros((rows, columns), np.float32))


def attention(b: GraphBuilder, x: Value, heads: int, *, masked: bool) -> Value:
    """The attention of a layer, with its projections."""
    tokens, width = x.tensor_type.shape
    size = width // heads

    def projected(order: tuple[int, ...]) -> Value:
        y = b(MatMul(), x, weight(b, width, width))
        return b(Transpose(order), b(Reshape((tokens, heads, size)), y))

    q, k, v = projected((1, 0, 2)), projected((1, 2, 0)), projected((1, 0, 2))
    scores = b(Mul(), b(MatMul(), q, k), b.constant(np.float32(size**-0.5)))
    if masked:
        scores = b(Add(), scores, b.constant(np.triu(np.full((tokens, tokens), -9.0, np.float32))))
    y = b(MatMul(), b(Softmax(2), scores), v)
    merged = b(Reshape((tokens, width)), b(Transpose((1, 0, 2)), y))
    return b(Add(), x, b(MatMul(), merged, weight(b, width, width)))


def layers(count: int, tokens: int, width: int, heads: int, *, masked: bool = False) -> Graph:
    b = GraphBuilder()
    x = b.input("x", TensorType((tokens, width), f32))
    y: Value = x
    for _ in range(count):
        y = attention(b, y, heads, masked=masked)
    return Graph((x,), (y,), ("y",))


def sketches(graph: Graph, precision: str, preset: str = "cuda-sm_90a") -> list[str]:
    """The sketches of the default kernels of a plan, in order."""
    storage = PRECISIONS[precision].storage
    if storage is not None:
        graph = half_precision(graph, storage)
    price = GpuPrice(replace(PRESETS[preset], precision=precision), "real")
    plan = plan_graph(expand_composites(graph), price, has_code)
    found = [price.choice(s.task) for p in plan.plans.values() for s in p.steps
             if isinstance(s, Step) and s.nodes]  # fmt: skip
    return [choice.sketch.name for choice in found if choice is not None]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("precision", LEAF)
@pytest.mark.parametrize(("tokens", "width"), [(128, 768), (197, 768)], ids=["bert", "vit"])
def test_every_layer_has_one_kernel_for_its_attention(
    tokens: int, width: int, precision: str, preset: str, masked: bool
) -> None:
    """And with it four for its projections: nothing is transposed on its own."""
    found = sketches(layers(2, tokens, width, 12, masked=masked), precision, preset)
    fused = [name for name in found if name.startswith("gpu_attention_")]
    assert len(fused) == 2
    assert {name.removeprefix("gpu_attention_") for name in fused} <= LEAF[precision]
    others = [name for name in found if name not in fused]
    assert len(others) - 2 * (PRECISIONS[precision].storage is not None) <= 8


def test_prices_decide_whether_it_is_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = layers(1, 64, 768, 12)
    assert any("attention" in name for name in sketches(layer, "fp32"))
    monkeypatch.setitem(LAWS, "ffma", replace(LAWS["ffma"], start=4000.0))
    assert not any("attention" in name for name in sketches(layer, "fp32"))


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_rows_that_shared_memory_does_not_hold_are_apart(precision: str) -> None:
    found = sketches(layers(1, 8192, 128, 2), precision)
    assert not any("attention" in name for name in found)
