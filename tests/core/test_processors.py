"""Processors and cores of machines that are described by files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from whet.core.processors import cores_of, pinning_order, usable_cores


def machine(root: Path, files: Mapping[str, Mapping[int, str]]) -> Path:
    """A folder in which processor n has every named file with the text given for n."""
    for name, texts in files.items():
        for n, text in texts.items():
            path = root / f"sys/devices/system/cpu/cpu{n}/{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
    return root


SIBLINGS = "topology/thread_siblings_list"
NEIGHBOURS = {n: f"{n // 2 * 2}-{n // 2 * 2 + 1}" for n in range(8)}
"""Four cores with two threads each, numbered core by core."""
APART = {n: f"{n % 4},{n % 4 + 4}" for n in range(8)}
"""The same, numbered thread by thread."""


@pytest.mark.parametrize(
    ("siblings", "allowed", "cores", "order"),
    [
        (NEIGHBOURS, range(4), ((0, 1), (2, 3)), (0, 2, 1, 3)),
        (APART, range(8), ((0, 4), (1, 5), (2, 6), (3, 7)), tuple(range(8))),
        (APART, {0, 4, 5}, ((0, 4), (5,)), (0, 5, 4)),
        (APART, {6}, ((6,),), (6,)),
    ],
)
def test_one_processor_of_every_core_comes_first(
    tmp_path: Path,
    siblings: Mapping[int, str],
    allowed: set[int],
    cores: tuple[tuple[int, ...], ...],
    order: tuple[int, ...],
) -> None:
    root = machine(tmp_path, {SIBLINGS: siblings})
    assert cores_of(allowed, root) == cores
    assert pinning_order(allowed, root) == order


@pytest.mark.parametrize("speed", ["cpu_capacity", "cpufreq/cpuinfo_max_freq"])
def test_fast_cores_come_before_slow_ones(tmp_path: Path, speed: str) -> None:
    """Two slow cores, then two fast ones with two threads each."""
    siblings = {0: "0", 1: "1", 2: "2-3", 3: "2-3", 4: "4-5", 5: "4-5"}
    speeds = {0: "512", 1: "512", 2: "1024", 3: "1024", 4: "1024", 5: "1024"}
    root = machine(tmp_path, {SIBLINGS: siblings, speed: speeds})
    assert len(cores_of(range(6), root)) == 4
    assert pinning_order(range(6), root) == (2, 4, 0, 1, 3, 5)


@pytest.mark.parametrize("garbage", ["", "fast", "-1"])
def test_unreadable_speeds_count_as_equal(tmp_path: Path, garbage: str) -> None:
    root = machine(tmp_path, {SIBLINGS: APART, "cpu_capacity": dict.fromkeys(range(8), garbage)})
    assert pinning_order(range(8), root) == tuple(range(8))


def test_without_a_topology_every_processor_is_a_core(tmp_path: Path) -> None:
    assert cores_of({3, 5, 700}, tmp_path) == ((3,), (5,), (700,))
    assert pinning_order({3, 5, 700}, tmp_path) == (3, 5, 700)


def test_offline_siblings_leave_their_core(tmp_path: Path) -> None:
    """Linux takes a processor that goes offline out of affinities and of its siblings' lists."""
    root = machine(tmp_path, {SIBLINGS: {0: "0", 2: "2-3", 3: "2-3"}})
    assert cores_of({0, 2, 3}, root) == ((0,), (2, 3))


@pytest.mark.parametrize(("quota", "expected"), [("max 100000", 4), ("150000 100000", 2)])
def test_usable_cores_are_under_the_affinity_and_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    root = machine(tmp_path, {SIBLINGS: APART})
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cpu.max").write_text(quota)
    assert usable_cores(root) == expected
