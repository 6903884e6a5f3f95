"""NVRTC: CUDA C++ to cubins, with no GPU and no toolkit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from whet.core.containers import usable_processors
from whet.core.errors import UsageError, WhetError, fail

MOST_THREADS = 8
"""NVRTC compiles in several threads at once, and gains little from more."""
HINT = "pip install 'whet[cuda]'"


def why_unavailable() -> str | None:
    """Why no code can be compiled; None where NVRTC is installed and can be loaded."""
    try:
        nvrtc_version()
    except UsageError as error:
        return error.message
    return None


@cache
def _nvrtc() -> Any:
    try:
        import cuda.bindings.nvrtc as nvrtc
    except ImportError:
        fail("WH1008", "cuda-bindings, which compiles code for GPUs, is not installed", hint=HINT,
             kind=UsageError)  # fmt: skip
    return nvrtc


@cache
def nvrtc_version() -> str:
    nvrtc = _nvrtc()
    try:
        status, major, minor = nvrtc.nvrtcVersion()
    except Exception as error:  # the binding has an exception of its own for a missing library
        fail("WH1008", f"NVRTC, which compiles code for GPUs, cannot be loaded ({error})",
             hint=HINT, kind=UsageError)  # fmt: skip
    assert int(status) == 0
    return f"{major}.{minor}"


def compile_cubins(texts: list[str], architecture: str) -> list[bytes]:
    """The cubins of source texts, several at once."""
    if len(texts) == 1:
        return [compile_cubin(texts[0], architecture)]
    with ThreadPoolExecutor(min(usable_processors(), MOST_THREADS)) as pool:
        return list(pool.map(lambda text: compile_cubin(text, architecture), texts))


def compile_cubin(text: str, architecture: str) -> bytes:
    """Machine code of all kernels in a text."""
    nvrtc = _nvrtc()
    made, program = nvrtc.nvrtcCreateProgram(text.encode(), b"whet.cu", 0, [], [])
    _check(nvrtc, made)
    try:
        options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", b"-w"]
        (compiled,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if int(compiled) != 0:
            raise WhetError("WH1304", f"NVRTC refused generated code: {_log(nvrtc, program)}")
        status, size = nvrtc.nvrtcGetCUBINSize(program)
        _check(nvrtc, status)
        cubin = b" " * size
        (status,) = nvrtc.nvrtcGetCUBIN(program, cubin)
        _check(nvrtc, status)
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log(nvrtc: Any, program: Any) -> str:
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.decode(errors="replace").rstrip("\0 \n")


def _check(nvrtc: Any, status: Any) -> None:
    if int(status) != 0:
        _, text = nvrtc.nvrtcGetErrorString(status)
        raise WhetError("WH1304", f"NVRTC failed: {text!r}")
