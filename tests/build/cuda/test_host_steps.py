"""Models of which parts run on the host: what is copied between it and the GPU, and what is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.build.comparing import sample_graph
from tests.build.cuda.foreign import WithTable, on_device
from tests.build.cuda.recorded_driver import RecordedDriver
from tests.build.cuda.segments import image_of, normal, segment_on, sum_graph
from tests.build.cuda.test_calls import model_of
from whet.api.compiled import CompiledModel
from whet.build.cuda.segment import ForeignSegment
from whet.build.executable import NativeExecutable
from whet.build.steps import LoneStep, NativeStep, Step
from whet.build.transfers import host_lines
from whet.core.dtypes import f32
from whet.core.errors import UsageError
from whet.core.gpu import PRESETS
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Input, Value
from whet.ops.activation import Relu
from whet.ops.arithmetic import Add, Mul
from whet.ops.base import REGISTRY

SHAPE, BYTES = (2, 3), 24


def part(inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> Graph:
    """The graph of what lies between values, which are inputs of its own."""
    b, known = GraphBuilder(), dict[Value, Value]()
    for n, v in enumerate(inputs):
        known[v] = b.input(f"i{n}", v.tensor_type)

    def copied(v: Value) -> Value:
        if v not in known:
            known[v] = b.one(v.node.op, *map(copied, v.node.inputs))  # type: ignore[attr-defined]
        return known[v]

    made = tuple(map(copied, outputs))
    taken = tuple(v for v in known.values() if isinstance(v, Input))
    return Graph(taken, made, tuple(f"o{n}" for n in range(len(made))))


class Case:
    """Segments on one driver, and operators on the host between them."""

    def __init__(self) -> None:
        self.driver, self.steps = RecordedDriver(), list[Step]()
        self.builder = GraphBuilder()
        self.x = self.builder.input("x", TensorType(SHAPE, f32))

    def segment(self, inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> None:
        made = segment_on(self.driver, part(inputs, outputs))
        self.steps.append(NativeStep(made, inputs, outputs))

    def lone(self, v: Value) -> None:
        self.steps.append(LoneStep(v.node.op, v.node))  # type: ignore[attr-defined]

    def model(self, *outputs: Value) -> CompiledModel:
        names = tuple(f"y{n}" for n in range(len(outputs)))
        graph = Graph((self.x,), outputs, names)
        return model_of(graph, NativeExecutable(graph, tuple(self.steps), {}))

    def copies(self) -> dict[str, int]:
        """Bytes of each kind of copy so far, which are forgotten."""
        found = {kind: sum(e[1] for e in self.driver.ops(kind))
                 for kind in ("copy", "copy_in", "copy_out")}  # fmt: skip
        self.driver.log.clear()
        return found


def with_relu() -> Case:
    """The steps of d = x + x, s = x * x, r = relu(d), y = r + s: r on the host, s for the GPU."""
    made = Case()
    b, x = made.builder, made.x
    d, s = b.one(Add(), x, x), b.one(Mul(), x, x)
    r = b.one(Relu(), d)
    made.segment((x,), (d, s))
    made.lone(r)
    made.segment((r, s), (b.one(Add(), r, s),))
    return made


def expected(x: Array) -> Array:
    return np.maximum(x + x, 0) + x * x


def of(case: Case) -> CompiledModel:
    (last,) = case.steps[-1].outputs
    return case.model(last)


def test_values_between_segments_stay_on_the_gpu() -> None:
    case = with_relu()
    f, x = of(case), normal(*SHAPE)
    case.copies()
    for _ in range(3):
        y = f(x)
        assert type(y) is np.ndarray
        np.testing.assert_array_equal(y, expected(x))
        # x and the result of the operator go there; what it reads and y come back.
        assert case.copies() == {"copy": 0, "copy_in": 2 * BYTES, "copy_out": 2 * BYTES}


def test_arrays_on_the_gpu_are_read_there_and_results_are_here() -> None:
    case = with_relu()
    f, x = of(case), normal(*SHAPE)
    for value in (on_device(case.driver, x), WithTable(on_device(case.driver, x))):
        case.copies()
        y = f(value)
        assert type(y) is np.ndarray
        np.testing.assert_array_equal(y, expected(x))
        assert case.copies() == {"copy": 0, "copy_in": BYTES, "copy_out": 2 * BYTES}


def test_a_value_that_both_read_is_copied_once() -> None:
    """The steps of d = x + x, r = relu(d), q = r + d, y = q * d: r and q on the host."""
    case = Case()
    b, x = case.builder, case.x
    d = b.one(Add(), x, x)
    r = b.one(Relu(), d)
    q = b.one(Add(), r, d)
    y = b.one(Mul(), q, d)
    case.segment((x,), (d,))
    case.lone(r)
    case.lone(q)
    case.segment((q, d), (y,))
    f, given = case.model(y, d), normal(*SHAPE)
    case.copies()
    for _ in range(2):
        found, doubled = f(given)
        np.testing.assert_array_equal(doubled, 2 * given)
        np.testing.assert_array_equal(found, (np.maximum(2 * given, 0) + 2 * given) * (2 * given))
        assert case.copies() == {"copy": 0, "copy_in": 2 * BYTES, "copy_out": 2 * BYTES}


def test_results_can_be_written_to_arrays_on_the_gpu() -> None:
    case = with_relu()
    f, x = of(case), normal(*SHAPE)
    for given in (x, on_device(case.driver, x)):
        out = on_device(case.driver, np.zeros(SHAPE, np.float32))
        assert f(given, out=out) is out
        np.testing.assert_array_equal(out.numpy(), expected(x))
    here = np.empty(SHAPE, np.float32)
    assert f(on_device(case.driver, x), out=here) is here
    np.testing.assert_array_equal(here, expected(x))


def test_an_input_that_is_an_output() -> None:
    case = with_relu()
    (last,) = case.steps[-1].outputs
    f, x = case.model(last, case.x), normal(*SHAPE)
    for value in (x, on_device(case.driver, x)):
        _, same = f(value)
        assert type(same) is np.ndarray
        assert same is not x
        np.testing.assert_array_equal(same, x)


def test_memory_between_segments_is_used_again() -> None:
    case = with_relu()
    f, x = of(case), normal(*SHAPE)
    f(x)
    allocated = len(case.driver.ops("allocate"))
    for _ in range(5):
        f(x)
    assert len(case.driver.ops("allocate")) == allocated
    assert len(case.driver.ops("capture")) == 2
    assert not case.driver.ops("change")


# ------------------------------------------------------------------------------------- description
def lines_of(f: Any) -> list[str]:
    return [line for line in f.describe() if line.startswith("on the host")]


def test_a_description_says_what_is_copied_for_the_host() -> None:
    assert lines_of(of(with_relu())) == [
        "on the host: relu (relu): 24 bytes from the device and 24 bytes to it in each call"
    ]


def test_a_value_is_counted_for_the_first_that_reads_it_and_for_every_segment() -> None:
    case = Case()
    b, x = case.builder, case.x
    d = b.one(Add(), x, x)
    r, q = b.one(Relu(), d), b.one(Mul(), d, d)
    case.segment((x,), (d,))
    case.lone(r)
    case.lone(q)
    first, second = b.one(Add(), r, r), b.one(Add(), r, q)
    case.segment((r,), (first,))
    case.segment((r, q), (second,))
    assert lines_of(case.model(first, second)) == [
        "on the host: relu (relu): 24 bytes from the device and 48 bytes to it in each call",
        "on the host: mul (mul): 0 bytes from the device and 24 bytes to it in each call",
    ]


def test_rounds_of_bodies_are_not_counted_and_said() -> None:
    case, added = Case(), sum_graph(2)
    graph = sample_graph(REGISTRY["branch"].samples()[0])
    (node,) = graph.nodes
    case.segment(added.inputs, added.outputs)
    lines = host_lines(graph, (*case.steps, LoneStep(node.op, node)))
    assert lines == (
        "branch (branch): 0 bytes from the device and 0 bytes to it in each call, and what its "
        "bodies read and make in each of their rounds",
    )


def test_a_model_for_another_gpu_is_described_too() -> None:
    case = with_relu()
    steps: list[Step] = []
    for step in case.steps:
        if isinstance(step, NativeStep):
            graph = part(step.inputs, step.outputs)
            image = image_of(graph, case.driver.generator)
            foreign = ForeignSegment(image, PRESETS["cuda-sm_90a"], ("sm_90a",))
            step = NativeStep(foreign, step.inputs, step.outputs)
        steps.append(step)
    here, case.steps = lines_of(of(case)), steps
    f = of(case)
    assert lines_of(f) == here
    with pytest.raises(UsageError, match=r"WH1305 code for cuda-sm_90a cannot run"):
        f(normal(*SHAPE))


def test_a_model_without_a_device_has_no_host() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(SHAPE, f32))
    y = b.one(Relu(), x)
    graph = Graph((x,), (y,), ("y",))
    assert lines_of(NativeExecutable(graph, (LoneStep(Relu(), y.node),), {})) == []
