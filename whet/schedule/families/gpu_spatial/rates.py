"""Rates of GPUs that prices of memory-bound kernels are made of.

The numbers were found on an NVIDIA H200 with kernels in graphs, each launched while the one
before it runs (2026-11-15).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ir.affine import free_symbols
from whet.ir.expr import Axis, Read
from whet.ir.tensor import Tensor
from whet.ir.threads import WARP
from whet.schedule.cost.numbers.gpus import (
    BLOCK_NS,
    FELT_BESIDE,
    FLOOR_NS,
    L2_GBS_PER_PROCESSOR,
    L2_SHARE,
    LATE_NS,
    ROUND_NS,
)
from whet.schedule.cost.work import lane_step

LINE_BYTES, SECTOR_BYTES = 128, 32
SCHEDULERS = 4
"""Warps of a processor that issue an instruction in a cycle."""
ADD_CYCLES = 4
"""Cycles until the next term can be added to a sum."""
ALONE_CYCLES = 4
"""Cycles of an instruction in a warp that has its scheduler for itself."""


@dataclass(frozen=True, eq=False)
class Work:
    """The work of a population of kernels."""

    blocks: Array
    threads: Array
    """Threads of a block."""
    instructions: Array
    """Instructions of a thread."""
    lines: Array
    """Cache lines that the loads and stores of a warp touch."""
    nbytes: Array
    """Bytes that all threads move."""
    rounds: Array
    """Loads of a thread that wait for earlier ones, beyond the first."""
    cold: Array | float = 0.0
    """More bytes that all threads move, of constants whose way from memory is counted apart."""


def kernel_ns(work: Work, late: Array, target: GpuTarget) -> Array:
    """Nanoseconds of kernels: the floor, the longest of what goes on at once with a part of the
    rest, and what threads wait for; `late` says which launch the next kernel at their end."""
    warps = np.ceil(work.blocks / target.processors) * work.threads / WARP
    parts = np.stack([
        np.maximum(np.ceil(warps / SCHEDULERS), ALONE_CYCLES) * work.instructions
        / target.clock_ghz,
        warps * work.lines / target.clock_ghz,
        moved_ns(work.nbytes, target) + work.cold / near_gbs(target),
        work.blocks * BLOCK_NS,
    ])  # fmt: skip
    longest = parts.max(axis=0)
    busy = longest + FELT_BESIDE * (parts.sum(axis=0) - longest)
    waits = waves(work.blocks, work.threads, target) * work.rounds * ROUND_NS
    return np.asarray(FLOOR_NS + busy + waits + np.where(late, LATE_NS, 0.0))


def moved_ns(nbytes: Array, target: GpuTarget) -> Array:
    """Bytes that are read or written once, from where they can be at best."""
    fits = nbytes <= L2_SHARE * target.l2_bytes
    return np.asarray(nbytes / np.where(fits, near_gbs(target), target.memory_gbs))


def near_gbs(target: GpuTarget) -> float:
    """What all processors together take from the second cache."""
    return L2_GBS_PER_PROCESSOR * target.processors


def waves(blocks: Array, threads: Array, target: GpuTarget) -> Array:
    """Rounds of blocks that the processors hold at a time."""
    held = target.processors * np.minimum(target.threads_per_processor // threads, 32)
    return np.ceil(blocks / held)


def nbytes_of(tensors: Sequence[Tensor]) -> float:
    return float(sum(t.type.nbytes for t in tensors))


def touched_bytes(read: Read) -> float:
    """The bytes of the elements that a read finds at all positions: no more than its tensor has,
    and of a table or a slice no more than are asked for."""
    axes = frozenset().union(*map(free_symbols, read.indices))
    found = read.tensor.type.size
    if all(isinstance(axis, Axis) for axis in axes):
        found = min(found, prod(axis.extent for axis in axes if isinstance(axis, Axis)))
    return float(found * read.dtype.itemsize)


def lines_of(read: Read, step: int | None, apart: Array, count: Array) -> Array:
    """Lines that one load of a warp touches: its threads are `apart` positions from each other, of
    so many elements a step, and take `count` elements each."""
    size = read.dtype.itemsize
    if step is None:
        return np.full(len(apart), float(WARP))
    nbytes = WARP * np.maximum(abs(step) * apart, min(1, abs(step)) * count) * size
    return np.clip(np.ceil(nbytes / LINE_BYTES), 1, WARP)


def wasted(read: Read, along: Axis | None, others: Sequence[Axis]) -> float:
    """Bytes that come from the second cache for every byte of a read that is used.

    Elements between those of neighbouring threads are used too where the same thread reads them
    next, along one of the others.
    """
    step = lane_step(read, along)
    if step is None:
        return 1.0
    if any(lane_step(read, a) in (1, -1) for a in others):
        return 1.0
    return float(np.clip(abs(step), 1, SECTOR_BYTES // read.dtype.itemsize))
