"""Memory of results is used again, and never while somebody can still see it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from whet.core.alignment import ALIGNMENT
from whet.core.types import Array
from whet.runtime.results import KEPT_ROOMS, WORTHWHILE_BYTES, Results

LARGE = (WORTHWHILE_BYTES // 4, 2)


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_a_result_that_is_gone_makes_room_for_the_next() -> None:
    results = Results(LARGE, np.dtype(np.float32))
    first = results.new()
    place = address(first)
    del first
    assert address(results.new()) == place


def test_results_in_use_lie_apart() -> None:
    results = Results(LARGE, np.dtype(np.float32))
    held = [results.new() for _ in range(5)]
    for number, array in enumerate(held):
        array[:] = number
    assert [int(a.min()) for a in held] == [int(a.max()) for a in held] == list(range(5))


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[1:2],
        lambda a: a.T,
        lambda a: a.reshape(-1)[::7],
        lambda a: memoryview(a),
        lambda a: np.frombuffer(a, np.uint8),
        lambda a: np.from_dlpack(a),
        lambda a: a.base,
        lambda a: a.base[1:],
    ],
)
def test_a_view_alone_keeps_the_memory(view: Callable[[Array], Any]) -> None:
    results = Results(LARGE, np.dtype(np.float32))
    array = results.new()
    array[:] = 7
    place, kept = address(array), view(array)
    del array
    gc.collect()
    assert address(results.new()) != place
    del kept
    gc.collect()
    assert address(results.new()) == place


def test_few_rooms_wait() -> None:
    results = Results(LARGE, np.dtype(np.float32))
    held = [results.new() for _ in range(KEPT_ROOMS + 3)]
    places = {address(a) for a in held}
    del held
    again = [results.new() for _ in range(KEPT_ROOMS)]
    assert {address(a) for a in again} <= places
    assert len(results._waiting) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [1, WORTHWHILE_BYTES])
def test_types_and_alignment(dtype: type, rows: int) -> None:
    array = Results((rows, 3), np.dtype(dtype)).new()
    assert (array.shape, array.dtype) == ((rows, 3), np.dtype(dtype))
    assert array.flags.writeable
    assert array.flags.c_contiguous
    if array.nbytes >= WORTHWHILE_BYTES:
        assert address(array) % ALIGNMENT == 0


def test_results_outlive_their_maker() -> None:
    results = Results(LARGE, np.dtype(np.float32))
    array = results.new()
    array[:] = 3
    del results
    gc.collect()
    assert array.min() == array.max() == 3


def test_several_threads_get_rooms_of_their_own() -> None:
    results = Results(LARGE, np.dtype(np.int64))

    def work(number: int) -> bool:
        for _ in range(50):
            array = results.new()
            array[:] = number
            if array.min() != number or array.max() != number:
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
