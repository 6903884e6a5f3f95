"""Arrays that lie on the GPU: taken where they lie, given there, and lent to other libraries."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from tests.build.cuda.foreign import (
    OnHost,
    WithCapsule,
    WithInterface,
    WithMethods,
    WithOtherMethods,
    WithTable,
    adopted_one,
    on_device,
)
from tests.build.cuda.recorded_driver import RecordedDriver
from tests.build.cuda.segments import gathering, normal, segment_of, sum_graph
from whet.build.cuda.arrays import DeviceArray, DeviceView
from whet.build.cuda.foreign_arrays import adopted
from whet.build.cuda.lending import _LENT
from whet.build.cuda.segment import MAX_STREAMS, CudaSegment
from whet.codegen.cuda.driver import LEGACY_STREAM, THREAD_STREAM
from whet.core.dtypes import bf16
from whet.core.errors import OperatorError, UsageError
from whet.core.types import Array


@pytest.fixture
def adding() -> tuple[CudaSegment, RecordedDriver]:
    return segment_of(sum_graph(3, 4))


def call(segment: CudaSegment, *inputs: Any, out: Any = None) -> Any:
    (result,) = segment(inputs, out)
    return result


Adding = tuple[CudaSegment, RecordedDriver]


def test_aligned_arrays_are_not_copied(adding: Adding) -> None:
    segment, driver = adding
    x, y = normal(3, 4), normal(3, 4)
    z = call(segment, on_device(driver, x), on_device(driver, y))
    assert isinstance(z, DeviceArray)
    assert (z.shape, z.dtype) == ((3, 4), np.float32)
    assert not driver.ops("copy", "copy_in", "copy_out", "synchronize")
    assert driver.ops("play")[0][2] == LEGACY_STREAM
    np.testing.assert_array_equal(z.numpy(), x + y)
    np.testing.assert_array_equal(np.asarray(z), x + y)
    assert np.asarray(z, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(z, copy=False)


COPIES = ("copy", "copy_in", "copy_out")


@pytest.mark.parametrize("shifts", [(0, 0, 0), (4, 0, 0), (0, 8, 0), (0, 0, 12), (4, 4, 4)])
def test_arrays_are_copied_only_where_they_start_elsewhere(
    adding: Adding, shifts: tuple[int, int, int]
) -> None:
    segment, driver = adding
    a, b, out = (on_device(driver, normal(3, 4), shift) for shift in shifts)
    expected = a.numpy() + b.numpy()
    for _ in range(3):
        before = len(driver.log)
        assert call(segment, a, b, out=[out]) is out
        copied = [entry for entry in driver.log[before:] if entry[0] in COPIES]
        assert copied == [("copy", 48, LEGACY_STREAM) for shift in shifts if shift]
        np.testing.assert_array_equal(out.numpy(), expected)


def test_launches_are_changed_only_when_addresses_are_new(adding: Adding) -> None:
    segment, driver = adding
    x, y = normal(3, 4), normal(3, 4)
    a, b, c, d = (on_device(driver, v) for v in (x, y, y + 1, y + 2))
    z = call(segment, a, b)
    place = z.address
    del z
    for _ in range(3):
        assert call(segment, a, b).address == place  # the memory of the result before
    assert len(driver.ops("capture")) == 1
    for _ in range(3):  # arrays of the last call but one
        np.testing.assert_array_equal(call(segment, a, c).numpy(), x + (y + 1))
        np.testing.assert_array_equal(call(segment, a, b).numpy(), x + y)
    assert len(driver.ops("capture")) == 2
    assert not driver.ops("change")
    np.testing.assert_array_equal(call(segment, a, d).numpy(), x + (y + 2))
    assert driver.ops("change") == [("change", 0)]
    np.testing.assert_array_equal(call(segment, a, b).numpy(), x + y)
    np.testing.assert_array_equal(call(segment, a, d).numpy(), x + (y + 2))
    assert len(driver.ops("capture")) == 2
    assert len(driver.ops("change")) == 1


def test_a_loop_that_holds_its_last_result_changes_nothing(adding: Adding) -> None:
    segment, driver = adding
    a = on_device(driver, normal(3, 4))
    for _ in range(6):
        held = call(segment, a, a)
        np.testing.assert_array_equal(held.numpy(), 2 * a.numpy())
    assert not driver.ops("change")
    assert len(driver.ops("capture")) == 2


def test_results_that_are_held_keep_their_memory(adding: Adding) -> None:
    segment, driver = adding
    x = normal(3, 4)
    a = on_device(driver, x)
    found = [call(segment, a, a) for _ in range(4)]
    assert len({z.address for z in found}) == 4
    found.append(call(segment, found[0], found[1]))
    np.testing.assert_array_equal(found[4].numpy(), 4 * x)
    allocated = len(driver.ops("allocate"))
    del found
    for _ in range(5):
        call(segment, a, a)
    assert len(driver.ops("allocate")) == allocated


def test_an_array_at_another_start_is_copied_on_the_device(adding: Adding) -> None:
    segment, driver = adding
    x, y = normal(3, 4), normal(3, 4)
    z = call(segment, on_device(driver, x, 4), on_device(driver, y))
    assert [entry[0] for entry in driver.ops("copy", "copy_in", "copy_out")] == ["copy"]
    assert not driver.ops("synchronize")
    np.testing.assert_array_equal(z.numpy(), x + y)


def test_arrays_of_both_kinds(adding: Adding) -> None:
    segment, driver = adding
    x, y = normal(3, 4), normal(3, 4)
    z = call(segment, x, on_device(driver, y))
    assert isinstance(z, DeviceArray)
    assert driver.ops("synchronize")  # memory of this process can be used again now
    np.testing.assert_array_equal(z.numpy(), x + y)
    np.testing.assert_array_equal(call(segment, x, y), x + y)


@pytest.mark.parametrize("shift", [0, 4])
def test_results_go_to_arrays_on_the_device(adding: Adding, shift: int) -> None:
    segment, driver = adding
    x, y = normal(3, 4), normal(3, 4)
    out = on_device(driver, np.zeros((3, 4), np.float32), shift)
    assert call(segment, on_device(driver, x), on_device(driver, y), out=[out]) is out
    np.testing.assert_array_equal(out.numpy(), x + y)
    here = np.empty((3, 4), np.float32)
    assert call(segment, on_device(driver, x), on_device(driver, y), out=[here]) is here
    np.testing.assert_array_equal(here, x + y)


def test_results_cannot_go_where_inputs_are(adding: Adding) -> None:
    segment, driver = adding
    x = on_device(driver, normal(3, 4))
    with pytest.raises(UsageError, match="WH3003 arrays in 'out' on the GPU share memory"):
        call(segment, x, x, out=[x])


def test_statuses_are_looked_at_before_the_call_returns() -> None:
    segment, driver = segment_of(gathering(), watches=True)
    x, good, bad = normal(5, 2), np.array([0, 4, 2]), np.array([0, 7, 2])
    y = call(segment, on_device(driver, x), on_device(driver, good))
    assert driver.ops("synchronize")
    np.testing.assert_array_equal(y.numpy(), x[good])
    with pytest.raises(OperatorError, match="WH1302"):
        call(segment, on_device(driver, x), on_device(driver, bad))


# --------------------------------------------------------------------------------------- streams
def on_stream(view: DeviceView, stream: int) -> DeviceView:
    view.stream = stream
    return view


def test_streams_have_contexts_of_their_own(adding: Adding) -> None:
    segment, driver = adding
    x = on_device(driver, normal(3, 4))
    for stream in (41, 42, 41, 42):
        a = on_stream(x, stream)
        assert call(segment, a, a).stream == stream
    assert [stream for *_, stream in driver.ops("play")] == [41, 42, 41, 42]
    assert len(driver.ops("capture")) == 2


def test_contexts_of_many_streams_do_not_pile_up(adding: Adding) -> None:
    segment, driver = adding
    for stream in range(40, 40 + 3 * MAX_STREAMS):
        a = on_stream(on_device(driver, normal(3, 4)), stream)
        call(segment, a, a)
    gc.collect()
    assert len(segment.idle) == MAX_STREAMS
    assert len(driver.ops("discard")) == 2 * MAX_STREAMS


def test_arrays_of_two_streams_are_waited_for(adding: Adding) -> None:
    segment, driver = adding
    x = normal(3, 4)
    a, b = on_stream(on_device(driver, x), 41), on_stream(on_device(driver, x), 42)
    z = call(segment, a, b)
    assert z.stream == 41
    recorded, waited = driver.ops("record")[0], driver.ops("wait")[0]
    assert (recorded[2], waited[1]) == (42, 41)
    assert recorded[1] == waited[2]
    assert driver.ops("synchronize") == [("synchronize", 41)]


def test_an_event_is_recorded_while_the_stream_is_there(adding: Adding) -> None:
    """A caller's stream may be gone when somebody wants to know whether a result is ready."""
    segment, driver = adding
    x = normal(3, 4)
    lasting = call(segment, on_device(driver, x), on_device(driver, x))
    assert not driver.ops("record")
    np.testing.assert_array_equal(lasting.numpy(), 2 * x)
    assert driver.ops("record") == [("record", lasting.home.ready, LEGACY_STREAM)]
    a = on_stream(on_device(driver, x), 41)
    passing = call(segment, a, a)
    assert driver.ops("record")[1:] == [("record", passing.home.ready, 41)]
    np.testing.assert_array_equal(passing.numpy(), 2 * x)
    assert len(driver.ops("record")) == 2
    assert driver.ops("finish")[-1] == ("finish", passing.home.ready)


def test_a_stream_that_every_thread_has_is_waited_for(adding: Adding) -> None:
    segment, driver = adding
    a = on_stream(on_device(driver, normal(3, 4)), THREAD_STREAM)
    call(segment, a, a)
    assert driver.ops("synchronize") == [("synchronize", THREAD_STREAM)]


# -------------------------------------------------------------------------------- other libraries
@pytest.mark.parametrize("strides", [None, (16, 4)])
def test_the_cuda_array_interface(strides: Any) -> None:
    driver = RecordedDriver()
    x = normal(3, 4)
    value = WithInterface(on_device(driver, x), stream=55, strides=strides)
    view = adopted_one(value, driver)
    assert view is not None
    assert (view.stream, view.follows, view.owner) == (55, True, value)
    np.testing.assert_array_equal(view.numpy(), x)
    old = adopted_one(WithInterface(on_device(driver, x)), driver)
    assert old is not None
    assert (old.stream, old.follows) == (LEGACY_STREAM, False)


def test_capsules() -> None:
    driver = RecordedDriver()
    x = normal(3, 4)
    value = WithCapsule(on_device(driver, x))
    view = adopted_one(value, driver)
    assert view is not None
    assert value.streams == [LEGACY_STREAM]
    assert (view.stream, view.follows) == (LEGACY_STREAM, False)
    np.testing.assert_array_equal(view.numpy(), x)
    del view
    gc.collect()
    assert not _LENT  # the capsule is gone, and what it lent is given back


@pytest.mark.parametrize("stream", [77, 0])
def test_the_table_of_functions(stream: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WithTable, "stream", stream)
    driver = RecordedDriver()
    x = normal(3, 4).astype(bf16.numpy)
    value = WithTable(on_device(driver, x))
    for _ in range(2):
        view = adopted_one(value, driver)
        assert view is not None
        assert (view.stream, view.follows) == (stream or LEGACY_STREAM, True)
        assert (view.shape, view.dtype) == ((3, 4), bf16.numpy)
        np.testing.assert_array_equal(view.numpy(), x)


def test_the_stream_is_asked_for_once_per_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WithTable, "asked", 0)
    driver = RecordedDriver()
    values = [WithTable(on_device(driver, normal(2))) for _ in range(3)]
    views = adopted(values, ["x", "y", "z"], driver)
    assert [v.stream for v in views if v is not None] == [WithTable.stream] * 3
    assert WithTable.asked == 1
    (host,) = adopted([OnHost(on_device(driver, normal(2)))], ["x"], driver)
    assert host is None
    assert WithTable.asked == 1  # a library without a GPU knows no streams


def test_methods_of_arrays_are_asked_when_the_table_has_confirmed_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(WithTable, "described", 0)
    driver = RecordedDriver()
    arrays = [normal(3, 4), normal(2), normal(5, 1, 2), normal(2).astype(bf16.numpy)]
    for count, array in zip((1, 1, 1, 2), arrays):  # bfloat16 is another element type
        view = adopted_one(WithMethods(on_device(driver, array)), driver)
        assert view is not None
        assert (view.shape, view.dtype) == (array.shape, array.dtype)
        assert (view.stream, view.follows) == (WithTable.stream, True)
        np.testing.assert_array_equal(view.numpy(), array)
        assert WithTable.described == count
    gaps = WithMethods(on_device(driver, arrays[0]))
    gaps.is_row_major = False
    assert adopted_one(gaps, driver) is not None  # the table knows better
    assert WithTable.described == 3


def test_methods_that_say_something_else_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WithTable, "described", 0)
    driver = RecordedDriver()
    for _ in range(3):
        value = WithOtherMethods(on_device(driver, normal(3)))
        view = adopted_one(value, driver)
        assert view is not None
        assert view.address == value.view.address
    assert WithTable.described == 3


def test_what_does_not_lie_on_a_gpu() -> None:
    driver = RecordedDriver()
    there = on_device(driver, normal(2))
    values: list[Any] = [normal(2), [1.0], 3, None, WithCapsule(there, device=(1, 0))]
    assert [adopted_one(value, driver) for value in values] == [None] * len(values)


def test_arrays_with_gaps_are_refused() -> None:
    driver = RecordedDriver()
    view = on_device(driver, normal(3, 4))
    with pytest.raises(UsageError, match="WH3003 input 'x' lies on the GPU with gaps"):
        adopted_one(WithInterface(view, strides=(4, 12)), driver)


# ---------------------------------------------------------------------------------------- lending
class Reader:
    """What another library makes of a result: it holds the capsule."""

    def __init__(self, array: DeviceArray, stream: int | None) -> None:
        self.capsule = array.__dlpack__(stream=stream, max_version=(1, 0))


def test_a_reader_on_the_same_stream_waits_for_nothing(adding: Adding) -> None:
    segment, driver = adding
    a = on_device(driver, normal(3, 4))
    z = call(segment, a, a)
    assert z.__dlpack_device__() == (2, 0)
    reader = Reader(z, None)
    assert not driver.ops("wait")
    place = z.address
    del z
    assert call(segment, a, a).address != place  # the reader holds it
    del reader
    gc.collect()
    assert not _LENT
    allocated = len(driver.ops("allocate"))
    both = call(segment, a, a), call(segment, a, a)
    assert place in {z.address for z in both}
    assert len(driver.ops("allocate")) == allocated


def test_a_reader_on_another_stream_waits_and_its_memory_is_not_used_again(adding: Adding) -> None:
    segment, driver = adding
    a = on_device(driver, normal(3, 4))
    z = call(segment, a, a)
    freed = len(driver.ops("free"))
    reader = Reader(z, 99)
    (waited,) = driver.ops("wait")
    assert waited == ("wait", 99, z.home.ready)
    del z, reader
    gc.collect()
    assert len(driver.ops("free")) == freed + 1


def test_results_have_the_cuda_array_interface(adding: Adding) -> None:
    segment, driver = adding
    x = normal(3, 4)
    a = on_device(driver, x)
    z = call(segment, a, a)
    again = adopted_one(WithInterface(z, **z.__cuda_array_interface__), driver)
    assert again is not None
    assert again.address == z.address
    np.testing.assert_array_equal(again.numpy(), 2 * x)
    with pytest.raises(BufferError, match="without a copy"):
        z.__dlpack__(copy=True)


def test_what_is_lent_has_the_array_s_shape_and_type(adding: Adding) -> None:
    segment, driver = adding
    x: Array = normal(3, 4)
    z = call(segment, on_device(driver, x), on_device(driver, x))
    view = adopted_one(WithCapsule(z), driver)
    assert view is not None
    assert (view.address, view.shape, view.dtype) == (z.address, z.shape, z.dtype)
