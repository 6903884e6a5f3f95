"""Limits of a container: processors and memory that control groups allow, of both versions.

A process is in one group per controller (version 1) or in one altogether (version 2), and every
group above it counts too.  Inside a container the path of the group may be that of the machine
around it, where it does not exist; its limits then stand at the top.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")


def usable_processors(root: Path = ROOT) -> int:
    """Processors that this process may keep busy: its affinity, and a container's quota."""
    return within_quota(len(os.sched_getaffinity(0)), root)


def within_quota(count: int, root: Path = ROOT) -> int:
    """So many processors or cores, but no more than a quota of time is worth."""
    quotas = list(_quotas(root))
    return max(1, min([count, *map(math.ceil, quotas)]))


def _quotas(root: Path) -> Iterator[float]:
    """Seconds of processors per second, of every group that limits them."""
    for group in _groups(root, "cpu"):
        quota, _, period = read_text(group / "cpu.max").partition(" ")
        if not quota:
            quota = read_text(group / "cpu.cfs_quota_us")
            period = read_text(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(quota) and int(period):
            yield int(quota) / int(period)


def usable_memory(root: Path = ROOT) -> int:
    """Bytes that this process can ever have: what is in the machine, and what limits allow."""
    limits = list(_memory_limits(root))
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed != resource.RLIM_INFINITY:
        limits.append(allowed)
    installed = _installed_memory(root)
    if installed:
        limits.append(installed)
    return min(limits, default=1 << 62)


def _memory_limits(root: Path) -> Iterator[int]:
    for group in _groups(root, "memory"):
        text = read_text(group / "memory.max") or read_text(group / "memory.limit_in_bytes")
        if text.isdigit():
            yield int(text)


def _installed_memory(root: Path) -> int:
    """Memory and swap space; 0 if that is hidden."""
    total = 0
    for line in read_text(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name in ("MemTotal", "SwapTotal"):
            total += int(value.split()[0]) * 1024
    return total


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the groups of this process that have to do with a controller."""
    top = root / "sys/fs/cgroup"
    for line in read_text(root / "proc/self/cgroup").splitlines() or ["0::/"]:
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        mounts = (top / controller, top / names) if names else (top, top / "unified")
        inner = PurePosixPath(path.lstrip("/"))
        for mount in dict.fromkeys(mounts):
            for group in (inner, *inner.parents):
                yield mount / group


def read_text(path: Path) -> str:
    """The file's contents; empty if it cannot be read (containers hide some of them)."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
