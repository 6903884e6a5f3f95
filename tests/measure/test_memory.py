"""Where kernels are tried, how their results are compared, and what is never built."""

from __future__ import annotations

import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.measure.planted import TARGET, matmul_task
from whet.core.dtypes import f32
from whet.ir.expr import Var, const
from whet.ir.program import Allocate, Buffer, Loop, Program, Store
from whet.measure.binding import boundary
from whet.measure.checking import difference
from whet.measure.cpu.jobs import KernelJob, job_from_message
from whet.measure.cpu.limits import over_limit
from whet.measure.cpu.memory import GuardedBytes, base_address
from whet.measure.cpu.prepare import GIVEN_LEAD
from whet.measure.cpu.run_worker import _filled
from whet.measure.parameters import Parameter, contiguous, fill, strayed, view

BORDERED = Parameter("output", "y", "f32", (2, 3), (5, 1), 6, ((1, 1), (1, 1)))
"""Two rows of three, with one zero all around."""
PART = Parameter("output", "y", "f32", (4, 2), (6, 1), 3)
"""Two of six columns: what a concatenation along columns writes."""


def memory_of(p: Parameter) -> np.ndarray:
    return np.zeros(p.nbytes, np.uint8)


def test_bounds_of_memory() -> None:
    assert BORDERED.bounds == (0, 20)
    assert PART.bounds == (0, 23)  # what it is a part of begins at element 0
    assert contiguous("input", "x", "f32", (3, 4)).bounds == (0, 12)
    assert contiguous("input", "x", "f32", (3, 0)).nbytes == 0
    assert Parameter("input", "x", "f32", (4,), (-1,), 3).bounds == (0, 4)


def test_values_zeros_and_poison() -> None:
    memory = memory_of(BORDERED)
    fill(BORDERED, memory, np.arange(1, 7).reshape(2, 3))
    np.testing.assert_array_equal(
        memory.view(np.float32).reshape(4, 5),
        [[0, 0, 0, 0, 0], [0, 1, 2, 3, 0], [0, 4, 5, 6, 0], [0, 0, 0, 0, 0]],
    )
    fill(BORDERED, memory, None)
    assert np.isnan(view(BORDERED, memory)).all()
    assert np.count_nonzero(memory.view(np.float32) == 0) == 14
    gaps = memory_of(PART)
    fill(PART, gaps, np.ones((4, 2)))
    assert np.count_nonzero(np.isnan(gaps.view(np.float32))) == 15


@pytest.mark.parametrize(("p", "beside"), [(BORDERED, 0), (BORDERED, 9), (PART, 2), (PART, 8)])
def test_writing_beside_an_output_is_noticed(p: Parameter, beside: int) -> None:
    memory = memory_of(p)
    fill(p, memory, np.ones(p.shape))
    assert not strayed(p, memory)
    memory.view(np.float32)[beside] = 7
    assert strayed(p, memory)


def test_guarded_bytes_lie_at_the_edge() -> None:
    behind, before = GuardedBytes(100, at_end=True), GuardedBytes(100, at_end=False)
    p = contiguous("input", "x", "f32", (25,))
    assert (base_address(p, behind.bytes) + 100) % 4096 == 0
    assert base_address(p, before.bytes) % 4096 == 0
    assert (behind.bytes == 0xFF).all()


def test_jobs_survive_the_message() -> None:
    job = KernelJob("kernel", 2, True, (BORDERED, PART), (1, 0), 1 << 20)
    assert job_from_message(json.loads(json.dumps(job.to_message()))) == job


# ----------------------------------------------------------------------------------- results
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
def test_exact_results_differ_in_a_bit(dtype: type) -> None:
    want = np.arange(1, 9).astype(dtype)
    got = want.copy()
    assert difference(got, want, exact=True) is None
    raw = got.view(f"u{got.itemsize}")
    raw[5] += 1
    assert "1 of 8 elements are wrong, the first at [5]" in str(difference(got, want, exact=True))
    assert difference(got, want, exact=False) is None


def test_rounding_is_told_from_errors() -> None:
    rng = np.random.default_rng(0)
    want = (rng.standard_normal((8, 50)) * 100).astype(np.float32)
    assert difference(want * np.float32(1 + 1e-5), want, exact=False) is None
    assert difference(want * np.float32(1.01), want, exact=False) is not None
    for bad in (np.nan, np.inf, 0.0):
        got = want.copy()
        got[3, 4] = bad
        assert "[3, 4]" in str(difference(got, want, exact=False))


def test_nan_and_infinity_must_be_where_they_belong() -> None:
    want = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    for exact in (True, False):
        assert difference(want.copy(), want, exact=exact) is None
        assert difference(want[[1, 0, 2, 3]], want, exact=exact) is not None
        assert difference(-want, want, exact=exact) is not None


def test_integers_and_truth_values() -> None:
    want = np.array([1, 2, 3])
    assert difference(want + 1, want, exact=True) is not None
    assert difference(want + 1, want, exact=False) is None  # rounded the other way
    assert difference(want + 2, want, exact=False) is not None
    flags = np.array([True, False])
    assert difference(~flags, flags, exact=False) is not None


# ------------------------------------------------------------------------------------ limits
I, K = Var("i"), Var("k")  # noqa: E741 - the indices of these loops
X, Y = Buffer("x", (4096,), f32), Buffer("y", (4096,), f32)


def tile_program(vectors: int) -> Program:
    """A sum over k in that many vector registers."""
    lanes = TARGET.vector_bits // 32
    tile = Buffer("acc", (vectors, lanes), f32, scope="register")
    lane, row = Var("l"), Var("r")
    update = Store(tile, (row, lane), tile[row, lane] + X[K])
    nest = Loop(row, const(vectors, row.dtype),
                (Loop(lane, const(lanes, lane.dtype), (update,), "vector"),), "unroll")  # fmt: skip
    loop = Loop(K, const(100, K.dtype), (nest,))
    return Program("kernel", (X,), (Y,), (Allocate(tile, (loop,)),))


def test_a_tile_beyond_the_registers_is_refused() -> None:
    assert over_limit(tile_program(TARGET.vector_registers - 2), TARGET) is None
    reason = over_limit(tile_program(4 * TARGET.vector_registers), TARGET)
    assert reason is not None
    assert "vectors of sums" in reason


def test_endless_working_memory_is_refused() -> None:
    room = Buffer("room", (1 << 30,), f32)
    program = Program("kernel", (X,), (Y,), (Store(Y, (const(0, I.dtype),), X[0]),), (room,))
    assert "bytes of working memory" in str(over_limit(program, TARGET))


def test_the_callers_arrays_begin_behind_an_aligned_address() -> None:
    task = matmul_task(3, 4, 5)
    task = replace(task, given=frozenset(task.inputs[:1]))
    (x, *others) = (boundary(t, task, GIVEN_LEAD) for t in (*task.inputs, *task.outputs))
    values = {x.array: np.ones(x.shape, np.float32)}
    assert x.lead == GIVEN_LEAD
    assert not any(p.lead for p in others)
    memory = _filled(x, values)
    assert memory.ctypes.data % 64 == GIVEN_LEAD
    np.testing.assert_array_equal(view(x, memory), values[x.array])
