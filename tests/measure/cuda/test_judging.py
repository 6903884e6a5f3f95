"""Memory after a kernel: what must be there, what must still be there, and what is let pass."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from whet.codegen.cuda.memory import ALIGNMENT
from whet.core.types import Array
from whet.measure.cuda.judging import ZONE_BYTES, Layout, fault, filled, lay_out, wrongness
from whet.measure.parameters import Parameter, contiguous, view

BORDERED = Parameter("output", "y", "f32", (2, 3), (5, 1), 6, ((1, 1), (1, 1)))
SHIFTED = Parameter("input", "x", "f32", (4,), (1,), -3)
"""Begins in front of the address that a kernel is given."""
PARAMETERS = (
    SHIFTED, contiguous("constant", "w", "f16", (3,)), BORDERED,
    contiguous("workspace", "", "i64", (5,)), contiguous("constant", "v", "f32", (40,)),
)  # fmt: skip
VALUES: dict[int, Array] = {
    0: np.arange(4, dtype=np.float32), 1: np.ones(3, np.float16), 4: np.ones(40, np.float32),
}  # fmt: skip
WANTED: dict[int, Array] = {2: np.arange(6, dtype=np.float32).reshape(2, 3)}


def ran() -> tuple[Layout, Array, Array]:
    """A layout, and memory before and after a kernel that is right."""
    layout = lay_out(PARAMETERS)
    before = filled(layout, VALUES)
    after = before.copy()
    view(BORDERED, layout.bytes_of(2, after))[...] = WANTED[2]
    layout.bytes_of(3, after)[:] = 17
    return layout, before, after


def test_parameters_are_aligned_and_apart() -> None:
    layout = lay_out(PARAMETERS)
    places = sorted((s, s + p.nbytes) for s, p in zip(layout.starts, PARAMETERS))
    ends = [0, *(end for _, end in places)]
    starts = [*(start for start, _ in places), layout.nbytes]
    assert all(start - end >= ZONE_BYTES for end, start in zip(ends, starts))
    assert all(layout.base(n) % ALIGNMENT == 0 for n in range(len(PARAMETERS)))
    constants = [layout.starts[n] + PARAMETERS[n].nbytes for n in (1, 4)]
    assert max(constants) + ZONE_BYTES <= layout.constant_bytes
    assert all(layout.starts[n] > layout.constant_bytes for n in (0, 2, 3))


def test_a_right_kernel_has_no_fault() -> None:
    assert fault(*ran(), WANTED, "exact") is None


def test_outputs_and_workspace_begin_as_poison() -> None:
    layout, before, _ = ran()
    assert np.isnan(view(BORDERED, layout.bytes_of(2, before))).all()
    assert (layout.bytes_of(3, before) == 0xFF).all()
    problem = fault(layout, before, before, WANTED, "exact")
    assert problem is not None
    assert "6 of 6 elements are wrong, the first at [0, 0]: nan" in problem


@pytest.mark.parametrize(
    ("number", "at", "message"),
    [
        (0, -1, "it writes before its input f32[4]"),
        (0, 0, "it writes to its input f32[4]"),
        (1, 1, "it writes to its constant f16[3]"),
        (2, -ZONE_BYTES, "it writes before its output f32[2, 3]"),
        (2, 0, "it writes beside the elements of its output"),
        (2, BORDERED.nbytes, "it writes before its workspace i64[5]"),
        (3, 40, "it writes behind its memory"),
        (3, 40 + ZONE_BYTES - 1, "it writes behind its memory"),
    ],
)
def test_every_byte_that_is_not_its_own_is_watched(number: int, at: int, message: str) -> None:
    layout, before, after = ran()
    after[layout.starts[number] + at] ^= 1
    assert fault(layout, before, after, WANTED, "exact") == message


def test_workspace_may_hold_anything() -> None:
    layout, before, after = ran()
    layout.bytes_of(3, after)[7] ^= 1
    assert fault(layout, before, after, WANTED, "exact") is None


# ----------------------------------------------------------------------------------- tolerances
def test_errors_are_judged_by_the_norm_of_all_results() -> None:
    want = np.array([1e6, 1.0, 0.0])
    near = np.array([1e6, 2.0, 0.5], np.float32)
    assert wrongness(near, want, 1e-5) is None, "cancellation leaves what sums were rounded by"
    problem = wrongness(np.array([1e6 + 100, 1.0, 0.0], np.float32), want, 1e-5)
    assert problem == "the results are off by 1.0e-04 of their norm, 1e-05 is allowed"


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_what_is_no_number_is_wrong(dtype: type) -> None:
    want = np.arange(4.0)
    got = want.astype(dtype)
    got[2] = np.nan
    problem = wrongness(got, want, 0.1)
    assert problem is not None
    assert "1 of 4 elements are no numbers, the first at [2]: nan" in problem
    want[2] = np.nan
    assert wrongness(got, want, 0.1) is None, "it is none by definition"


def test_what_the_type_cannot_hold_says_nothing() -> None:
    want = np.array([1.0, 1e6])
    assert wrongness(np.array([1.0, np.inf], np.float16), want, 1e-3) is None


def test_integers_may_be_off_by_the_last_one_where_something_is_rounded() -> None:
    want = np.array([3, 4], np.int32)
    got = np.array([3, 5], np.int32)
    assert wrongness(got, want, 1e-5) is None
    assert wrongness(got, want, "exact") is not None
