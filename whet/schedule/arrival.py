"""Waiting for data while tiles are computed: what operands cost that come from further out.

A core computes and loads at once, so the longer of the two counts, and of the shorter one a part
that is felt all the same.  How large that part is depends on the machine, on how far away the data
is, and on whether the kernel asks for it ahead of time; all three are measured (see
`whet.build.calibrate`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whet.core.target import Target
from whet.core.types import Array
from whet.schedule.rates import rates_of
from whet.schedule.work import overlapped

KEPT = 0.6
"""The part of the second cache that data which is used again can count on."""
LAST_KEPT = 0.75
"""The same of the last cache."""


def from_second_cache(busy: Array, nbytes: Array, near: Array, target: Target) -> Array:
    """Cycles of tiles that take so long and each read so many bytes again.

    Where `near`, the bytes that tiles use meanwhile, fits the first cache, they wait for nothing.
    """
    arrival = np.where(near <= target.l1d_bytes * 0.75, 0.0, nbytes / rates_of(target).l2_bytes)
    return overlapped(busy, arrival, target.constant("l2_felt"))


@dataclass(frozen=True, eq=False)
class Share:
    """What one thread does of a rectangle of blocks of rows times chunks of columns, and reads.

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

    def far_bytes(self, target: Target) -> Array:
        """Bytes that come from beyond the second cache of the thread's core.

        What one thread computed last, and alone, is still there if it is small.  Weights count
        from the second time on: the first time is the same for all kernels (`with_weights`).
        """
        kept = KEPT * target.l2_bytes
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


def leaves_last_cache(nbytes: float, target: Target) -> bool:
    """Whether data of that size is gone from all caches when it is read again."""
    return nbytes > LAST_KEPT * target.l3_bytes


def from_far(busy: Array, nbytes: Array, hinted: Array, target: Target, threads: int) -> Array:
    """Cycles of a thread that is busy so long and reads so many bytes from beyond its caches."""
    rates = rates_of(target)
    shared = target.constant("l3_shared_bytes_per_ns") / rates.clock / threads
    arrival = nbytes / min(rates.l3_bytes, shared)
    felt = np.where(hinted, target.constant("hinted_felt"), target.constant("far_felt"))
    return overlapped(busy, arrival, felt)
