"""What a core of a target does per cycle, from its constants: the unit of the analytic models.

Models count in cycles, because most overheads are numbers of instructions, and turn cycles into
nanoseconds at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from whet.core.target import Target
from whet.core.types import Array


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
    broadcasts: float
    """Numbers loaded into all lanes of a vector."""
    loads: float
    """Vectors of up to 256 bits loaded from the first cache."""
    l1_bytes: float
    l2_bytes: float
    l3_bytes: float
    copied_bytes: float
    """Read and written when memory is copied."""

    def passes(self, lanes: Array, bits: int) -> Array:
        """Slots of an operation on so many lanes."""
        width = np.asarray(lanes) * bits
        wide = np.maximum(1.0, width / 512 * self.wide_slots)
        return np.where(width > 256, wide, 1.0)


@lru_cache(maxsize=64)
def rates_of(target: Target) -> Rates:
    clock = target.constant("cycles_per_ns")
    narrow, wide = target.constant("fma_per_ns_256"), target.constant("fma_per_ns_512")
    return Rates(
        clock=clock,
        operations=narrow / clock,
        wide_slots=narrow / wide,
        latency=target.constant("fma_latency_ns") * clock,
        broadcasts=target.constant("broadcasts_per_ns") / clock,
        loads=target.constant("l1_bytes_per_ns") / 32 / clock,
        l1_bytes=target.constant("l1_bytes_per_ns") / clock,
        l2_bytes=target.constant("l2_bytes_per_ns") / clock,
        l3_bytes=target.constant("l3_bytes_per_ns") / clock,
        copied_bytes=target.constant("copy_bytes_per_ns") / clock,
    )
