"""Results written past the caches: the same numbers, wherever the memory begins."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.codegen.foreign import assembly
from tests.schedule.small_tasks import arrays_for, expected, make_task
from tests.schedule.windows import native
from tests.targets import HOST
from whet.codegen.llvm.emit import emit_program
from whet.codegen.llvm.module import Module
from whet.core.cpu import PRESETS
from whet.core.dtypes import DType, f32, f64, i8
from whet.ir.expr import call
from whet.ir.interpreter import run
from whet.ir.tensor import compute, placeholder
from whet.schedule.default import default_choice
from whet.schedule.families.spatial.lower import lower_spatial
from whet.schedule.families.spatial.match import SpatialTiling, can_stream, find_spatial
from whet.schedule.families.spatial.price import spatial_costs, spatial_holes
from whet.tasks.task import Task

WIDE = PRESETS["x86-64-v4"]
ROOM = 64


def relu(size: int, dtype: DType = f32) -> Task:
    x = placeholder((size,), dtype, "x")
    return make_task(compute((size,), lambda i: call("max", x[i], 0), "y"))


def scaled_rows(rows: int, columns: int) -> Task:
    """Rows that cannot be merged into one, because each has a factor of its own."""
    x, f = placeholder((rows, columns), f32, "x"), placeholder((rows,), f32, "f")
    return make_task(compute((rows, columns), lambda i, j: x[i, j] * f[i], "y"))


def check_at(task: Task, t: SpatialTiling, shift: int) -> None:
    """The kernel writes its result, and nothing around it, at an address that is not aligned."""
    form = find_spatial(task)
    assert form is not None
    assert can_stream(form, t.lanes)
    kernel = lower_spatial(form, t, "k")
    arrays = arrays_for(task)
    (want,) = expected(task, arrays)
    nbytes = want.nbytes
    memory = np.full(nbytes + 4 * ROOM, 0xA5, np.uint8)
    start = -memory.ctypes.data % ROOM + ROOM + shift * want.itemsize
    table = [*(arrays[a].ctypes.data for a in kernel.arguments), memory.ctypes.data + start]
    addresses = np.array(table, np.uint64)
    library = native(kernel, HOST)
    library.function("k", ctypes.c_void_p)(addresses.ctypes.data)
    got = memory[start : start + nbytes].view(want.dtype).reshape(want.shape)
    np.testing.assert_array_equal(got, want, err_msg=str(kernel.program))
    assert (memory[:start] == 0xA5).all()
    assert (memory[start + nbytes :] == 0xA5).all()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(16, 700),
    st.integers(1, 4),
    st.sampled_from([2, 4, 8, 16]),
    st.integers(1, 9),
    st.integers(0, 15),
    st.sampled_from([f32, f64, i8]),
)
def test_any_size_at_any_address(
    size: int, nv: int, lanes: int, share: int, shift: int, dtype: DType
) -> None:
    tiling = SpatialTiling(1, min(nv, size // lanes), lanes, 1, share, stream=1)
    check_at(relu(size, dtype), tiling, shift)


@pytest.mark.parametrize("shift", [0, 3, 4, 15])
def test_rows_of_whole_vectors(shift: int) -> None:
    check_at(scaled_rows(5, 64), SpatialTiling(2, 2, 16, 2, 1, stream=1), shift)


@pytest.mark.parametrize("size", [16, 17, 40, 333])
def test_the_meaning_is_that_of_plain_stores(size: int) -> None:
    task = relu(size)
    form = find_spatial(task)
    assert form is not None
    program = lower_spatial(form, SpatialTiling(1, 1, 8, 1, 3, stream=1), "k").program
    arrays = arrays_for(task)
    (got,) = run(program, [arrays[t] for t in task.inputs])
    np.testing.assert_array_equal(got, expected(task, arrays)[0])


def test_text(golden: Callable[[str], None]) -> None:
    form = find_spatial(relu(1000))
    assert form is not None
    golden(str(lower_spatial(form, SpatialTiling(1, 4, 16, 1, 9, stream=1), "k").program))


@pytest.mark.parametrize(
    ("preset", "store", "fence"),
    [("x86-64-v4", "vmovntps\t%zmm", ("mfence", "lock")),
     ("x86-64-v3", "vmovntps\t%ymm", ("mfence", "lock")),
     ("aarch64-neon", "st", ("dmb",))],
)  # fmt: skip
def test_instructions(preset: str, store: str, fence: tuple[str, ...]) -> None:
    target = PRESETS[preset]
    form = find_spatial(relu(1000))
    assert form is not None
    lanes = target.vector_bits // 32
    module = Module()
    emit_program(
        lower_spatial(form, SpatialTiling(1, 2, lanes, 1, 9, stream=1), "k").program, module
    )
    assert module.text().count("!nontemporal") == 2
    text = assembly(module.text(), target)
    assert store in text
    assert any(word in text for word in fence)


def test_rows_of_odd_length_are_not_streamed() -> None:
    form = find_spatial(scaled_rows(5, 65))
    assert form is not None
    assert not can_stream(form, 16)


def test_large_results_are_streamed_and_others_are_not() -> None:
    size = WIDE.l3_bytes // 4
    small, large = relu(size), relu(size + 64)
    form = find_spatial(small)
    assert form is not None
    assert "stream" not in spatial_holes(form, WIDE, 1)
    choice = default_choice(large, WIDE, 1)
    assert choice.sketch.name == "spatial"
    assert choice.holes["stream"] == 1
    unknown = replace(WIDE, l3_bytes=0)
    form = find_spatial(large)
    assert form is not None
    assert "stream" not in spatial_holes(form, unknown, 1)


def test_streaming_saves_reading_what_is_written() -> None:
    form = find_spatial(relu(1 << 24))
    assert form is not None
    holes = spatial_holes(form, WIDE, 1)
    costs = spatial_costs(form, WIDE, 1, holes)
    plain, streamed = costs[holes["stream"] == 0].min(), costs[holes["stream"] == 1].min()
    assert streamed < 0.7 * plain
