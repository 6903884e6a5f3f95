"""The interpreter: values, memory, and the types in which values are carried."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from whet.core.dtypes import bf16, f16, f32, f64, i16, i32
from whet.core.errors import UsageError
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Node, apply, make_input
from whet.graph.interpret import interpret
from whet.ops import REGISTRY
from whet.ops.base import Sample

SAMPLES = [
    pytest.param(sample, id=f"{name}-{n}")
    for name, cls in sorted(REGISTRY.items())
    for n, sample in enumerate(cls.samples())
]


def one_node(sample: Sample) -> Graph:
    inputs = tuple(make_input(f"x{n}", t) for n, t in enumerate(sample.types))
    outputs = apply(sample.op, *inputs)
    return Graph(inputs, outputs, tuple(f"y{n}" for n in range(len(outputs))))


def unary(name: str, t: TensorType, **attributes: object) -> Graph:
    return one_node(Sample(REGISTRY[name](**attributes), (t,)))


def test_inputs_are_checked() -> None:
    graph = unary("relu", TensorType((2,), f32))
    with pytest.raises(UsageError, match="1 inputs and got 0"):
        interpret(graph, [])
    with pytest.raises(UsageError, match=r"input 'x0' is f32\[2\], got f64\[2\]"):
        interpret(graph, [np.zeros(2)])


def test_values_are_released_after_their_last_use() -> None:
    x = make_input("x", TensorType((1000,), f32))
    value = x
    for _ in range(6):
        (value,) = apply(REGISTRY["exp"](), value)
    alive: list[weakref.ref[Array]] = []
    most = 0

    def observe(node: Node, results: tuple[Array, ...]) -> None:
        nonlocal most
        alive.append(weakref.ref(results[0]))
        gc.collect()
        most = max(most, sum(r() is not None for r in alive))

    interpret(Graph((x,), (value,), ("y",)), [np.zeros(1000, np.float32)], observe=observe)
    assert len(alive) == 6
    assert most <= 2  # what a node reads and what it makes


def test_precise_results_are_f64_and_closer() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((64,), f32))
    y = x
    for _ in range(5):
        y = b.one(REGISTRY["sin"](), b.one(REGISTRY["exp"](), y))
    graph = Graph((x,), (y,), ("y",))
    data = np.linspace(-1, 1, 64, dtype=np.float32)
    exact = data.astype(np.float64)
    for _ in range(5):
        exact = np.sin(np.exp(exact))
    (precise,) = interpret(graph, [data], precise=True)
    (plain,) = interpret(graph, [data])
    assert precise.dtype == np.float64
    np.testing.assert_array_equal(precise, exact)
    assert np.abs(plain - exact).max() > 0
    (again,) = interpret(graph, [data.astype(np.float64)], precise=True)
    np.testing.assert_array_equal(again, exact)


@pytest.mark.parametrize("to", [f16, bf16, f32, f64])
def test_precise_casts_between_floats_change_nothing(to: object) -> None:
    graph = unary("cast", TensorType((2,), f32), to=to)
    (y,) = interpret(graph, [np.array([1e30, 1.0001], np.float32)], precise=True)
    np.testing.assert_array_equal(y, np.array([1e30, 1.0001], np.float32).astype(np.float64))


def test_precise_casts_to_other_kinds_do_change() -> None:
    whole = unary("cast", TensorType((2,), f32), to=i32)
    (y,) = interpret(whole, [np.array([1.9, -1.9], np.float32)], precise=True)
    assert y.dtype == np.int32
    assert y.tolist() == [1, -1]


def test_precise_bits_are_those_of_the_declared_type() -> None:
    graph = unary("bitcast", TensorType((1,), f32), to=i32)
    (y,) = interpret(graph, [np.array([1.0], np.float32)], precise=True)
    assert y.tolist() == [0x3F800000]


@pytest.mark.parametrize("sample", SAMPLES)
def test_precise_mode_agrees_for_every_operator(sample: Sample) -> None:
    if not sample.op.deterministic:
        return
    graph = one_node(sample)
    arrays = sample.arrays(np.random.default_rng(3))
    for plain, precise in zip(
        interpret(graph, arrays), interpret(graph, arrays, precise=True), strict=True
    ):
        assert plain.shape == precise.shape
        np.testing.assert_allclose(
            plain.astype(np.float64), precise.astype(np.float64), rtol=0.02, atol=0.02
        )


def test_halves_are_rounded_by_casts_and_outputs_alone() -> None:
    """(x + 1) - 1 loses a small x where the sum is rounded."""
    b = GraphBuilder()
    x = b.input("x", TensorType((2,), f16))
    one = b.constant(np.array(1, np.float16))
    total = b.one(REGISTRY["add"](), x, one)
    kept = b.one(REGISTRY["sub"](), total, one)
    wide = b.one(REGISTRY["cast"](f32), total)
    again = b.one(REGISTRY["cast"](f32), b.one(REGISTRY["cast"](f16), wide))
    bits = b.one(REGISTRY["bitcast"](i16), total)
    graph = Graph((x,), (kept, again, bits), ("kept", "again", "bits"))
    data = np.array([2.0**-14, 2.0**-13], np.float16)
    for arrays in (interpret(graph, [data]), interpret(graph, [data], round_halves=False)):
        assert [a.dtype for a in arrays] == [np.float16, np.float32, np.int16]
        assert arrays[1].tolist() == [1, 1]
        assert arrays[2].tolist() == [0x3C00, 0x3C00]
    assert interpret(graph, [data])[0].tolist() == [0, 0]
    assert interpret(graph, [data], round_halves=False)[0].tolist() == data.tolist()


def test_halves_that_overflow_between_operators_may_come_back() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((1,), f16))
    square = b.one(REGISTRY["mul"](), x, x)
    graph = Graph((x,), (square, b.one(REGISTRY["sqrt"](), square)), ("square", "root"))
    square, root = interpret(graph, [np.array([300], np.float16)], round_halves=False)
    assert square.tolist() == [np.inf]
    assert root.tolist() == [300]
