"""The machine that code is made for: vector unit, caches, cores, and what was measured on it.

`detect` describes this machine from what Linux says about it; `PRESETS` describes kinds of
machines by name.  `named_target` gives the one that a name means here, and `with_measured` adds
the constants that were measured on it earlier, which live in the cache.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

from whet.core.caching import FileCache
from whet.core.constants import CONSTANTS
from whet.core.digest import digest_text
from whet.core.errors import UsageError, WhetError, fail
from whet.core.host import Host, read_host
from whet.core.kinds import nearest_kind
from whet.core.target import target_fields

KIB, MIB = 1 << 10, 1 << 20
_LANES_256, _LANES_512 = 8, 16


@dataclass(frozen=True)
class CpuTarget:
    """A CPU as the kernel search and the code generator see it."""

    kind: ClassVar[str] = "cpu"
    """The kind of machine, by which sketches and code generators are found."""

    name: str
    """What to call it in reports: the processor's own name or a preset's."""
    triple: str
    cpu: str
    """An LLVM processor name; `features` lists what the machine has beyond its baseline."""
    features: tuple[str, ...]
    vector_bits: int
    vector_registers: int
    cores: int
    """Physical cores that this process may use."""
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    """Caches as one core sees them; 0 where there is none."""
    line_bytes: int
    calibration: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Constants measured on the machine, by name; empty until they are measured."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "calibration", MappingProxyType(dict(self.calibration)))

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.cores} cores, {self.vector_registers} vector registers of "
            f"{self.vector_bits} bits, L1d {self.l1d_bytes // KIB} KiB, "
            f"L2 {self.l2_bytes // KIB} KiB, L3 {self.l3_bytes // KIB} KiB"
        )

    def lanes(self, bits: int) -> int:
        """The number of elements of that many bits in a vector register."""
        return self.vector_bits // bits

    @property
    def architecture(self) -> str:
        return self.triple.split("-")[0]

    @cached_property
    def key(self) -> str:
        """A digest of what the machine is, without what was measured on it."""
        return digest_text(dataclasses.replace(self, calibration={}).to_json())

    def constant(self, name: str) -> float:
        """One of `CONSTANTS`: as measured here, else on the nearest kind of machine, else its
        default."""
        known = self.calibration.get(name)
        return self._typical.get(name, CONSTANTS[name].default) if known is None else known

    def origin(self, name: str) -> str:
        """The origin of a constant: measured here, measured on a similar machine, or a default."""
        if name in self.calibration:
            return "measured"
        return "similar" if name in self._typical else "default"

    @cached_property
    def _typical(self) -> Mapping[str, float]:
        kind = nearest_kind(self.name, self.vector_bits)
        return {} if kind is None else kind.constants(self.cores)

    @property
    def is_calibrated(self) -> bool:
        """Whether all constants have been measured."""
        return CONSTANTS.keys() <= self.calibration.keys()

    def calibrated(self, **constants: float) -> CpuTarget:
        """The target with these measured constants added or replaced."""
        return dataclasses.replace(self, calibration={**self.calibration, **constants})

    def missing_on(self, machine: CpuTarget) -> tuple[str, ...]:
        """Features that code for this target needs and the machine does not have."""
        if self.triple != machine.triple:
            return (self.architecture,)
        return tuple(f for f in self.features if f not in machine.features)

    def roofline(self, operations: float, nbytes: int, threads: int) -> float:
        """The larger of so many operations, two in a multiply-add, and so many bytes moved.

        Data that fits the last-level cache is taken to come from there, because other kernels have
        just made it.
        """
        cores = min(threads, self.cores)
        multiply_adds = max(
            self.constant("fma_per_ns_256") * _LANES_256,
            self.constant("fma_per_ns_512") * _LANES_512 if self.vector_bits >= 512 else 0.0,
        )
        inside = nbytes <= self.l3_bytes
        rate = self.constant("l3_bytes_per_ns" if inside else "copy_bytes_per_ns")
        # Memory is shared by the cores, caches serve each core by itself.
        moved = nbytes / (rate * (cores if inside else 1))
        return 1e-9 * max(operations / (2 * multiply_adds * cores), moved)

    def to_json(self) -> str:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return json.dumps({**fields, "calibration": dict(self.calibration)}, indent=1)


def cpu_from_fields(data: Mapping[str, Any]) -> CpuTarget:
    """The target that `to_json` described; `WH1003` if the fields are something else."""
    values: dict[str, Any] = {}
    for f in dataclasses.fields(CpuTarget):
        value: Any = data.get(f.name)
        if not _FITS[f.type](value):
            fail("WH1003", f"'{f.name}' of a target cannot be {value!r}")
        values[f.name] = tuple(value) if f.name == "features" else value
    return CpuTarget(**values)


_FITS: Mapping[Any, Any] = {
    "str": lambda v: isinstance(v, str),
    "int": lambda v: type(v) is int and v >= 0,
    "tuple[str, ...]": lambda v: isinstance(v, list) and all(isinstance(x, str) for x in v),
    "Mapping[str, float]": lambda v: (
        isinstance(v, dict) and all(type(x) in (int, float) for x in v.values())
    ),
}
"""Whether a JSON value fits a field, by the field's declared type."""


# -------------------------------------------------------------------------------- this machine
_X86_FEATURES = {
    "pni": "sse3", "ssse3": "ssse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "popcnt": "popcnt",
    "avx": "avx", "f16c": "f16c", "fma": "fma", "avx2": "avx2", "bmi1": "bmi", "bmi2": "bmi2",
    "abm": "lzcnt", "movbe": "movbe", "avx_vnni": "avxvnni", "avx512f": "avx512f",
    "avx512cd": "avx512cd", "avx512bw": "avx512bw", "avx512dq": "avx512dq",
    "avx512vl": "avx512vl", "avx512_vnni": "avx512vnni", "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16", "amx_tile": "amx-tile", "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
}  # fmt: skip
_ARM_FEATURES = {
    "asimd": "neon", "asimdhp": "fullfp16", "asimddp": "dotprod", "i8mm": "i8mm", "bf16": "bf16",
    "sve": "sve",
}  # fmt: skip
"""The kernel's name of each feature that code generation can use, and LLVM's name of it."""

_X86_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("x86-64-v4", frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
    ("x86-64-v3", frozenset({"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"})),
    ("x86-64-v2", frozenset({"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"})),
)
"""The levels of the x86-64 psABI, newest first, with what each adds to the one below."""


def detect(host: Host | None = None) -> CpuTarget:
    """This machine (or the given description of one), without measured constants."""
    host = host or read_host()
    if host.architecture == "x86_64":
        features = _translate(host.flags, _X86_FEATURES)
        cpu = _x86_level(frozenset(features))
        bits, registers = _x86_vectors(frozenset(features))
    elif host.architecture == "aarch64":
        features = _translate(host.flags, _ARM_FEATURES)
        cpu, bits, registers = "generic", 128, 32
    else:
        fail("WH1002", f"processors of type '{host.architecture}' are not supported",
             hint=f"name a preset: {', '.join(PRESETS)}", kind=UsageError)  # fmt: skip
    return CpuTarget(
        name=host.model,
        triple=f"{host.architecture}-unknown-linux-gnu",
        cpu=cpu,
        features=features,
        vector_bits=bits,
        vector_registers=registers,
        cores=host.cores,
        l1d_bytes=host.caches.get(1, 32 * KIB),
        l2_bytes=host.caches.get(2, 512 * KIB),
        l3_bytes=host.caches.get(3, 0),
        line_bytes=host.line_bytes,
    )


def _translate(flags: frozenset[str], names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(llvm for kernel, llvm in names.items() if kernel in flags)


def _x86_level(features: frozenset[str]) -> str:
    needed: frozenset[str] = frozenset()
    found = "x86-64"
    for level, added in reversed(_X86_LEVELS):
        needed |= added
        if needed <= features:
            found = level
    return found


def _x86_vectors(features: frozenset[str]) -> tuple[int, int]:
    """Width and number of the vector registers."""
    if {"avx512f", "avx512vl"} <= features:
        return 512, 32
    return (256, 16) if "avx2" in features else (128, 16)


def with_measured(found: CpuTarget, cache: FileCache) -> CpuTarget:
    """The target with the constants that the cache has for it; a stored description counts only
    if it is of the same machine."""
    stored = cache.get("target", found.key)
    if stored is not None:
        try:
            known = cpu_from_fields(target_fields(stored))
        except WhetError:
            known = None  # of another version of whet: describe the machine anew
        if known is not None and known.key == found.key:
            return known
    cache.put("target", found.key, found.to_json().encode())
    return found


def remember(target: CpuTarget, cache: FileCache) -> None:
    """Keep the target's measured constants for later `with_measured` calls."""
    cache.put("target", target.key, target.to_json().encode())


# ------------------------------------------------------------------------------------- presets
def _x86_preset(cpu: str, bits: int, registers: int) -> CpuTarget:
    flags = set().union(*(added for level, added in _X86_LEVELS if level <= cpu))
    names = tuple(name for name in _X86_FEATURES.values() if name in flags)
    return CpuTarget(cpu, "x86_64-unknown-linux-gnu", cpu, names, bits, registers,
                  4, 32 * KIB, 512 * KIB, 16 * MIB, 64)  # fmt: skip


PRESETS: Mapping[str, CpuTarget] = {
    "x86-64-v2": _x86_preset("x86-64-v2", 128, 16),
    "x86-64-v3": _x86_preset("x86-64-v3", 256, 16),
    "x86-64-v4": _x86_preset("x86-64-v4", 512, 32),
    "aarch64-neon": CpuTarget(
        name="aarch64-neon",
        triple="aarch64-unknown-linux-gnu",
        cpu="generic",
        features=("neon",),
        vector_bits=128,
        vector_registers=32,
        cores=4,
        l1d_bytes=64 * KIB,
        l2_bytes=512 * KIB,
        l3_bytes=4 * MIB,
        line_bytes=64,
    ),
}
"""Typical machines of a kind, to make code for without having one."""


HERE = "cpu"
"""The name of this machine."""
TARGET_NAMES = (HERE, *PRESETS)


def named_target(name: str, host: Host | None = None) -> CpuTarget:
    """The target called `name`, without measured constants.

    `cpu` is this machine.  The name of a preset is this machine as well, held back to what the
    preset has, if that is possible: its own caches and cores, so that what is built runs here
    and can be measured.  Otherwise it is a typical machine of the kind, to build for alone.
    """
    if name == HERE:
        return detect(host)
    if name not in PRESETS:
        fail("WH1002", f"no target is named '{name}'",
             hint=f"targets are {', '.join(TARGET_NAMES)}", kind=UsageError)  # fmt: skip
    level = PRESETS[name]
    try:
        machine = detect(host)
    except UsageError:  # a processor that whet does not know can still build for others
        return level
    return level if level.missing_on(machine) else held_back(machine, level)


def held_back(machine: CpuTarget, level: CpuTarget) -> CpuTarget:
    """The machine without what the level lacks.

    AVX-512, 8 cores; x86-64-v3   ->   16 registers of 256 bits, 8 cores
    """
    if level.features == machine.features:
        return machine
    return dataclasses.replace(
        machine,
        name=f"{machine.name} as {level.name}",
        cpu=level.cpu,
        features=level.features,
        vector_bits=level.vector_bits,
        vector_registers=level.vector_registers,
        calibration={},
    )
