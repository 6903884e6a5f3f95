"""Blocks on processors: how many of them one holds at once, and how many the busiest one gets."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from whet.core.gpu import GpuTarget
from whet.core.types import Array

BLOCK_LIMIT = 32
"""Blocks that a processor holds at most."""
SYSTEM_BYTES = 1024
"""Shared memory of a block that the system takes."""
REGISTER_GRAIN = 8
"""Registers of a thread are given in multiples of this."""
PARTS = 8
"""Groups of processors; the blocks of a cluster are in one of them."""
PAIR = 2
"""Processors come in pairs; a cluster of no more blocks finds room anywhere."""


class Demand(Protocol):
    """What a block takes of a processor, a column each."""

    @property
    def threads(self) -> Array: ...

    @property
    def shared(self) -> Array:
        """Bytes of shared memory."""

    @property
    def registers(self) -> Array:
        """Registers of a thread."""


def blocks_beside(block: Demand, target: GpuTarget) -> Array:
    """Blocks that a processor holds at once."""
    registers = -(-block.registers // REGISTER_GRAIN) * REGISTER_GRAIN
    by_shared = target.shared_bytes_per_processor // (block.shared + SYSTEM_BYTES)
    by_registers = target.registers_per_processor // (registers * block.threads)
    by_threads = target.threads_per_processor // block.threads
    held = np.minimum(np.minimum(by_shared, by_registers), np.minimum(by_threads, BLOCK_LIMIT))
    return np.maximum(held, 1)


def busiest(blocks: Array, cluster: Array, target: GpuTarget) -> Array:
    """Blocks that the processor with the most of them gets, if it holds them all.

        128 blocks on 132 processors    clusters of 2    1
                                        clusters of 8    2: seven groups of 16 processors take two
                                                         clusters each, the eighth one

    So it was on the H200 whose kernels `bench/gpu_law.py` reads: 14 clusters of 8 blocks, 28 of 4
    and 6 of 16 took as long as one wave, and 16, 32 and 8 of them as long as two.
    """
    sizes = part_sizes(target)
    clusters = -(-blocks // cluster)
    together = cluster > PAIR

    def room(each: Array) -> Array:
        """Clusters that find room if every processor takes so many blocks."""
        inside = sum(size * each // cluster for size in sizes)
        return np.where(together, inside, target.processors * each // cluster)

    each = np.maximum(-(-blocks // target.processors), 1)
    while (short := room(each) < clusters).any():
        each = each + short
    return each


def part_sizes(target: GpuTarget) -> list[int]:
    """Processors of every group: equally many pairs, and in the last group one pair less."""
    whole = max(target.processors // (PARTS * PAIR), 1) * PAIR
    return [whole] * (PARTS - 1) + [whole - PAIR]
