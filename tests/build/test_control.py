"""Loops and branches as native code: every kind, nested, in guarded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.build.comparing import check_native, native, plan_of
from tests.targets import HOST
from whet.core.dtypes import DType, bool_, f16, f32, i64
from whet.core.errors import OperatorError
from whet.core.types import TensorType
from whet.graph.body import close_body, fresh_inputs, whole_body
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value
from whet.graph.interpret import interpret
from whet.graph.passes import expand_composites
from whet.joint.tuning import weighted_tasks
from whet.ops import REGISTRY
from whet.ops.arithmetic import Add, Exp, Mul, Sub, Tanh
from whet.ops.branch import Branch
from whet.ops.conv import Conv
from whet.ops.gather import Gather
from whet.ops.logic import Less
from whet.ops.loop import CollectingLoop, WhileLoop
from whet.ops.matmul import MatMul
from whet.ops.movement import Reshape, Slice, Transpose
from whet.ops.reduce import ReduceSum
from whet.ops.scan import Scan
from whet.tasks.steps import ControlStep, inner_steps

RNG = np.random.default_rng(12)
Step = Callable[..., Any]


def t(*shape: int, dtype: DType = f32) -> TensorType:
    return TensorType(shape, dtype)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def graph_of(outputs: Any, *inputs: Any) -> Graph:
    return Graph(inputs, tuple(outputs), tuple(f"y{n}" for n in range(len(outputs))))


def only_native(graph: Graph) -> None:
    """The graph is one segment, loops included."""
    report = native(graph).report
    assert report.segments == 1
    assert not report.reference


# --------------------------------------------------------------------------------------- scans
@pytest.mark.parametrize("length", [2, 3, 4, 7])
@pytest.mark.parametrize("reverse", [(False, False), (True, False), (False, True)])
def test_states_pieces_and_whole_values(length: int, reverse: tuple[bool, bool]) -> None:
    b = GraphBuilder()
    h, x, w = b.input("h", t(2, 5)), b.input("x", t(length, 2, 5)), b.input("w", t(5, 5))

    def step(h: Value, x: Value, w: Value) -> tuple[Value, ...]:
        new = b.one(Tanh(), b.one(Add(), x, b.one(MatMul(), h, w)))
        return new, b.one(Mul(), new, x)

    body = b.body((t(2, 5), t(2, 5), t(5, 5)), step)
    scan = Scan(body, length, 1, (0,), (0,), reverse[:1], reverse[1:])
    graph = graph_of(b.results(scan, h, x, w), h, x, w)
    check_native(graph, (normal(2, 5), normal(length, 2, 5), normal(5, 5)), "scan")
    only_native(graph)


@pytest.mark.parametrize("axes", [(0, 0), (1, 2), (2, 1)])
def test_slices_along_any_axis_of_strided_values(axes: tuple[int, int]) -> None:
    """The scanned value is a transposition, and the result is transposed and read again."""
    b = GraphBuilder()
    raw, h = b.input("x", t(3, 4, 5)), b.input("h", t(12))
    x = b.one(Transpose((2, 0, 1)), raw)
    shape = [5, 3, 4]
    length = shape.pop(axes[0])
    piece = t(*shape)

    def step(h: Value, x: Value) -> tuple[Value, ...]:
        flat = b.one(Reshape((x.tensor_type.size,)), x)
        short = b.one(Slice((0,), (h.tensor_type.size,), (1,)), flat)
        new = b.one(Add(), h, short)
        return new, b.one(Exp(), b.one(Reshape((3, 1)), b.one(Slice((0,), (3,), (1,)), new)))

    start = b.one(Slice((0,), (min(12, piece.size),), (1,)), h)
    body = b.body((start.tensor_type, piece), step)
    last, stacked = b.results(Scan(body, length, 1, (axes[0],), (axes[1],)), start, x)
    turned = b.one(Transpose((2, 1, 0)), stacked)
    graph = graph_of([b.one(Exp(), last), b.one(Add(), turned, turned)], raw, h)
    check_native(graph, (normal(3, 4, 5) / 8, normal(12)), f"axes {axes}")
    only_native(graph)


def test_images_with_borders_inside_a_body() -> None:
    """A convolution's input has zeros around it: they must survive the rounds."""
    b = GraphBuilder()
    conv = Conv((1, 1), (1, 1, 1, 1), (1, 1), 1)
    w = b.constant(normal(4, 4, 3, 3) / 6)
    image = t(1, 4, 6, 6)

    def step(h: Value, x: Value) -> tuple[Value, ...]:
        once = b.one(Tanh(), b.one(conv, b.one(Add(), h, x), w))
        return (b.one(Tanh(), b.one(conv, once, w)),)

    h, x = b.input("h", image), b.input("x", t(5, 1, 4, 6, 6))
    (own, piece) = fresh_inputs((image, image))
    body, outside = close_body((own, piece), step(own, piece))
    before = b.one(Tanh(), b.one(conv, h, w))
    (last,) = b.results(Scan(body, 5, 1, (0,)), before, x, *outside)
    graph = graph_of([b.one(conv, last, w)], h, x)
    check_native(graph, (normal(1, 4, 6, 6), normal(5, 1, 4, 6, 6)), "images")
    only_native(graph)


def test_states_that_are_passed_on_and_constants_among_the_results() -> None:
    b = GraphBuilder()

    def step(a: Value, c: Value) -> tuple[Value, ...]:
        return c, a, b.constant(np.float32(3)), a

    body = b.body((t(3), t(3)), step)
    a, c = b.input("a", t(3)), b.input("c", t(3))
    graph = graph_of(b.results(Scan(body, 5, 2, (), (0, 1)), a, c), a, c)
    check_native(graph, (normal(3), normal(3)), "swapped")


def test_a_state_that_starts_as_a_constant() -> None:
    b = GraphBuilder()
    body = b.body((t(3), t(3)), lambda h, x: (b.one(Add(), h, x),))
    x = b.input("x", t(6, 3))
    (last,) = b.results(Scan(body, 6, 1, (0,)), b.constant(normal(3)), x)
    check_native(graph_of([last], x), (normal(6, 3),), "constant")


def test_half_precision_and_truth_values_as_states() -> None:
    b = GraphBuilder()
    types = (t(5, dtype=f16), t(5, dtype=bool_))

    def step(x: Value, flag: Value) -> tuple[Value, ...]:
        new = b.one(Mul(), x, b.constant(np.float16(1.5)))
        return new, b.one(Less(), x, new)

    x, flag = b.input("x", types[0]), b.input("flag", types[1])
    graph = graph_of(b.results(Scan(b.body(types, step), 3, 2), x, flag), x, flag)
    arrays = (normal(5).astype(np.float16), np.zeros(5, np.bool_))
    check_native(graph, arrays, "types")


def test_recurrent_layers_are_one_segment() -> None:
    for name in ("rnn", "gru", "lstm"):
        sample = REGISTRY[name].samples()[0]
        inputs = tuple(GraphBuilder().input(f"x{n}", kind) for n, kind in enumerate(sample.types))
        only_native(graph_of(GraphBuilder().results(sample.op, *inputs), *inputs))


def test_the_kernels_of_a_body_are_tuned_as_often_as_they_run() -> None:
    b = GraphBuilder()
    body = b.body((t(4, 4), t(4, 4)), lambda h, w: (b.one(Tanh(), b.one(MatMul(), h, w)),))
    h, w = b.input("h", t(4, 4)), b.input("w", t(4, 4))
    graph = graph_of(b.results(Scan(body, 9, 1), h, w), h, w)
    (task,) = weighted_tasks([graph], HOST, 1, "real")
    assert task.counts == (9,)


# --------------------------------------------------------------------------------------- loops
def counting_body(b: GraphBuilder, *items: int) -> Any:
    """n, v <- n - 1, v * w + 1, while 1 < n; items are chosen among the results."""

    def step(n: Value, v: Value, w: Value) -> tuple[Value, ...]:
        one = b.constant(np.int64(1))
        new = b.one(Add(), b.one(Mul(), v, w), b.constant(np.float32(1)))
        results = (b.one(Less(), one, n), b.one(Sub(), n, one), new)
        return (*results, *(results[k] for k in items))

    return b.body((t(dtype=i64), t(37), t(37)), step)


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("starts", [True, False])
def test_loops_of_unknown_length(rounds: int, starts: bool) -> None:
    b = GraphBuilder()
    going, n = b.input("going", t(dtype=bool_)), b.input("n", t(dtype=i64))
    v, w = b.input("v", t(37)), b.input("w", t(37))
    graph = graph_of(b.results(WhileLoop(counting_body(b), 2), going, n, v, w), going, n, v, w)
    arrays = (np.array(starts), np.array(rounds), normal(37), normal(37))
    check_native(graph, arrays, f"{rounds} rounds")
    only_native(graph)


def test_an_index_outside_its_tensor_ends_a_loop() -> None:
    """It would go on forever: the condition is read with the same index."""
    b = GraphBuilder()
    types = (t(dtype=i64), t(3, dtype=bool_))

    def step(n: Value, flags: Value) -> tuple[Value, ...]:
        return b.one(Gather(0), flags, n), b.one(Add(), n, b.constant(np.int64(1)))

    going, n = b.constant(np.array(True)), b.input("n", types[0])
    flags = b.input("flags", types[1])
    graph = graph_of(b.results(WhileLoop(b.body(types, step), 1), going, n, flags), n, flags)
    executable = native(graph)
    (last,) = executable((np.array(0), np.array([True, False, True])))
    assert last == 2
    with pytest.raises(OperatorError, match="WH1302"):
        executable((np.array(0), np.array([True, True, True])))


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_collecting_loops_run_between_segments(rounds: int) -> None:
    b = GraphBuilder()
    going, n = b.input("going", t(1, dtype=bool_)), b.input("n", t(dtype=i64))
    v, w = b.input("v", t(37)), b.input("w", t(37))
    loop = CollectingLoop(counting_body(b, 2, 1), 2)
    graph = graph_of(b.results(loop, going, n, b.one(Tanh(), v), w), going, n, v, w)
    arrays = (np.array([rounds > 0]), np.array(rounds), normal(37), normal(37))
    executable = native(graph)
    assert any("compiled on its own" in line for line in executable.report.reference)
    for got, want in zip(executable(arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        assert got.shape == want.shape


# ------------------------------------------------------------------------------------ branches
def branch_of(b: GraphBuilder, types: list[TensorType], then: Step, other: Step) -> Branch:
    bodies = []
    for step in (then, other):
        own = fresh_inputs(types)
        bodies.append(whole_body(own, step(*own)))
    return Branch(*bodies)


@pytest.mark.parametrize("condition", [True, False])
def test_one_branch_runs(condition: bool) -> None:
    """The other one would read outside its tensor, which native code reports."""
    b = GraphBuilder()
    weights = b.constant(normal(6, 6))

    def look_up(x: Value, index: Value) -> list[Value]:
        return [b.one(Gather(0), x, index), b.one(ReduceSum((0, 1)), x)]

    def multiply(x: Value, index: Value) -> list[Value]:
        y = b.one(MatMul(), x, weights)
        return [b.one(Slice((0, 0), (2, 6), (1, 1)), y), b.one(ReduceSum((0, 1)), y)]

    types = [t(4, 6), t(2, dtype=i64)]
    c, x, index = b.input("c", t(dtype=bool_)), b.input("x", types[0]), b.input("i", types[1])
    doubled = b.one(Add(), x, x)
    results = b.results(branch_of(b, types, look_up, multiply), c, doubled, index)
    graph = graph_of([b.one(Exp(), results[0]), results[1]], c, x, index)
    given = np.array([3, 0] if condition else [70, -90])
    check_native(graph, (np.array(condition), normal(4, 6), given), f"{condition}")
    only_native(graph)


@pytest.mark.parametrize("start", [0.5, 3.0])
def test_loops_in_branches_in_loops(start: float) -> None:
    b = GraphBuilder()
    row = t(4)

    def inner_loop(v: Value) -> list[Value]:
        own = fresh_inputs((row, row))
        grown = b.one(Add(), own[0], b.one(Exp(), own[1]))
        goes = b.one(Less(), b.one(ReduceSum((0,)), grown), b.constant(np.float32(40)))
        body, _ = close_body(own, (goes, grown))
        return [b.one(WhileLoop(body, 1), b.constant(np.array(True)), v, v)]

    def scanned(v: Value) -> list[Value]:
        body = b.body((row,), lambda x: (b.one(Tanh(), x),))
        return [b.one(Scan(body, 3, 1), v)]

    def step(v: Value, x: Value) -> tuple[Value, ...]:
        total = b.one(ReduceSum((0,)), v)
        small = b.one(Less(), total, b.constant(np.float32(2)))
        new = b.one(branch_of(b, [row], inner_loop, scanned), small, b.one(Add(), v, x))
        return new, new

    own = fresh_inputs((row, row))
    body, _ = close_body(own, step(*own))
    v, x = b.input("v", row), b.input("x", t(6, 4))
    graph = graph_of(b.results(Scan(body, 6, 1, (0,), (0,)), v, x), v, x)
    check_native(graph, (np.full(4, start, np.float32), normal(6, 4) / 4), "nested")
    only_native(graph)


def test_bodies_that_native_code_cannot_run_whole_are_compiled_in_parts() -> None:
    b = GraphBuilder()

    def step(total: Value, x: Value) -> tuple[Value, ...]:
        empty = b.one(Slice((0,), (0,), (1,)), x)
        joined = b.one(REGISTRY["concat"](0), empty, b.one(Tanh(), x))
        return (b.one(Add(), total, joined),)

    body = b.body((t(5), t(5)), step)
    total, x = b.input("s", t(5)), b.input("x", t(4, 5))
    graph = graph_of(b.results(Scan(body, 4, 1, (0,)), total, x), total, x)
    executable = check_native(graph, (normal(5), normal(4, 5)), "parts")
    assert any("without elements" in line for line in executable.report.reference)


# ---------------------------------------------------------------------------------------- plans
def test_rounds_need_no_more_memory_than_one() -> None:
    def working_memory(length: int) -> int:
        b = GraphBuilder()
        body = b.body((t(64, 64), t(64, 64)), lambda h, w: (
            b.one(Tanh(), b.one(MatMul(), b.one(Tanh(), b.one(MatMul(), h, w)), w)),
        ))  # fmt: skip
        h, w = b.input("h", t(64, 64)), b.input("w", t(64, 64))
        return native(graph_of(b.results(Scan(body, length, 1), h, w), h, w)).report.arena_bytes

    assert working_memory(100) == working_memory(3)


def test_a_scan_of_one_step_is_written_out() -> None:
    b = GraphBuilder()
    body = b.body((t(5), t(5)), lambda h, x: (b.one(Add(), h, x),))
    h, x = b.input("h", t(5)), b.input("x", t(1, 5))
    graph = expand_composites(graph_of(b.results(Scan(body, 1, 1, (0,)), h, x), h, x))
    assert "scan" not in [n.op.name for n in graph.nodes]
    check_native(graph, (normal(5), normal(1, 5)), "one step")


def test_steps_inside_bodies_are_found() -> None:
    b = GraphBuilder()
    body = b.body((t(5),), lambda h: (b.one(Tanh(), h),))
    h = b.input("h", t(5))
    plan = plan_of(graph_of(b.results(Scan(body, 3, 1), h), h))
    (step,) = plan.steps
    assert isinstance(step, ControlStep)
    assert [times for _, times in inner_steps(step)] == [3]
