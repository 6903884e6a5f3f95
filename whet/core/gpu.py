"""NVIDIA GPUs as targets: what sketches, prices and the code generator ask about one.

`PRESETS` describes kinds by the architecture that code is made for; `whet.build.cuda.detect`
describes the one in this machine.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from whet.core.digest import digest_text
from whet.core.errors import fail
from whet.core.precision import PRECISIONS, STRICT

KIB, MIB = 1 << 10, 1 << 20
SHARED_ALIGNMENT = 128
"""Buffers in the shared memory of a block begin at multiples of so many bytes."""
OLDEST_GENERATION = 80
"""Before it, memory is not copied to shared memory in the background."""
PORTABLE_CLUSTER = 8
"""Blocks of a cluster that every GPU with clusters can run together."""
_LARGE_CLUSTERS = frozenset({90, 100, 103})
"""Generations whose clusters can have 16 blocks."""
HERE = "cuda"
"""The name of the GPU in this machine."""


@dataclass(frozen=True)
class GpuTarget:
    """A GPU as the kernel search and the code generator see it."""

    kind: ClassVar[str] = "cuda"

    name: str
    architecture: str
    """What the compiler calls it: `sm_90a`."""
    processors: int
    """Streaming multiprocessors."""
    shared_bytes: int
    """Shared memory that one block may have."""
    shared_bytes_per_processor: int
    registers_per_processor: int
    threads_per_processor: int
    l2_bytes: int
    clock_ghz: float
    memory_gbs: float
    """Bytes that memory gives per nanosecond."""
    precision: str = STRICT
    """What numbers of single precision may be computed with: one of `PRECISIONS`."""

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.architecture}, {self.processors} processors at "
            f"{self.clock_ghz:.2f} GHz, {self.shared_bytes // KIB} KiB of shared memory per block, "
            f"L2 {self.l2_bytes // MIB} MiB, {self.memory_gbs:.0f} GB/s, {self.precision}"
        )

    @cached_property
    def generation(self) -> int:
        """The architecture as a number: 80, 90."""
        return architecture_number(self.architecture)

    @property
    def cluster_limit(self) -> int:
        """Blocks of a cluster at most; 1 where there are no clusters."""
        if self.generation in _LARGE_CLUSTERS:
            return 16
        return PORTABLE_CLUSTER if self.generation >= 90 else 1

    @property
    def has_dependent_launch(self) -> bool:
        """Whether a kernel can be launched before the one in front of it has ended."""
        return self.generation >= 90

    @cached_property
    def key(self) -> str:
        return digest_text(self.to_json())

    def constant(self, name: str) -> float:
        raise KeyError(name)

    def roofline(self, operations: float, nbytes: int, threads: int) -> float:
        """The larger of so many operations on single numbers and so many bytes moved."""
        rate = 2 * 128 * self.processors * self.clock_ghz * 1e9
        return max(operations / rate, nbytes / (self.memory_gbs * 1e9))

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind, **dataclasses.asdict(self)})


def architecture_number(architecture: str) -> int:
    """sm_90a -> 90"""
    found = re.fullmatch(r"sm_(\d+)[af]?", architecture)
    if found is None:
        fail("WH1003", f"'{architecture}' is no architecture of a GPU")
    return int(found[1])


def gpu_from_fields(fields: Mapping[str, Any]) -> GpuTarget:
    """The GPU that `to_json` described; `WH1003` if the fields are something else."""
    known = {f.name: f.type for f in dataclasses.fields(GpuTarget)}
    given = {name: value for name, value in fields.items() if name != "kind"}
    kinds: dict[Any, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}
    for name, kind in known.items():
        if not isinstance(given.get(name), kinds[kind]) or isinstance(given[name], bool):
            fail("WH1003", f"the description of a GPU has no {name}")
    if given.keys() != known.keys():
        fail("WH1003", "the description of a GPU has fields that nobody knows")
    architecture_number(given["architecture"])
    if given["precision"] not in PRECISIONS:
        fail("WH1003", f"the description of a GPU has an unknown precision '{given['precision']}'")
    return GpuTarget(**given)


PRESETS: dict[str, GpuTarget] = {
    "cuda-sm_80": GpuTarget(
        "cuda-sm_80", "sm_80", 108, 163 * KIB, 164 * KIB, 65536, 2048, 40 * MIB, 1.41, 1555.0
    ),
    "cuda-sm_90a": GpuTarget(
        "cuda-sm_90a", "sm_90a", 132, 227 * KIB, 228 * KIB, 65536, 2048, 50 * MIB, 1.98, 4000.0
    ),
}
"""A100 and H100/H200."""
TARGET_NAMES = (HERE, *PRESETS)
