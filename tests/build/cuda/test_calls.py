"""Compiled models on a device: arrays there go through to the segment, and back."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build.cuda.foreign import WithCapsule, WithInterface, WithTable, on_device
from tests.build.cuda.recorded_driver import RecordedDriver
from tests.build.cuda.segments import gathering, normal, segment_of, sum_graph
from whet.api.compiled import CompiledModel
from whet.api.programs import Program, Programs
from whet.build.cuda.arrays import DeviceArray
from whet.build.executable import LoneStep, NativeExecutable, NativeStep
from whet.core.dtypes import f32
from whet.core.errors import OperatorError, UsageError
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.ops.activation import Relu
from whet.ops.arithmetic import Add
from whet.runtime.ports import Port
from whet.runtime.signature import Signature, TensorSpec


def model_of(graph: Graph, executable: NativeExecutable) -> CompiledModel:
    inputs = tuple(TensorSpec(v.name, v.tensor_type.dtype, v.tensor_type.shape)
                   for v in graph.inputs)  # fmt: skip
    outputs = tuple(TensorSpec(name, v.tensor_type.dtype, v.tensor_type.shape)
                    for name, v in zip(graph.output_names, graph.outputs))  # fmt: skip
    signature = Signature(
        tuple(Port(spec.name, n) for n, spec in enumerate(inputs)), inputs,
        tuple(Port(spec.name, n) for n, spec in enumerate(outputs)), outputs,
    )  # fmt: skip
    program = Program(signature, lambda: graph, executable)
    programs = Programs(None, lambda message: None, "the model")
    programs.made = [program]
    return CompiledModel(program, programs, target="cuda", numerics="real")


def compiled(graph: Graph, *, watches: bool = False) -> tuple[CompiledModel, RecordedDriver]:
    segment, driver = segment_of(graph, watches=watches)
    step = NativeStep(segment, graph.inputs, graph.outputs)
    return model_of(graph, NativeExecutable(graph, (step,), {})), driver


def test_numpy_in_and_out() -> None:
    f, _ = compiled(sum_graph(2, 3))
    x, y = normal(2, 3), normal(2, 3)
    for z in (f(x, y), f(y=y, x=x)):
        assert type(z) is np.ndarray
        np.testing.assert_array_equal(z, x + y)
    out = np.empty((2, 3), np.float32)
    assert f(x, y, out=out) is out
    np.testing.assert_array_equal(out, x + y)
    assert f(x, out, out=out) is out  # it is read before it is written
    np.testing.assert_array_equal(out, x + (x + y))


@pytest.mark.parametrize("library", [WithInterface, WithCapsule, WithTable])
def test_arrays_of_other_libraries_where_they_lie(library: type) -> None:
    f, driver = compiled(sum_graph(2, 3))
    x, y = normal(2, 3), normal(2, 3)
    a, b = library(on_device(driver, x)), library(on_device(driver, y))
    for z in (f(a, b), f(y=b, x=a)):
        assert isinstance(z, DeviceArray)
        np.testing.assert_array_equal(z.numpy(), x + y)
    assert not driver.ops("copy", "copy_in")
    again = f(f(a, b), b)
    np.testing.assert_array_equal(again.numpy(), x + y + y)


def test_out_on_the_device() -> None:
    f, driver = compiled(sum_graph(2, 3))
    x, y = normal(2, 3), normal(2, 3)
    a, b = (WithInterface(on_device(driver, v), stream=8) for v in (x, y))
    view = on_device(driver, np.zeros((2, 3), np.float32))
    f(a, b, out=WithInterface(view, stream=8))
    np.testing.assert_array_equal(view.numpy(), x + y)
    f(b, b, out=[view])
    np.testing.assert_array_equal(view.numpy(), y + y)
    small = on_device(driver, np.zeros(3, np.float32))
    with pytest.raises(UsageError, match=r"WH3003 'out' of 'z' must be f32\[2, 3\], got f32\[3\]"):
        f(a, b, out=small)
    with pytest.raises(UsageError, match="WH3003 'out' must be an array or a sequence of arrays"):
        f(a, b, out=3)
    with pytest.raises(UsageError, match="WH3003 'out' of 'z' must be a NumPy array, got int"):
        f(a, b, out=[3])


def test_an_array_of_another_type_or_shape() -> None:
    f, driver = compiled(sum_graph(2, 3))
    a = on_device(driver, normal(2, 3))
    with pytest.raises(UsageError, match=r"WH3003 input 'y' is f32\[2, 3\], got f64\[2, 3\]"):
        f(a, on_device(driver, np.zeros((2, 3))))
    with pytest.raises(UsageError, match=r"WH3003 input 'y' is f32\[2, 3\], got f32\[3\]"):
        f(a, on_device(driver, normal(3)))


def test_a_wrong_index_on_the_device_is_explained() -> None:
    f, driver = compiled(gathering(), watches=True)
    x, bad = normal(5, 2), np.array([0, 7, 2])
    with pytest.raises(OperatorError, match="WH1302") as here:
        f(x, bad)
    with pytest.raises(OperatorError, match="WH1302") as there:
        f(on_device(driver, x), on_device(driver, bad))
    assert str(here.value) == str(there.value)
    assert "7" in str(here.value)


def test_operators_of_the_host_get_copies() -> None:
    """y = relu(x + x), where the second operator is not native."""
    b = GraphBuilder()
    x = b.input("x", TensorType((2, 3), f32))
    doubled = b.one(Add(), x, x)
    result = b.one(Relu(), doubled)
    graph, first = Graph((x,), (result,), ("y",)), Graph((x,), (doubled,), ("d",))
    segment, driver = segment_of(first)
    steps = (NativeStep(segment, (x,), (doubled,)), LoneStep(Relu(), result.node))
    f = model_of(graph, NativeExecutable(graph, steps, {}))
    given = normal(2, 3)
    for value in (given, on_device(driver, given), WithTable(on_device(driver, given))):
        y = f(value)
        assert type(y) is np.ndarray
        np.testing.assert_array_equal(y, np.maximum(2 * given, 0))
    with pytest.raises(UsageError, match="WH3003 'out' cannot lie on the device: parts of"):
        f(given, out=on_device(driver, given))
