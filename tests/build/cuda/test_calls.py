"""Compiled models on a device: arrays there go through to the segment, and back."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.build.cuda.foreign import WithCapsule, WithInterface, WithTable, on_device
from tests.build.cuda.recorded_driver import RecordedDriver
from tests.build.cuda.segments import (
    convolutions,
    gathering,
    normal,
    segment_of,
    segment_on,
    sum_graph,
)
from whet.api.compiled import CompiledModel
from whet.api.programs import Program, Programs
from whet.build.cuda.arrays import DeviceArray
from whet.build.cuda.context import Context
from whet.build.cuda.segment import CudaSegment
from whet.build.executable import NativeExecutable
from whet.build.steps import NativeStep
from whet.codegen.cuda.driver import Recording
from whet.core.errors import OperatorError, UsageError
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
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


# --------------------------------------------------------------------------------- at the same time
def test_two_executables_on_two_streams_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has contexts, memory and recordings of its own, in threads that meet in every call."""
    graphs = convolutions(), sum_graph(64)
    driver = RecordedDriver()
    models = [compiled_on(driver, graph) for graph in graphs]
    rounds, inside = 5, threading.Barrier(2, timeout=20)
    play, busy = driver.play, dict[int, int]()
    wrong: list[tuple[int, int]] = []

    def playing(recording: Recording, stream: int) -> None:
        inside.wait()  # both are here at once, on contexts that nobody else has
        busy[threading.get_ident()] = recording.graph
        inside.wait()
        assert len(set(busy.values())) == 2
        play(recording, stream)

    monkeypatch.setattr(driver, "play", playing)

    def call(number: int) -> None:
        graph, f, rng = graphs[number], models[number], np.random.default_rng(number)
        held: Any = None
        for turn in range(rounds):
            arrays = [
                rng.standard_normal(v.tensor_type.shape).astype(np.float32) for v in graph.inputs
            ]
            there = [on_device(driver, a) for a in arrays]
            for view in there:
                view.stream = 40 + number
            last, held = held, f(*there)
            assert held.stream == 40 + number
            (expected,) = interpret(graph, arrays)
            if not np.allclose(held.numpy(), expected, atol=1e-5 * abs(expected).max()):
                wrong.append((number, turn))
            del last

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(call, (0, 1)))
    assert not wrong
    played: dict[int, set[int]] = {40: set(), 41: set()}
    for _, graph, stream in driver.ops("play"):
        played[stream].add(graph)
    assert all(played.values())
    assert not played[40] & played[41]
    contexts = [c for f in models for c in contexts_of(f)]
    assert len({c.arena.address for c in contexts}) == len(contexts) == 2


def compiled_on(driver: RecordedDriver, graph: Graph) -> CompiledModel:
    step = NativeStep(segment_on(driver, graph), graph.inputs, graph.outputs)
    return model_of(graph, NativeExecutable(graph, (step,), {}))


def contexts_of(f: CompiledModel) -> list[Context]:
    executable = f._first.executable
    assert isinstance(executable, NativeExecutable)
    (segment,) = executable.segments
    assert isinstance(segment, CudaSegment)
    return [c for waiting in segment.idle.values() for c in waiting]


def test_what_follows_a_program_is_compiled_for_copies() -> None:
    """Values on the device, where nothing is compiled for them yet."""
    driver, seen = RecordedDriver(), []

    def make(values: Sequence[Any], announce: object) -> Program:
        seen.extend(values)
        raise UsageError("WH3003", "that was all")

    there = on_device(driver, normal(2, 3))
    with pytest.raises(UsageError, match="that was all"):
        Programs(make, lambda message: None, "the rest").fitting([there], lambda signature: ())
    assert type(seen[0]) is np.ndarray
    np.testing.assert_array_equal(seen[0], there.numpy())
