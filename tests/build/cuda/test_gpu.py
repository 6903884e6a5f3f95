"""Segments on a real GPU."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.build.cuda.segments import normal
from tests.skips import ANOTHER_PROCESSOR
from whet.build.cuda.arrays import DeviceArray
from whet.build.cuda.detect import detected_gpu, missing_here
from whet.build.cuda.segment import CudaSegment
from whet.codegen.cuda.bindings import cuda_driver
from whet.core.errors import OperatorError, UsageError, WhetError

pytestmark = pytest.mark.gpu
SIZE = 1000
RNG = np.random.default_rng(1)


@pytest.fixture(autouse=True)
def _gpu() -> Iterator[None]:
    try:
        detected_gpu()
    except UsageError as error:
        pytest.skip(f"{ANOTHER_PROCESSOR}{error.message}")
    yield
    gc.collect()
    cuda_driver().synchronize(1)  # an illegal access is an error of the test that made it


def test_this_gpu_is_known() -> None:
    gpu = detected_gpu()
    assert gpu.processors > 0
    assert gpu.shared_bytes >= 48 << 10
    assert gpu.l2_bytes > 0
    assert 0.3 < gpu.clock_ghz < 5
    assert 50 < gpu.memory_gbs < 20_000
    assert missing_here(gpu) == ()


def test_numpy_in_and_out() -> None:
    from tests.build.cuda.gpu_kernels import adding

    segment = adding(SIZE)
    for _ in range(3):
        x, y = normal(SIZE), normal(SIZE)
        np.testing.assert_array_equal(segment([x, y])[0], x + y)


def test_a_chain_of_kernels_that_are_launched_early() -> None:
    from tests.build.cuda.gpu_kernels import chain

    size = 1 << 18
    segment = chain(size, 40)
    for _ in range(20):
        x = RNG.integers(-99, 99, size).astype(np.float32)
        y = RNG.integers(-99, 99, size).astype(np.float32)
        np.testing.assert_array_equal(segment([x, y])[0], x + 40 * y)


def test_clusters_and_much_shared_memory() -> None:
    from tests.build.cuda.gpu_kernels import clustered

    gpu = detected_gpu()
    x, y = normal(SIZE), normal(SIZE)
    for cluster in (1, 2, 8, 16):
        if cluster <= gpu.cluster_limit and gpu.generation >= 90:
            segment = clustered(SIZE, cluster, gpu.shared_bytes)
            np.testing.assert_array_equal(segment([x, y])[0], x + y + np.float32(cluster))


def test_calls_from_many_threads() -> None:
    from tests.build.cuda.gpu_kernels import chain

    segment, wrong = chain(SIZE, 5), []

    def call(number: int) -> None:
        y = np.full(SIZE, number, np.float32)
        for n in range(100):
            x = np.full(SIZE, n, np.float32)
            if not np.array_equal(segment([x, y])[0], x + 5 * y):
                wrong.append((number, n))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_statuses() -> None:
    from tests.build.cuda.gpu_kernels import adding

    segment = adding(SIZE, watches=True)
    good = np.abs(normal(SIZE))
    for _ in range(2):
        np.testing.assert_array_equal(segment([good, good])[0], 2 * good)
        with pytest.raises(OperatorError, match="WH1302 add: an index that the model computes"):
            segment([-good, good])


def test_what_the_driver_refuses() -> None:
    driver = cuda_driver()
    with pytest.raises(WhetError, match="WH1010 the driver of the GPU refused a call: CUDA_ERROR_"):
        driver.load(b"no cubin at all, and long enough to be looked at".ljust(4096))
    with pytest.raises(WhetError, match="WH1005 the GPU has not enough memory"):
        driver.allocate(1 << 50)


# ----------------------------------------------------------------------------------------- torch
@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason=ANOTHER_PROCESSOR + "torch is not installed")


def run(segment: CudaSegment, *values: Any) -> Any:
    return segment(segment.adopt(values, "x" * len(values)))[0]  # type: ignore[arg-type]


def test_tensors_are_not_copied(torch: Any) -> None:
    from tests.build.cuda.gpu_kernels import adding

    segment = adding(SIZE)
    for _ in range(3):
        x, y = torch.randn(SIZE, device="cuda"), torch.randn(SIZE, device="cuda")
        view = segment.adopt([x], ["x"])[0]
        assert view is not None
        assert (view.address, view.shape) == (x.data_ptr(), (SIZE,))
        z = run(segment, x, y)
        assert isinstance(z, DeviceArray)
        taken = torch.from_dlpack(z)
        assert taken.data_ptr() == z.address
        assert torch.equal(taken, x + y)
        assert torch.equal(torch.as_tensor(z, device="cuda"), x + y)
        np.testing.assert_array_equal(z.numpy(), (x + y).cpu().numpy())
    assert all(c.staging is None for waiting in segment.idle.values() for c in waiting)


def test_the_stream_is_the_caller_s(torch: Any) -> None:
    from tests.build.cuda.gpu_kernels import adding

    segment = adding(SIZE)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.randn(SIZE, device="cuda")
        view = segment.adopt([x], ["x"])[0]
    assert view is not None
    assert view.stream == stream.cuda_stream
    assert view.follows


def test_tensors_that_start_elsewhere(torch: Any) -> None:
    from tests.build.cuda.gpu_kernels import adding

    segment = adding(SIZE)
    x, y = torch.randn(SIZE + 1, device="cuda")[1:], torch.randn(SIZE, device="cuda")
    assert torch.equal(torch.from_dlpack(run(segment, x, y)), x + y)
    with pytest.raises(UsageError, match="WH3003 input 'x' lies on the GPU with gaps"):
        segment.adopt([torch.randn(SIZE, 2, device="cuda")[:, 0]], ["x"])


def test_results_are_written_to_tensors(torch: Any) -> None:
    from tests.build.cuda.gpu_kernels import adding

    segment = adding(SIZE)
    x, y, z = (torch.randn(SIZE, device="cuda") for _ in range(3))
    a, b, out = segment.adopt([x, y, z], ["x", "y", "out"])
    segment([a, b], [out])  # type: ignore[list-item]
    assert torch.equal(z, x + y)


def test_two_segments_on_two_streams_at_once(torch: Any) -> None:
    from tests.build.cuda.gpu_kernels import chain

    size, steps = 1 << 20, 30
    segments = [chain(size, steps), chain(size, steps)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    found: list[tuple[Any, Any]] = []
    for turn in range(20):
        for number, (segment, stream) in enumerate(zip(segments, streams)):
            with torch.cuda.stream(stream):
                x = torch.full((size,), float(turn), device="cuda")
                y = torch.full((size,), float(number + 1), device="cuda")
                z = torch.from_dlpack(run(segment, x, y))
                found.append(((z == turn + steps * (number + 1)).all(), (turn, number)))
    torch.cuda.synchronize()
    assert not [where for right, where in found if not bool(right)]


def test_one_segment_on_two_streams_and_arrays_of_two(torch: Any) -> None:
    from tests.build.cuda.gpu_kernels import chain

    size, steps = 1 << 20, 30
    segment = chain(size, steps)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    other = torch.zeros(size, device="cuda")
    last, value = run(segment, other, other), 0
    for turn in range(10):
        with torch.cuda.stream(streams[turn % 2]):
            x = torch.full((size,), float(turn), device="cuda")
            z = torch.from_dlpack(run(segment, x, last))
            assert bool((z == turn + steps * value).all())
            last, value = run(segment, x, x), turn * (steps + 1)


def test_memory_is_given_back(torch: Any) -> None:
    from tests.build.cuda.gpu_kernels import adding

    size = 1 << 26
    x = torch.ones(size, device="cuda")
    before: int | None = None
    for _ in range(4):
        segment = adding(size)
        for _ in range(3):
            run(segment, x, x)
        del segment
        gc.collect()
        free, _ = torch.cuda.mem_get_info()
        assert before is None or free >= before - (64 << 20)
        before = free if before is None else before
