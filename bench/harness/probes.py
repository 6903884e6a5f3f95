"""What the hardware can do at most, measured with code from whet's own code generator."""

from __future__ import annotations

import numpy as np

from harness.measured_target import measured_target
from whet.build.cpu.probes import Probe, Prober
from whet.codegen.llvm.probecode import STREAMS
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.types import Array

FMA_ROUNDS = 50_000
PIECES_PER_THREAD = 8

BANDWIDTH_KINDS = STREAMS
"""The probes of memory, and how many arrays each one moves."""


def fma_probe(threads: int) -> Probe:
    """Floating-point operations of multiply-adds in registers, nothing else."""
    lanes = measured_target().lanes(32)
    probe = _prober(threads).fma(FMA_ROUNDS, PIECES_PER_THREAD * threads, lanes=lanes)
    return Probe(probe.call, 2.0 * lanes * probe.work)


def bandwidth_probe(kind: str, nbytes: int, threads: int) -> Probe:
    """Reading, copying or adding arrays of that many bytes each; `memcpy` is the C library's."""
    return _prober(threads).stream(kind, [np.ones(nbytes // 4, np.float32) for _ in range(3)])


def memcpy_probe(source: Array, result: Array, threads: int) -> Probe:
    """The C library's copy of one array to another."""
    return _prober(threads).stream("memcpy", [source, result, result])


def _prober(threads: int) -> Prober:
    return Prober(measured_target(), threads, FileCache(process_config().cache))
