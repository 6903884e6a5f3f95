"""Segments of a GPU on a recorded driver: what is asked of it, in which order, and the results."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace

import numpy as np
import pytest

from tests.build.comparing import NO_CACHE, plan_of
from tests.build.cuda.recorded_driver import RecordedDriver, RecordedGenerator
from tests.build.cuda.segments import (
    convolutions,
    gathering,
    image_of,
    normal,
    plainly,
    product_graph,
    segment_of,
    sum_graph,
)
from whet.build.calls import AnyCall, bind_plan
from whet.build.cuda.image import CudaImage, KernelCall
from whet.build.cuda.segment import CudaSegment, ForeignSegment
from whet.build.kernels import KernelMaker
from whet.build.slots import Slot
from whet.codegen.cuda.launch import Launch
from whet.core.dtypes import i64
from whet.core.errors import OperatorError, UsageError, WhetError
from whet.core.gpu import PRESETS
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.ir.expr import Read, const
from whet.ir.program import Buffer, Program, Store
from whet.ops.arithmetic import Add
from whet.runtime.executable import OutliersError
from whet.tasks.steps import LoopStep


def test_a_call_copies_in_plays_and_copies_out() -> None:
    segment, driver = segment_of(sum_graph(3, 5))
    x, y = normal(3, 5), normal(3, 5)
    before = len(driver.log)
    (z,) = segment([x, y])
    np.testing.assert_array_equal(z, x + y)
    asked = [entry[0] for entry in driver.log[before:] if entry[0] != "allocate"]
    assert asked == ["clear", "copy_in", "copy_in", "capture", "play", "copy_out", "synchronize"]
    (stream,) = {entry[2] for entry in driver.ops("copy_in", "copy_out", "play")}
    assert driver.log[-1] == ("synchronize", stream)


def test_a_second_call_replays_what_was_captured() -> None:
    segment, driver = segment_of(sum_graph(4))
    for _ in range(3):
        x, y = normal(4), normal(4)
        np.testing.assert_array_equal(segment([x, y])[0], x + y)
    assert len(driver.ops("capture")) == 1
    assert len(driver.ops("clear")) == 1
    assert not driver.ops("change")
    assert len({graph for _, graph, _ in driver.ops("play")}) == 1
    assert len(driver.ops("play")) == 3


def test_inputs_may_lie_anyhow_and_results_go_where_they_are_wanted() -> None:
    segment, _ = segment_of(sum_graph(3, 4))
    x, y = normal(4, 3).T, normal(6, 8)[::2, ::2]
    out = np.empty((3, 4), np.float32)
    (found,) = segment([x, y], [out])
    assert found is out
    np.testing.assert_array_equal(out, x + y)


def test_scalars_and_nothing() -> None:
    segment, _ = segment_of(sum_graph())
    np.testing.assert_array_equal(segment([np.float32(2), np.array(3, np.float32)])[0], 5)
    segment, _ = segment_of(sum_graph(0, 3))
    assert segment([normal(0, 3), normal(0, 3)])[0].shape == (0, 3)


def test_large_constants_are_uploaded_once_per_process() -> None:
    graph = product_graph()
    segment, driver = segment_of(graph)
    image = segment.image
    (weight,) = image.shared.values()
    other = CudaSegment(image, graph, driver, early=True)
    x = normal(2, 160)
    (expected,) = interpret(graph, [x])
    for made in (segment, other, segment):
        np.testing.assert_allclose(made([x])[0], expected, rtol=1e-6)
    assert [entry[1] for entry in driver.ops("copy_in")].count(weight.size) == 1
    del segment, made
    gc.collect()
    assert ("free", weight.size) not in driver.log
    del other
    gc.collect()
    assert ("free", weight.size) in driver.log


def test_all_is_given_back() -> None:
    segment, driver = segment_of(convolutions())
    segment([normal(1, 2, 6, 6)])
    loaded = driver.ops("load")
    del segment
    gc.collect()
    assert not driver.memory
    assert not driver.pinned
    assert not driver.streams
    assert len(driver.ops("discard")) == 1
    assert {m for _, m in driver.ops("unload")} == {m for _, m in loaded}


def test_borders_are_zero_and_no_kernel_clears_them() -> None:
    graph = convolutions()
    plan, maker = plan_of(graph), KernelMaker(RecordedGenerator(), plainly)
    assert any(is_clearing(c) for c in bind_plan(plan, maker, NO_CACHE).calls)
    apart = bind_plan(plan, maker, NO_CACHE, shares_borders=False)
    assert not any(is_clearing(c) for c in apart.calls)
    segment, driver = segment_of(graph)
    assert segment.image.arena_bytes == apart.arena_bytes
    for _ in range(2):
        x = normal(1, 2, 6, 6)
        (expected,) = interpret(graph, [x])
        np.testing.assert_allclose(segment([x])[0], expected, atol=1e-6 * abs(expected).max())
    assert len(driver.ops("clear")) == 1


def is_clearing(call: AnyCall) -> bool:
    return isinstance(call.step, LoopStep) and not call.step.nodes


def test_only_kernels_that_await_are_launched_early() -> None:
    graph = convolutions()
    segment, driver = segment_of(graph)
    awaiting = replace(segment.image, calls=tuple(
        replace(c, launch=replace(c.launch, awaits=n % 2 == 1))
        for n, c in enumerate(segment.image.calls)
    ))  # fmt: skip
    for early in (True, False):
        CudaSegment(awaiting, graph, driver, early=early)([normal(1, 2, 6, 6)])
    first, second = (captured for _, captured in driver.ops("capture"))
    assert [e for _, e in first] == [n % 2 == 1 for n in range(len(first))]
    assert not any(e for _, e in second)


def test_concurrent_calls_have_contexts_of_their_own() -> None:
    segment, driver = segment_of(sum_graph(2))
    inside = threading.Barrier(2)
    play = driver.play

    def slowly(recording: object, stream: int) -> None:
        inside.wait(10)  # both are here at once
        play(recording, stream)  # type: ignore[arg-type]

    driver.play = slowly  # type: ignore[method-assign]
    found: dict[int, object] = {}

    def call(number: int) -> None:
        x = np.full(2, number, np.float32)
        found[number] = segment([x, x])[0].tolist()

    threads = [threading.Thread(target=call, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == {1: [2, 2], 2: [4, 4]}
    assert len(driver.ops("capture")) == 2
    assert len({stream for *_, stream in driver.ops("play")}) == 2
    assert sum(map(len, segment.idle.values())) == 2


# ------------------------------------------------------------------------------------- statuses
def test_an_index_outside_is_an_error_and_the_next_call_begins_anew() -> None:
    segment, driver = segment_of(gathering(), watches=True)
    x, good = normal(5, 2), np.array([0, 4, 2])
    for _ in range(2):
        np.testing.assert_array_equal(segment([x, good])[0], x[good])
        with pytest.raises(OperatorError, match=r"WH1302 .*: an index that the model computes or"):
            segment([x, np.array([0, 7, 2])])
    np.testing.assert_array_equal(segment([x, good])[0], x[good])
    assert len(driver.ops("capture")) == 1
    assert len(driver.ops("clear")) == 3  # the memory, and what two failures left


def test_an_alarm_is_raised_and_the_next_call_begins_anew() -> None:
    """A kernel that writes its input to its alarm."""
    b = GraphBuilder()
    given = b.input("x", TensorType((1,), i64))
    graph = Graph((given,), (b.one(Add(), given, given),), ("y",))
    x, y, alarm = (Buffer(name, (1,), i64) for name in ("x", "y", "alarm"))
    zero = const(0, i64)
    driver = RecordedDriver()
    body = (Store(alarm, (zero,), Read(x, (zero,))),)
    driver.generator.programs["k"] = Program("k", (x,), (y,), body, workspace=(alarm,))
    slots = (Slot("array", 0), Slot("array", 1), Slot("alarm", 0))
    call = KernelCall(Launch("k_0", 1, 1, 1, 0, awaits=False), 0, slots, "k")
    image = CudaImage((b"k",), (call,), 0, np.zeros(0, np.uint8))
    segment = CudaSegment(image, graph, driver, early=False)
    for _ in range(2):
        segment([np.array([0])])
        with pytest.raises(OutliersError):
            segment([np.array([1])])


# -------------------------------------------------------------------------------------- refusals
def test_memory_that_is_not_there() -> None:
    segment, driver = segment_of(sum_graph(1000))
    driver.refused_bytes = 3000
    with pytest.raises(WhetError, match="WH1005"):
        segment([normal(1000), normal(1000)])
    driver.refused_bytes = 1 << 20
    x = normal(1000)
    np.testing.assert_array_equal(segment([x, x])[0], x + x)


def test_an_image_for_another_gpu_can_be_looked_at() -> None:
    image = image_of(sum_graph(2), RecordedDriver().generator)
    segment = ForeignSegment(image, PRESETS["cuda-sm_90a"], ("sm_90a",))
    assert segment.image.symbols == image.symbols
    with pytest.raises(UsageError, match=r"WH1305 code for cuda-sm_90a cannot run .* no sm_90a"):
        segment([normal(2), normal(2)])
