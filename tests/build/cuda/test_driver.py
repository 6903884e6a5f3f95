"""The real driver's errors, and GPUs described as targets, without a GPU."""

from __future__ import annotations

import enum
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from whet.build.cuda import detect
from whet.build.cuda.detect import described, detected_gpu, missing_here, runs_on
from whet.codegen.cuda import bindings
from whet.codegen.cuda.bindings import CudaDriver
from whet.core.errors import UsageError, WhetError
from whet.core.gpu import PRESETS, GpuTarget


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_DEINITIALIZED = 4
    CUDA_ERROR_INVALID_IMAGE = 200
    CUDA_ERROR_NO_DEVICE = 100


def api(**functions: Any) -> Any:
    """NVIDIA's bindings, as far as starting the driver needs them."""
    good: dict[str, Any] = {
        "CUresult": CUresult,
        "CUstream_flags": SimpleNamespace(CU_STREAM_NON_BLOCKING=1),
        "cuInit": lambda flags: (CUresult.CUDA_SUCCESS,),
        "cuDeviceGetCount": lambda: (CUresult.CUDA_SUCCESS, 1),
        "cuDeviceGet": lambda number: (CUresult.CUDA_SUCCESS, number),
        "cuDevicePrimaryCtxRetain": lambda device: (CUresult.CUDA_SUCCESS, 7),
        "cuCtxSetCurrent": lambda context: (CUresult.CUDA_SUCCESS,),
        "cuStreamCreate": lambda flags: (CUresult.CUDA_SUCCESS, 12),
        "cuGraphLaunch": lambda graph, stream: (CUresult.CUDA_SUCCESS,),
        "CUstream": int,
    }
    return SimpleNamespace(**(good | functions))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that starts a driver on such bindings."""

    def start(**functions: Any) -> CudaDriver:
        monkeypatch.setattr(bindings, "_bindings", lambda: api(**functions))
        return CudaDriver()

    return start


def missing_library(flags: int) -> None:
    raise RuntimeError("libcuda.so.1: cannot open shared object file\nmore")


def test_without_a_driver_there_is_one_error_with_a_hint(started: Any) -> None:
    with pytest.raises(UsageError, match="WH1010 there is no NVIDIA driver here") as caught:
        started(cuInit=missing_library)
    assert str(caught.value).splitlines()[1:] == [
        "  libcuda.so.1: cannot open shared object file",
        "  hint: install NVIDIA's driver, or build for the target cpu",
    ]


def test_without_a_gpu(started: Any) -> None:
    with pytest.raises(
        UsageError, match="WH1010 NVIDIA's driver does not start here: CUDA_ERROR_NO"
    ):
        started(cuInit=lambda flags: (CUresult.CUDA_ERROR_NO_DEVICE,))
    with pytest.raises(UsageError, match="WH1010 there is no NVIDIA GPU here"):
        started(cuDeviceGetCount=lambda: (CUresult.CUDA_SUCCESS, 0))


def test_without_the_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(
        UsageError, match="WH1008 a GPU needs the package 'cuda-bindings'"
    ) as caught:
        CudaDriver()
    assert "whet[cuda]" in str(caught.value)


def test_refused_calls_are_errors_with_the_driver_s_name_for_them(started: Any) -> None:
    driver = started(
        cuModuleLoadData=lambda image: (CUresult.CUDA_ERROR_INVALID_IMAGE, None),
        cuMemAlloc=lambda nbytes: (CUresult.CUDA_ERROR_OUT_OF_MEMORY, None),
        cuMemFree=lambda address: (CUresult.CUDA_ERROR_DEINITIALIZED,),
    )
    with pytest.raises(WhetError, match=r"WH1010 .* refused a call: CUDA_ERROR_INVALID_IMAGE"):
        driver.load(b"")
    with pytest.raises(WhetError, match="WH1005 the GPU has not enough memory"):
        driver.allocate(4)
    driver.free(1)  # the process is ending


# -------------------------------------------------------------------------------------- detection
H200 = {
    "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 132,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536, "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "L2_CACHE_SIZE": 62914560, "CLOCK_RATE": 1980000, "MEMORY_CLOCK_RATE": 3201000,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144,
}  # fmt: skip


class Told:
    """A GPU that says what it is told to."""

    def __init__(self, **facts: int) -> None:
        self.facts = facts

    def name(self) -> str:
        return "NVIDIA H200"

    def attribute(self, name: str) -> int:
        return self.facts.get(name, 0)


def test_a_gpu_is_described_by_its_driver() -> None:
    assert described(Told(**H200)) == GpuTarget(
        "NVIDIA H200", "sm_90a", 132, 232448, 233472, 65536, 2048, 62914560, 1.98, 4916.736
    )


def test_rates_that_a_driver_does_not_tell_are_those_of_a_preset() -> None:
    facts = H200 | {"CLOCK_RATE": 0, "MEMORY_CLOCK_RATE": 0}
    found = described(Told(**facts))
    like = PRESETS["cuda-sm_90a"]
    assert (found.clock_ghz, found.memory_gbs) == (like.clock_ghz, like.memory_gbs)
    older = facts | {"COMPUTE_CAPABILITY_MAJOR": 8, "COMPUTE_CAPABILITY_MINOR": 6}
    assert described(Told(**older)).memory_gbs == PRESETS["cuda-sm_80"].memory_gbs


@pytest.mark.parametrize(
    ("version", "architecture"), [((8, 0), "sm_80"), ((8, 6), "sm_86"), ((12, 0), "sm_120a")]
)
def test_architectures(version: tuple[int, int], architecture: str) -> None:
    major, minor = version
    facts = {"COMPUTE_CAPABILITY_MAJOR": major, "COMPUTE_CAPABILITY_MINOR": minor}
    assert described(Told(**(H200 | facts))).architecture == architecture


def test_gpus_that_no_code_is_made_for() -> None:
    facts = {"COMPUTE_CAPABILITY_MAJOR": 7, "COMPUTE_CAPABILITY_MINOR": 5}
    with pytest.raises(UsageError, match=r"has compute capability 7.5, and code .* 8.0 and later"):
        described(Told(**(H200 | facts)))


@pytest.mark.parametrize(
    ("architecture", "most"), [("sm_80", 1), ("sm_90a", 16), ("sm_100a", 16), ("sm_120a", 8)]
)
def test_blocks_of_a_cluster(architecture: str, most: int) -> None:
    assert replace(PRESETS["cuda-sm_80"], architecture=architecture).cluster_limit == most


@pytest.mark.parametrize(
    ("code", "gpu", "runs"),
    [
        ("sm_90a", "sm_90a", True),
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90a", False),
        ("sm_90a", "sm_100a", False),
        ("sm_90", "sm_90a", True),
    ],
)
def test_which_code_runs_where(code: str, gpu: str, runs: bool) -> None:
    like = PRESETS["cuda-sm_90a"]
    target, device = replace(like, architecture=code), replace(like, architecture=gpu)
    assert runs_on(target, device) is runs


def test_what_is_missing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    h100, a100 = PRESETS["cuda-sm_90a"], PRESETS["cuda-sm_80"]
    monkeypatch.setattr(detect, "detected_gpu", lambda: h100)
    assert missing_here(h100) == ()
    assert missing_here(a100) == ("sm_80",)

    def nothing() -> GpuTarget:
        raise UsageError("WH1010", "there is no NVIDIA GPU here")

    monkeypatch.setattr(detect, "detected_gpu", nothing)
    assert missing_here(a100) == ("GPU with sm_80",)


def test_the_driver_is_asked_once(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = started(
        cuDeviceGetName=lambda length, device: (CUresult.CUDA_SUCCESS, b"NVIDIA H200\0\0"),
        cuDeviceGetAttribute=lambda kind, device: (CUresult.CUDA_SUCCESS, H200[kind]),
        CUdevice_attribute=SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{n}": n for n in H200}),
    )
    detected_gpu.cache_clear()
    monkeypatch.setattr(bindings, "cuda_driver", lambda: driver)
    assert detected_gpu() == described(Told(**H200))
    assert detected_gpu() is detected_gpu()
    detected_gpu.cache_clear()
