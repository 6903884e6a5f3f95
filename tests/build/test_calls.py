"""Calls of native executables: odd arrays, outputs of all kinds, several threads."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Sequence

import numpy as np
import pytest

from tests.build.comparing import check_native, native
from whet.build.native import NativeExecutable
from whet.core.dtypes import DType, bool_, f16, f32, f64, i8, i32, i64, u8
from whet.core.errors import OperatorError
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value
from whet.graph.interpret import interpret
from whet.ops.activation import Relu
from whet.ops.arithmetic import Add, Div, Maximum, Minimum, Mod, Mul
from whet.ops.conv import Conv
from whet.ops.gather import Gather
from whet.ops.host import NonZero
from whet.ops.logic import Less, LogicalAnd, Where
from whet.ops.matmul import MatMul
from whet.ops.movement import Reshape, Transpose
from whet.ops.reduce import ReduceSum
from whet.ops.scan import Scan
from whet.ops.shared.control import op_body


def graph_of(outputs: Sequence[Value], inputs: Sequence[Value]) -> Graph:
    return Graph(tuple(inputs), tuple(outputs), tuple(f"y{n}" for n in range(len(outputs))))  # type: ignore[arg-type]


def inputs_of(b: GraphBuilder, *shapes: tuple[int, ...], dtype: DType = f32) -> list[Value]:
    return [b.input(f"x{n}", TensorType(shape, dtype)) for n, shape in enumerate(shapes)]


def sum_graph(*shape: int) -> Graph:
    b = GraphBuilder()
    x, y = inputs_of(b, shape, shape)
    return graph_of([b.one(Add(), x, y)], [x, y])


@pytest.fixture
def adder() -> NativeExecutable:
    return native(sum_graph(4, 6))


X = np.arange(24, dtype=np.float32).reshape(4, 6)


def misaligned(array: Array) -> Array:
    raw = np.zeros(array.nbytes + 1, np.uint8)
    made = raw[1:].view(array.dtype).reshape(array.shape)
    made[...] = array
    assert not made.flags.aligned
    return made


@pytest.mark.parametrize(
    "odd",
    [X.T.copy().T, np.repeat(X, 2, axis=1)[:, ::2], X[::-1], misaligned(X),
     np.broadcast_to(X[0], X.shape)],
    ids=["transposed", "strided", "backwards", "misaligned", "broadcast"],
)  # fmt: skip
def test_inputs_may_lie_anyhow(adder: NativeExecutable, odd: Array) -> None:
    np.testing.assert_array_equal(adder([odd, X])[0], odd + X)
    np.testing.assert_array_equal(adder([odd, odd])[0], odd + odd)


def test_results_are_fresh_and_writable(adder: NativeExecutable) -> None:
    first, second = adder([X, X])[0], adder([X, X])[0]
    assert first is not second
    assert not np.may_share_memory(first, second)
    assert first.flags.writeable
    assert first.flags.c_contiguous


def test_out_may_overlap_inputs_or_be_strided(adder: NativeExecutable) -> None:
    x = X.copy()
    assert adder([x, X], out=[x])[0] is x
    np.testing.assert_array_equal(x, X + X)
    wide = np.zeros((4, 12), np.float32)
    adder([X, X], out=[wide[:, ::2]])
    np.testing.assert_array_equal(wide[:, ::2], X + X)
    assert not wide[:, 1::2].any()
    low = misaligned(X)
    adder([X, X], out=[low])
    np.testing.assert_array_equal(low, X + X)
    shifted = np.zeros(30, np.float32)
    shifted[:24] = X.reshape(-1)
    adder([shifted[:24].reshape(4, 6), X], out=[shifted[6:].reshape(4, 6)])
    np.testing.assert_array_equal(shifted[6:].reshape(4, 6), X + X)


def test_outputs_of_all_kinds() -> None:
    """An input, a constant, a view of an input, and one value twice."""
    b = GraphBuilder()
    (x,) = inputs_of(b, (3, 4))
    y = b.one(Relu(), x)
    constant = b.constant(np.arange(5, dtype=np.int64))
    flipped = b.one(Transpose((1, 0)), x)
    flat = b.one(Reshape((12,)), y)
    graph = graph_of([x, constant, flipped, y, y, flat], [x])
    given = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    check_native(graph, (given,), "outputs of all kinds")
    results = native(graph)([given])
    for n, one in enumerate(results):
        assert one.flags.writeable
        others = [given, *results[:n]]
        assert not any(np.may_share_memory(one, other) for other in others)


def test_weights_are_released_beside_host_operators() -> None:
    b = GraphBuilder()
    (x,) = inputs_of(b, (2, 33))
    weights = np.random.default_rng(0).standard_normal((33, 35)).astype(np.float32)
    y = b.one(MatMul(), x, b.constant(weights.copy()))
    graph = graph_of([y, b.one(NonZero(), y)], [x])
    originals = [weakref.ref(c) for c in graph.constants]
    executable = native(graph)
    del y, graph
    gc.collect()
    assert [c() for c in originals] == [None]
    given = np.ones((2, 33), np.float32)
    product, positions = executable([given])
    np.testing.assert_allclose(product, given @ weights, rtol=1e-5, atol=1e-5)
    assert positions.shape == (2, 70)


def test_unused_inputs_and_scalars() -> None:
    b = GraphBuilder()
    x, y, _ = inputs = inputs_of(b, (), (), (7,))
    graph = graph_of([b.one(Add(), x, y)], inputs)
    arrays = (np.array(2, np.float32), np.array(3, np.float32), np.zeros(7, np.float32))
    executable = native(graph)
    for given in (arrays, (np.float32(2), np.float32(3), arrays[2])):
        (result,) = executable(given)  # type: ignore[arg-type]
        assert result.shape == ()
        assert result == 5


def test_empty_tensors() -> None:
    b = GraphBuilder()
    x, y = inputs_of(b, (0, 4), (4, 3))
    product = b.one(MatMul(), x, y)
    total = b.one(ReduceSum((0,), True), product)
    graph = graph_of([product, total], [x, y])
    arrays = (np.zeros((0, 4), np.float32), np.ones((4, 3), np.float32))
    executable = check_native(graph, arrays, "empty tensors")
    assert any("without elements" in line for line in executable.report.reference)


NANS = np.array([np.nan, 1, -1, np.nan, 0, -np.inf, np.inf, 2], np.float32)


@pytest.mark.parametrize("op", [Minimum(), Maximum()])
@pytest.mark.parametrize("dtype", [f32, f64, f16])
def test_nan_wins_as_in_numpy(op: Minimum | Maximum, dtype: DType) -> None:
    b = GraphBuilder()
    x, y = inputs_of(b, (8,), (8,), dtype=dtype)
    low = b.constant(np.zeros(8, dtype.numpy))
    graph = graph_of([b.one(op, x, y), b.one(op, x, low), b.one(op, low, x)], [x, y])
    given = NANS.astype(dtype.numpy)
    check_native(graph, (given, given[::-1].copy()), str(op))


@pytest.mark.parametrize("dtype", [i8, i32, i64, u8])
@pytest.mark.parametrize("op", [Div(), Mod(), Mod(fmod=True)])
def test_integer_division(op: Div | Mod, dtype: DType) -> None:
    b = GraphBuilder()
    x, y = inputs_of(b, (9,), (9,), dtype=dtype)
    graph = graph_of([b.one(op, x, y)], [x, y])
    info = np.iinfo(dtype.numpy)
    top = np.array([7, 7, 9, 8, info.max, info.min, info.min, 1, 0], dtype.numpy)
    if info.min < 0:
        top[1:3] *= -1
    bottom = np.array([2, 3, 4, 8, 2, 2, 3, 5, 3], dtype.numpy)
    bottom[2] = -4 if info.min < 0 else 4
    check_native(graph, (top, bottom), f"{op} of {dtype}")


def test_division_by_zero_does_not_trap() -> None:
    b = GraphBuilder()
    x, y = inputs_of(b, (4,), (4,), dtype=i32)
    graph = graph_of([b.one(Div(), x, y), b.one(Mod(), x, y)], [x, y])
    low = np.iinfo(np.int32).min
    quotient, rest = native(graph)(
        [np.array([5, 0, low, -7], np.int32), np.array([0, 0, -1, 0], np.int32)]
    )
    assert quotient.tolist() == [0, 0, low, 0]
    assert rest.tolist() == [0, 0, 0, 0]


def test_truth_values_are_stored_as_bytes() -> None:
    b = GraphBuilder()
    x, y = inputs_of(b, (19,), (19,))
    flag = b.input("flag", TensorType((19,), bool_))
    graph = graph_of([b.one(LogicalAnd(), b.one(Less(), x, y), flag)], [x, y, flag])
    rng = np.random.default_rng(3)
    a, c = rng.standard_normal((2, 19)).astype(np.float32)
    check_native(graph, (a, c, rng.integers(0, 2, 19).astype(np.bool_)), "less and flag")


def test_host_operators_run_between_segments() -> None:
    b = GraphBuilder()
    (x,) = inputs_of(b, (3, 4))
    y = b.one(Relu(), x)
    positions = b.one(NonZero(), y)
    graph = graph_of([positions, y], [x])
    given = np.array([[1, -1, 2, 0], [0, 0, -3, 4], [-1, -1, -1, 5]], np.float32)
    executable = native(graph)
    found, relu = executable([given])
    np.testing.assert_array_equal(relu, np.maximum(given, 0))
    np.testing.assert_array_equal(found, np.array(np.nonzero(relu > 0)))
    assert any("depends on data" in line for line in executable.report.reference)


@pytest.mark.parametrize("shape", [(), (5,)])
def test_bodies_are_compiled(shape: tuple[int, ...]) -> None:
    b = GraphBuilder()
    state = TensorType(shape, f32)
    x, s = b.input("x", TensorType((7, *shape), f32)), b.input("s", state)
    scan = Scan(op_body(Add(), state, state), 7, 1, (0,))
    outputs = b.results(scan, s, x)
    graph = graph_of(outputs, [x, s])
    rng = np.random.default_rng(0)
    arrays = (rng.standard_normal((7, *shape)).astype(np.float32), np.zeros(shape, np.float32))
    check_native(graph, arrays, "scan")


# ------------------------------------------------------------------------------------- threads
def layered_graph() -> Graph:
    b = GraphBuilder()
    (x,) = inputs_of(b, (1, 8, 20, 20))
    rng = np.random.default_rng(1)
    y = x
    for _ in range(3):
        weights = b.constant(rng.standard_normal((8, 8, 3, 3)).astype(np.float32) / 8)
        y = b.one(Relu(), b.one(Conv((1, 1), (1, 1, 1, 1), (1, 1), 1), y, weights))
    return graph_of([b.one(Mul(), y, x)], [x])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_concurrent_calls_do_not_disturb_each_other(threads: int) -> None:
    graph = layered_graph()
    executable = native(graph, threads)
    rng = np.random.default_rng(2)
    given = [rng.standard_normal((1, 8, 20, 20)).astype(np.float32) for _ in range(4)]
    expected = [interpret(graph, (a,))[0] for a in given]
    wrong: list[int] = []

    def call(n: int) -> None:
        for _ in range(20):
            (got,) = executable([given[n]])
            if not np.allclose(got, expected[n], rtol=1e-4, atol=1e-4):
                wrong.append(n)

    workers = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_forked_child_can_call() -> None:
    executable = native(layered_graph(), 2)
    given = np.ones((1, 8, 20, 20), np.float32)
    (expected,) = executable([given])
    child = os.fork()
    if child == 0:
        same = False
        try:
            same = np.array_equal(executable([given])[0], expected)
        finally:
            os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("wrong", [5, -6, 1 << 40])
def test_an_index_outside_is_an_error(axis: int, wrong: int) -> None:
    b = GraphBuilder()
    x, at = b.input("x", TensorType((5, 5), f32)), b.input("at", TensorType((9,), i64))
    executable = native(graph_of([b.one(Gather(axis), x, at)], [x, at]))
    given = np.arange(25, dtype=np.float32).reshape(5, 5)
    indices = np.array([0, 4, -5, 1, -1, 2, 3, 0, 0])
    right = np.take(given, indices, axis)
    np.testing.assert_array_equal(executable([given, indices])[0], right)
    bad = np.where(np.arange(9) == 7, wrong, indices)
    with pytest.raises(OperatorError, match="WH1302 gather: an index that the model computes"):
        executable([given, bad])
    np.testing.assert_array_equal(executable([given, indices])[0], right)


@pytest.mark.parametrize("types", [(f32, f64), (f64, f16), (i64, i32), (u8, i8)])
def test_literals_of_two_types_are_two_kernels(types: tuple[DType, DType]) -> None:
    """Formulas that read the same and pick between equal numbers are told apart by the type."""
    b = GraphBuilder()
    x = b.input("x", TensorType((5,), i64))
    less = b.one(Less(), x, b.constant(np.array(2)))
    picked = [
        b.one(Where(), less, *(b.constant(np.array(n, t.numpy)) for n in (1, 3))) for t in types
    ]
    graph = Graph((x,), tuple(picked), ("a", "b"))
    check_native(graph, (np.arange(5),), "literals")
