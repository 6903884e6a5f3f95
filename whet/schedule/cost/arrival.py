"""Waiting for data while tiles are computed: what operands cost that come from further out.

A core computes and loads at once, so the longer of the two counts, and of the shorter one a part
that is felt all the same.  How large that part is depends on the machine, on how far away the data
is, and on whether the kernel asks for it ahead of time; all three are measured (see
`whet.build.cpu.calibrate`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.schedule.cost.numbers.caches import (
    HELD_UP,
    IN_FLIGHT,
    L1_KEPT,
    L2_KEPT,
    L3_KEPT,
    STEADY_TILES,
    STREAMING,
)
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import overlapped, rounds


def from_second_cache(
    busy: Array, nbytes: Array, near: Array, target: CpuTarget, filled: Array | float = 0.0
) -> Array:
    """Cycles of tiles that take so long and each read so many bytes again.

    Where `near`, the bytes that tiles use meanwhile, fits the first cache, they wait for nothing.
    What arrives from further out goes through the second cache as well: `filled` bytes per tile.
    """
    again = np.where(near <= target.l1d_bytes * L1_KEPT, 0.0, nbytes)
    arrival = (again + filled) / rates_of(target).l2_bytes
    return _longer(busy, arrival) + target.constant("l2_felt") * np.minimum(busy, arrival)


def _longer(a: Array, b: Array | float) -> Array:
    """The longer of two times; somewhat more where they are about the same.

    Then each waits for the other now and then: 2 rows of 4 vectors of 512 bits, which need all that
    the second cache gives, take 1.2 to 1.5 times as long as either alone.
    """
    result: Array = np.cbrt(a**3 + b**3)
    return result


@dataclass(frozen=True, eq=False)
class Share:
    """One thread's part of a rectangle of blocks of rows times chunks of columns, with its reads.

    Threads take neighbouring steps, so a thread goes through the chunks of a block, then on to
    the next block.
    """

    steps: Array
    """All steps of all threads."""
    chunks: Array
    """Chunks of a block."""
    chunk_bytes: Array
    """What a step reads of the right factor."""
    block_bytes: Array
    """What a step reads of the left factor."""
    again: Array
    """How often a step goes through its block of the left factor."""
    constant: bool
    """Whether the right factor is a weight."""
    threads: int

    @property
    def own_steps(self) -> Array:
        return np.ceil(self.steps / self.threads)

    @property
    def rounds(self) -> Array:
        """The time that all steps take, in steps."""
        return rounds(self.steps, self.threads)

    @property
    def times(self) -> Array:
        """Times that a thread goes through its part of the right factor."""
        return np.maximum(1.0, self.own_steps / self.chunks)

    def far_bytes(self, target: CpuTarget) -> Array:
        """Bytes that come from beyond the second cache of the thread's core.

        What one thread computed last, and alone, is still there if it is small.  Weights count
        from the second time on: the first time is the same for all kernels (`with_weights`).
        """
        kept = L2_KEPT * target.l2_bytes
        own, chunks = self.own_steps, np.minimum(self.own_steps, self.chunks)
        right = chunks * self.chunk_bytes
        once = 0.0 * right if self.constant else right
        seen = (right <= kept) & (self.threads == 1)
        stays = right + self.block_bytes <= kept
        often = own * self.chunk_bytes - (right - once)
        right = np.where(seen, 0.0, np.where(stays, once, often))
        left = np.ceil(own / self.chunks) * self.block_bytes
        seen = (left <= kept) & (self.threads == 1)
        often = own * self.again * self.block_bytes
        left = np.where(seen, 0.0, np.where(self.block_bytes <= kept, left, often))
        result: Array = right + left
        return result


def leaves_last_cache(nbytes: float, target: CpuTarget) -> bool:
    """Whether data of that size is gone from all caches when it is read again."""
    return nbytes > L3_KEPT * target.l3_bytes


def weights_in_last_cache(target: CpuTarget) -> CpuTarget:
    """The target as kernels see it whose weights do not come from memory."""
    return target.calibrated(
        core_memory_bytes_per_ns=target.constant("l3_bytes_per_ns"),
        memory_bytes_per_ns=target.constant("l3_shared_bytes_per_ns"),
        memory_felt=target.constant("far_felt"),
        memory_hinted_felt=target.constant("hinted_felt"),
    )


def _is_near(target: CpuTarget) -> bool:
    """Whether weights come from the last cache."""
    return target.constant("core_memory_bytes_per_ns") >= target.constant("l3_bytes_per_ns")


def filled_bytes(
    panel_bytes: Array, all_bytes: Array | float, tiles: Array, prefetched: Array, target: CpuTarget
) -> Array:
    """Bytes that go into the second cache for every tile, when so many use a panel of weights which
    it does not hold all; those that were asked for go on to the first cache twice.

    What comes from the last cache arrives as fast as it is read here, and is not counted again:
    NasRNN, products of one row and 1 MB of weights, takes 2.1 ms and not the 3.1 of both.
    """
    if _is_near(target):
        return 0.0 * panel_bytes
    return np.where(
        all_bytes > L2_KEPT * target.l2_bytes, panel_bytes * (1 + prefetched) / tiles, 0.0
    )


@dataclass(frozen=True, eq=False)
class Panels:
    """The way of tiles through panels of weights."""

    tiles: Array
    """Tiles in a row that use a panel."""
    prefetched: Array
    """Whether the kernel asks for the next panel ahead of time."""
    times: Array
    """How often a thread goes through all of its panels."""
    in_flight: Array
    """Lines of a panel within the instructions that the core looks ahead."""


def lines_in_flight(mr: Array, nv: Array, row_bytes: Array, target: CpuTarget) -> Array:
    """Lines that a core asks for by looking ahead, when a step of a tile reads so many bytes."""
    return IN_FLIGHT / (mr * nv + mr + nv) * row_bytes / target.line_bytes


def from_far(busy: Array, nbytes: Array, panels: Panels, target: CpuTarget, threads: int) -> Array:
    """Cycles of a thread that is busy so long and reads so many bytes from beyond its caches."""
    rates = rates_of(target)
    shared = target.constant("l3_shared_bytes_per_ns") / rates.clock / threads
    arrival = nbytes / min(rates.l3_bytes, shared)
    felt = np.where(panels.prefetched, target.constant("hinted_felt"), target.constant("far_felt"))
    return awaited(busy, arrival, panels.tiles, panels.prefetched, felt)


def with_weights(
    ns: Array, nbytes: Array | float, target: CpuTarget, threads: int, panels: Panels | None = None
) -> Array:
    """The time of work that reads so many bytes of weights from memory, and then again from nearby;
    without panels, once."""
    alone = target.constant("core_memory_bytes_per_ns")
    arrival = nbytes / min(alone * threads, target.constant("memory_bytes_per_ns"))
    there = max(HELD_UP, target.constant("memory_felt"))
    if panels is None:
        return overlapped(ns, arrival, there)
    first = ns / panels.times
    # Where one or two tiles use a panel, the next one streams in behind it without a pause: little
    # of that is felt by tiles that wait for memory anyway, and more by those that are busy and look
    # ahead over few lines.
    steady = np.minimum(1.0, (1 - 1 / panels.tiles) / (1 - 1 / STEADY_TILES))
    busy = np.minimum(1.0, first / np.maximum(arrival, 1e-9)) ** 3
    # The last cache is near enough for what any tile has in flight.
    short = 0.0 if _is_near(target) else 2 * (1 - panels.in_flight / STREAMING)
    unasked = np.maximum(there * (steady + (1 - steady) * busy), short * busy)
    felt = np.where(panels.prefetched, target.constant("memory_hinted_felt"), unasked)
    felt = np.maximum(HELD_UP, felt)
    return ns - first + awaited(first, arrival, panels.tiles, panels.prefetched, felt)


def awaited(
    busy: Array, arrival: Array | float, tiles: Array | int, prefetched: Array | bool,
    felt: Array | float,
) -> Array:  # fmt: skip
    """The time of tiles, of which so many in a row use a panel that has to arrive first.

    It arrives while the first of them is computed, and the others follow; or, where the kernel asks
    for it ahead of time, while all tiles of the panel before are.
    """
    meanwhile = np.where(prefetched, busy, busy / tiles)
    result: Array = busy - meanwhile + np.maximum(meanwhile, arrival)
    return result + felt * np.minimum(busy, arrival)
