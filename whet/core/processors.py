"""Processors that this process may use, and which of them are threads of one core.

Linux calls every hardware thread a processor.  Two of a core share its vector unit, so that work
on both of them is hardly faster than on one; cores of one machine may differ in speed.  Where the
topology is hidden, as in some containers, every processor counts as a core.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from whet.core.containers import ROOT, read_text, within_quota

_SPEED_FILES = ("cpu_capacity", "cpufreq/cpuinfo_max_freq")
"""What tells faster cores from slower ones: the first is there on ARM, the second on most."""


def usable_cores(root: Path = ROOT) -> int:
    """Cores that this process may keep busy: under its affinity, and within a container's quota."""
    return within_quota(len(cores_of(os.sched_getaffinity(0), root)), root)


def cores_of(processors: Iterable[int], root: Path = ROOT) -> tuple[tuple[int, ...], ...]:
    """The given processors by core, in order of their numbers."""
    cores: dict[object, list[int]] = {}
    for n in sorted(processors):
        siblings = read_text(_folder(n, root) / "topology/thread_siblings_list")
        cores.setdefault(siblings or n, []).append(n)
    return tuple(map(tuple, cores.values()))


def pinning_order(processors: Iterable[int], root: Path = ROOT) -> tuple[int, ...]:
    """The given processors in the order in which threads get them.

    One of every core first, the fastest cores before the others; then the second one of every
    core that has two, and so on.
    """
    cores = cores_of(processors, root)
    fastest_first = sorted(cores, key=lambda core: -_speed(core[0], root))
    rounds = zip_longest(*fastest_first)
    return tuple(n for turn in rounds for n in turn if n is not None)


def _speed(processor: int, root: Path) -> int:
    """A measure to compare the machine's processors by; 0 where it is unknown."""
    for name in _SPEED_FILES:
        text = read_text(_folder(processor, root) / name)
        if text.isdigit():
            return int(text)
    return 0


def _folder(processor: int, root: Path) -> Path:
    return root / f"sys/devices/system/cpu/cpu{processor}"
