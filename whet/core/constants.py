"""Constants of a machine that the analytic models reckon with: names, meaning, defaults.

A `Target` carries the values that were measured; where there are none, the defaults hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MachineConstant:
    """A figure of a machine; a measurement outside of its limits is an accident."""

    default: float
    low: float
    high: float
    meaning: str


CONSTANTS: Mapping[str, MachineConstant] = {
    "cycles_per_ns": MachineConstant(3.3, 0.4, 8.0, "clock of a busy core"),
    "fma_per_ns_256": MachineConstant(
        6.6, 0.2, 40.0, "multiply-adds of vectors of up to 256 bits that a core starts"
    ),
    "fma_per_ns_512": MachineConstant(
        3.3, 0.2, 40.0, "multiply-adds of vectors of 512 bits that a core starts"
    ),
    "fma_latency_ns": MachineConstant(
        4.0 / 3.3, 0.2, 20.0, "from a multiply-add to the next one that needs its result"
    ),
    "broadcasts_per_ns": MachineConstant(
        6.6, 0.2, 40.0, "numbers that a core loads into all lanes of a vector"
    ),
    "l1_bytes_per_ns": MachineConstant(211.2, 4.0, 2000.0, "what a core reads from its L1"),
    "l2_bytes_per_ns": MachineConstant(105.6, 2.0, 1000.0, "what a core reads from its L2"),
    "l3_bytes_per_ns": MachineConstant(52.8, 1.0, 500.0, "what a core reads from L3"),
    "core_memory_bytes_per_ns": MachineConstant(20.0, 0.5, 200.0, "what a core reads from memory"),
    "memory_bytes_per_ns": MachineConstant(
        20.0, 0.5, 2000.0, "what all cores together read from memory"
    ),
    "copy_bytes_per_ns": MachineConstant(
        16.5, 0.5, 200.0, "what a core reads and writes when it copies memory"
    ),
    "l3_shared_bytes_per_ns": MachineConstant(
        200.0, 1.0, 10_000.0, "what all cores together read from L3"
    ),
    "l2_felt": MachineConstant(0.1, 0.0, 1.0, "part of a wait for L2 that a busy core feels"),
    "far_felt": MachineConstant(
        0.5, 0.0, 2.0, "part of a wait for what lies beyond L2 that a busy core feels"
    ),
    "hinted_felt": MachineConstant(
        0.2, 0.0, 2.0, "the same where the kernel asks for the data ahead of time"
    ),
    "memory_felt": MachineConstant(
        0.5, 0.0, 4.0, "part of a wait for weights in memory that a busy core feels"
    ),
    "memory_hinted_felt": MachineConstant(
        0.2, 0.0, 4.0, "the same where the kernel asks for them ahead of time"
    ),
    "hint_ns": MachineConstant(0.15, 0.0, 5.0, "what it costs to ask for a line ahead of time"),
    "apart_ns": MachineConstant(
        8.0, 0.0, 500.0, "to read a few lines, far from those before, that no near cache holds"
    ),
    "fork_join_ns": MachineConstant(
        1000.0, 100.0, 15_000.0, "to hand work to all cores and to get it back"
    ),
}
"""All of them by name.  Rates of vectors are those of one core, per nanosecond."""
