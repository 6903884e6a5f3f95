"""Memory that notices what is written beside arrays."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tools.graph_fuzz.case import LAYOUTS
from tools.graph_fuzz.memory import Fences, differently_laid_out
from whet.core.dtypes import f32
from whet.core.types import TensorType


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("pages", [True, False])
def test_a_write_before_or_behind_is_noticed(at_end: bool, pages: bool) -> None:
    fences = Fences(pages=pages, at_end=at_end)
    array = fences.empty(TensorType((3, 5), f32))
    array[...] = 1
    assert not fences.damage()
    if pages:  # the other side is a page that nobody may touch
        beside = array.ctypes.data - 1 if at_end else array.ctypes.data + array.nbytes
        ctypes.memset(beside, 0, 1)
        assert fences.damage()
        return
    for offset in (-1, array.nbytes):
        fences = Fences(pages=False, at_end=at_end)
        array = fences.empty(TensorType((3, 5), f32))
        ctypes.memset(array.ctypes.data + offset, 0, 1)
        assert fences.damage()


def test_copies_keep_numbers_and_refuse_writes() -> None:
    numbers = np.arange(12, dtype=np.int16).reshape(3, 4)
    for at_end in (True, False):
        made = Fences(pages=True, at_end=at_end).copy(numbers)
        assert (made == numbers).all()
        with pytest.raises(ValueError, match="read-only"):
            made[0, 0] = 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 5), (2, 0, 3)])
def test_layouts_hold_the_same_numbers(layout: str, shape: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(0).integers(0, 99, shape).astype(np.int32)
    made = differently_laid_out(numbers, layout)
    assert made.shape == shape
    assert made.dtype == numbers.dtype
    assert (made == numbers).all()
    if numbers.size > 4:
        flags = made.flags
        assert not (flags.c_contiguous and flags.aligned)
