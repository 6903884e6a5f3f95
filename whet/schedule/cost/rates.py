"""Rates of a core per cycle, from the constants of its target: the unit of the analytic models.

Models count in cycles, because most overheads are numbers of instructions, and turn cycles into
nanoseconds at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.schedule.cost.numbers.vectors import CHAIN_SLACK, MASKED_STORE_CYCLES


@dataclass(frozen=True, slots=True)
class Rates:
    """Per cycle of one core, unless it says otherwise."""

    clock: float
    """Cycles per nanosecond."""
    operations: float
    """Multiply-adds, or other operations, on vectors of up to 256 bits."""
    wide_slots: float
    """How many such operations take as long as one on a vector of 512 bits."""
    latency: float
    """Cycles from an operation to one that needs its result."""
    loads: float
    """Loads of vectors of up to 256 bits, or of a number into all lanes of any vector."""
    wide_loads: float
    """How many such loads take as long as one of 512 bits."""
    l1_bytes: float
    l2_bytes: float
    l3_bytes: float
    copied_bytes: float
    """Read and written when memory is copied."""
    masked_store: float
    """Cycles that a store takes longer which leaves lanes out."""

    def passes(self, lanes: Array, bits: int) -> Array:
        """Operations of up to 256 bits that one on so many lanes amounts to."""
        return _slots(lanes, bits, self.wide_slots)

    def tile_step(self, mr: Array, nv: Array, lanes: Array, bits: int) -> Array:
        """Cycles of a step of a register tile's sum: mr numbers times nv vectors.

        Broadcasts feed operations straight from memory where the set has that form.
        """
        operations = mr * nv * self.passes(lanes, bits) / self.operations
        loads = (mr + nv * self.load_passes(lanes, bits)) / self.loads
        return np.maximum(np.maximum(operations, loads), CHAIN_SLACK * self.latency)

    def load_passes(self, lanes: Array, bits: int) -> Array:
        """Loads of up to 256 bits that one of so many lanes amounts to."""
        return _slots(lanes, bits, self.wide_loads)


def _slots(lanes: Array, bits: int, wide: float) -> Array:
    width = np.asarray(lanes) * bits
    return np.where(width > 256, np.maximum(1.0, width / 512 * wide), 1.0)


@lru_cache(maxsize=64)
def rates_of(target: CpuTarget) -> Rates:
    clock = target.constant("cycles_per_ns")
    narrow, wide = target.constant("fma_per_ns_256"), target.constant("fma_per_ns_512")
    loads, l1_bytes = target.constant("broadcasts_per_ns"), target.constant("l1_bytes_per_ns")
    return Rates(
        clock=clock,
        operations=narrow / clock,
        wide_slots=narrow / wide,
        latency=target.constant("fma_latency_ns") * clock,
        loads=loads / clock,
        wide_loads=loads * (512 // 8) / l1_bytes,
        l1_bytes=l1_bytes / clock,
        l2_bytes=target.constant("l2_bytes_per_ns") / clock,
        l3_bytes=target.constant("l3_bytes_per_ns") / clock,
        copied_bytes=target.constant("copy_bytes_per_ns") / clock,
        masked_store=0.0 if "avx512vl" in target.features else MASKED_STORE_CYCLES,
    )
