"""Kinds of processors that were measured: constants for machines that were not, or not yet.

The figures are rounded from two or three runs of `whet target --measure` on one machine of each
kind, mid November 2026: two cores of Zen 4, and 16 virtual ones of a Xeon that others used as
well.  What all cores of Zen 4 read from their last cache is not measured but reckoned, for eight
that share one, from what two read (195 bytes per ns).  What depends on the number of cores more
than on the kind (handing work to threads) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SHARED = {"memory_bytes_per_ns": "core_memory_bytes_per_ns",
          "l3_shared_bytes_per_ns": "l3_bytes_per_ns"}  # fmt: skip
"""Rates of all cores together, and what one of them reaches alone."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of processor, by a word of the names that such processors give themselves."""

    name: str
    vendor: str
    vector_bits: int
    measured: Mapping[str, float]

    def constants(self, cores: int) -> dict[str, float]:
        """The constants for a machine with so many cores, which may be too few for all rates."""
        found = dict(self.measured)
        for together, alone in SHARED.items():
            found[together] = min(found[together], cores * found[alone])
        return found


KINDS = (
    Kind("Zen 4", "AMD", 512, {
        "cycles_per_ns": 3.69, "fma_per_ns_256": 7.37, "fma_per_ns_512": 3.69,
        "fma_latency_ns": 1.08, "broadcasts_per_ns": 7.2, "l1_bytes_per_ns": 215.0,
        "l2_bytes_per_ns": 118.0, "l3_bytes_per_ns": 99.4, "core_memory_bytes_per_ns": 33.0,
        "memory_bytes_per_ns": 63.0, "copy_bytes_per_ns": 32.0, "l3_shared_bytes_per_ns": 800.0,
        "l2_felt": 0.02, "far_felt": 0.0, "hinted_felt": 0.0, "memory_felt": 0.47,
        "memory_hinted_felt": 0.35, "hint_ns": 0.0, "apart_ns": 0.0,
    }),
    # Asking ahead of time costs nothing here, but a lot on older ones (Zen 3): the default stays.
    Kind("Zen 4 without AVX-512", "AMD", 256, {
        "cycles_per_ns": 3.69, "fma_per_ns_256": 7.37, "fma_latency_ns": 1.08,
        "broadcasts_per_ns": 7.23, "l1_bytes_per_ns": 222.0, "l2_bytes_per_ns": 118.0,
        "l3_bytes_per_ns": 100.0, "core_memory_bytes_per_ns": 34.0, "memory_bytes_per_ns": 63.0,
        "copy_bytes_per_ns": 36.0, "l3_shared_bytes_per_ns": 800.0, "l2_felt": 0.01,
        "far_felt": 0.05, "hinted_felt": 0.05, "memory_felt": 0.89, "memory_hinted_felt": 0.43,
        "apart_ns": 0.0,
    }),
    Kind("Sapphire Rapids or later", "Intel(R) Xeon", 512, {
        "cycles_per_ns": 2.97, "fma_per_ns_256": 5.8, "fma_per_ns_512": 5.5,
        "fma_latency_ns": 1.36, "broadcasts_per_ns": 5.1, "l1_bytes_per_ns": 311.0,
        "l2_bytes_per_ns": 124.0, "l3_bytes_per_ns": 26.0, "core_memory_bytes_per_ns": 14.3,
        "memory_bytes_per_ns": 235.0, "copy_bytes_per_ns": 11.4, "l3_shared_bytes_per_ns": 290.0,
        "l2_felt": 0.2, "far_felt": 0.5, "hinted_felt": 0.1, "memory_felt": 1.4,
        "memory_hinted_felt": 0.39, "hint_ns": 0.09, "apart_ns": 5.2,
    }),
    Kind("Sapphire Rapids or later, without AVX-512", "Intel(R) Xeon", 256, {
        "cycles_per_ns": 2.9, "fma_per_ns_256": 5.4, "fma_latency_ns": 1.45,
        "broadcasts_per_ns": 4.5, "l1_bytes_per_ns": 127.0, "l2_bytes_per_ns": 80.0,
        "l3_bytes_per_ns": 25.0, "core_memory_bytes_per_ns": 12.0, "memory_bytes_per_ns": 190.0,
        "copy_bytes_per_ns": 10.5, "l3_shared_bytes_per_ns": 285.0, "l2_felt": 0.2,
        "far_felt": 0.6, "hinted_felt": 0.3, "hint_ns": 0.2, "apart_ns": 3.4,
    }),
)  # fmt: skip


def nearest_kind(processor: str, vector_bits: int) -> Kind | None:
    """The kind of a processor that calls itself so; None if none like it was measured."""
    near = (k for k in KINDS if processor.startswith(k.vendor) and k.vector_bits == vector_bits)
    return next(near, None)
