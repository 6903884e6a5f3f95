"""Texts of kernels as libraries of this machine, and programs that are run by their text."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import as_strided

from whet.codegen.cuda.emit import emit_program
from whet.codegen.cuda.intrinsics import INTRINSICS
from whet.codegen.cuda.launch import Launch, launches_of
from whet.codegen.cuda.memory import ALIGNMENT
from whet.core.gpu import PRESETS, GpuTarget
from whet.core.types import Array
from whet.ir.program import Buffer, Program

HERE = Path(__file__).parent
SHARED = "extern __shared__ __align__(1024) unsigned char whet_shared[];"
OWN_SHARED = "unsigned char* const whet_shared = gpu_shared();"
MESSAGE_BYTES = 512
HOPPER = PRESETS["cuda-sm_90a"]

_KERNEL = re.compile(
    r'extern "C" __global__ void (?:__cluster_dims__\(\) )?'
    r"__launch_bounds__\(\d+, \d+\) (\w+)\("
)


def lacking() -> str | None:
    """What this machine lacks, if it cannot run texts."""
    if platform.machine() != "x86_64":
        return "processor of kind x86-64"
    return None if shutil.which("g++") else "C++ compiler called g++"


class RefusedError(AssertionError):
    """What a kernel did that a GPU would not stand, or not notice."""


class _Range(ctypes.Structure):
    _fields_ = [
        ("start", ctypes.c_uint64), ("nbytes", ctypes.c_uint64),
        ("writable", ctypes.c_uint32), ("constant", ctypes.c_uint32),
    ]  # fmt: skip


class _Launch(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint32) for name in (
            "clusters", "cluster", "threads", "shared_bytes", "early", "ranges", "seed", "spare")),
        ("addresses", ctypes.c_void_p), ("range", ctypes.c_void_p), ("message", ctypes.c_void_p),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Range:
    """Memory that a kernel may use."""

    start: int
    nbytes: int
    writable: int = 0
    """1 if threads may write to it, 2 if many may write the same to it at once."""
    constant: bool = False


class Compiled:
    """The kernels of a text."""

    def __init__(self, library: bytes) -> None:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(library)
            file.flush()
            self.library = ctypes.CDLL(file.name)

    def run(
        self, launch: Launch, addresses: Sequence[int], ranges: Sequence[Range] = (),
        seed: int = 0, *, early: bool = False,
    ) -> None:  # fmt: skip
        """All threads of a launch; ranges are looked at where the text was compiled so.  If it may
        be launched early, it must await its inputs."""
        given = (ctypes.c_uint64 * max(len(addresses), 1))(*addresses)
        allowed = (_Range * max(len(ranges), 1))(
            *(_Range(r.start, r.nbytes, r.writable, r.constant) for r in ranges)
        )
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        call = _Launch(
            launch.clusters, launch.cluster, launch.threads, launch.shared_bytes, early,
            len(ranges), seed, 0, ctypes.addressof(given), ctypes.addressof(allowed),
            ctypes.addressof(message),
        )  # fmt: skip
        getattr(self.library, f"run_{launch.symbol}")(ctypes.byref(call))
        if message.value:
            raise RefusedError(f"{launch.symbol}: {message.value.decode()}")


def compile_text(text: str, *, checked: bool) -> bytes:
    """A library with the kernels of a text."""
    symbols = _KERNEL.findall(text)
    for intrinsic in INTRINSICS.values():
        if "asm" in intrinsic.text or "__cvta" in intrinsic.text:
            text = text.replace(intrinsic.text, "")
    text = text.replace(SHARED, OWN_SHARED)
    entries = "\n".join(f"GPU_ENTRY({symbol})" for symbol in symbols)
    source = f'#include "{HERE / "device.h"}"\n{text}\n{entries}\n'
    with tempfile.TemporaryDirectory() as folder:
        kernels, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        kernels.write_text(source)
        watched = ["-fsanitize=thread"] if checked else []
        unit = Path(folder) / "kernels.o"
        _gpp([*_options(checked), *watched, "-c", str(kernels), "-o", str(unit)])
        device = Path(folder) / "device.o"
        device.write_bytes(_device(checked))
        _gpp(["-shared", "-o", str(library), str(unit), str(device)])
        return library.read_bytes()


@cache
def _device(checked: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "device.o"
        _gpp([*_options(checked), "-c", str(HERE / "device.cpp"), "-o", str(made)])
        return made.read_bytes()


def _options(checked: bool) -> list[str]:
    return [
        "-std=gnu++17", "-march=native", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing",
        "-w", *(["-O1", "-DGPU_CHECKED"] if checked else ["-O2"]),
    ]  # fmt: skip


def _gpp(arguments: Sequence[str]) -> None:
    done = subprocess.run(["g++", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"g++ refused the text of a kernel:\n{done.stderr[:4000]}")


# ------------------------------------------------------------------------------------- programs
def run_text(
    program: Program, arrays: Sequence[Array], constants: Collection[Buffer] = (),
    target: GpuTarget = HOPPER,
) -> tuple[Array, ...]:  # fmt: skip
    """The outputs of a program by its text, checked; as `whet.ir.lockstep.run_threads`."""
    text, has_status = emit_program(program, target)
    compiled = Compiled(compile_text(text, checked=True))
    buffers = (*program.inputs, *program.outputs, *program.workspace)
    memory = [_room(b) for b in buffers]
    for buffer, room, array in zip(program.inputs, memory, arrays):
        _elements(buffer, room)[...] = array
    status = np.zeros(1, np.int64)
    ranges = [
        Range(m.ctypes.data, m.nbytes, int(n >= len(arrays)), buffer in constants)
        for n, (buffer, m) in enumerate(zip(buffers, memory))
    ]
    addresses = [m.ctypes.data for m in memory]
    if has_status:
        addresses.append(status.ctypes.data)
        ranges.append(Range(status.ctypes.data, 8, 2))
    seed = int(hashlib.blake2b(text.encode(), digest_size=4).hexdigest(), 16)
    for launch in launches_of(program):
        early = launch.awaits and target.has_dependent_launch
        compiled.run(launch, addresses, ranges, seed, early=early)
    results = memory[len(arrays) :]
    return tuple(_elements(b, m).copy() for b, m in zip(program.outputs, results))


def _room(buffer: Buffer) -> Array:
    """The memory of a buffer, aligned as a GPU's, with values that nobody expects in a result."""
    steps = zip(buffer.shape, buffer.element_strides)
    count = buffer.offset + sum((d - 1) * s for d, s in steps) + 1 if buffer.type.size else 0
    raw = np.zeros(count * buffer.dtype.itemsize + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    made = raw[start : start + count * buffer.dtype.itemsize].view(buffer.dtype.numpy)
    if buffer.dtype.is_float:
        made[...] = np.nan
    else:
        made[...] = np.full(count, 0x55, np.uint8).astype(made.dtype)
    return made


def _elements(buffer: Buffer, memory: Array) -> Array:
    strides = [s * memory.itemsize for s in buffer.element_strides]
    return as_strided(memory[buffer.offset :], buffer.shape, strides)
