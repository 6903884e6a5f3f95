"""This machine as Linux describes it: processor, caches, and how much of it we may use."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from whet.core.containers import read_text
from whet.core.processors import usable_cores


@dataclass(frozen=True)
class Host:
    """Facts about a machine, in the kernel's words."""

    architecture: str
    model: str
    flags: frozenset[str]
    cores: int
    caches: Mapping[int, int]
    """Bytes of the data or unified cache of each level."""
    line_bytes: int


def read_host(root: Path = Path("/")) -> Host:
    """The machine whose /proc and /sys lie under `root`."""
    info = _first_processor(read_text(root / "proc/cpuinfo"))
    caches, line = _caches(root / "sys/devices/system/cpu/cpu0/cache")
    return Host(
        architecture=platform.machine(),
        model=info.get("model name", platform.machine()),
        flags=frozenset((info.get("flags") or info.get("Features", "")).split()),
        cores=usable_cores(root),
        caches=caches,
        line_bytes=line,
    )


def _first_processor(cpuinfo: str) -> dict[str, str]:
    """The `key : value` lines of the first processor."""
    lines = (line.partition(":") for line in cpuinfo.split("\n\n", 1)[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def _caches(folder: Path) -> tuple[dict[int, int], int]:
    """Size of each level's data or unified cache, and the line size."""
    sizes: dict[int, int] = {}
    line = 64
    for index in sorted(folder.glob("index*")):
        size = _bytes(read_text(index / "size"))
        level = read_text(index / "level")
        if read_text(index / "type") in ("Data", "Unified") and size and level.isdigit():
            sizes[int(level)] = size
            line = int(read_text(index / "coherency_line_size") or line)
    return sizes, line


def _bytes(text: str) -> int:
    """`32K` as 32768; 0 if it is not a size."""
    number = text.rstrip("KMG")
    if not number.isdigit():
        return 0
    return int(number) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)
