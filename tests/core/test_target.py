"""The description of the machine: detection, presets, cache, JSON."""

from __future__ import annotations

import dataclasses
import json
import re
import resource
from pathlib import Path

import pytest

from whet.build.backend import require_here
from whet.core import foreign
from whet.core.caching import FileCache
from whet.core.config import CacheConfig
from whet.core.containers import usable_memory, usable_processors, within_quota
from whet.core.cpu import (
    PRESETS,
    CpuTarget,
    detect,
    named_target,
    remember,
    with_measured,
)
from whet.core.errors import UsageError, WhetError
from whet.core.foreign import missing_here
from whet.core.host import Host, read_host
from whet.core.target import target_from_json

AVX2 = "sse sse2 pni ssse3 sse4_1 sse4_2 popcnt avx f16c fma avx2 bmi1 bmi2 abm movbe"
AVX512 = f"{AVX2} avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni"
HOST = Host("x86_64", "Test CPU", frozenset(AVX2.split()), 6, {1: 32768, 2: 1 << 20}, 64)


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(CacheConfig(dir=tmp_path / "whet"))


def test_this_machine_is_described() -> None:
    target = detect()
    assert target.cores >= 1
    assert target.vector_bits in (128, 256, 512)
    assert target.l1d_bytes >= 8192
    assert target.line_bytes in (32, 64, 128)


@pytest.mark.parametrize(
    ("architecture", "flags", "cpu", "bits", "registers"),
    [
        ("x86_64", "sse sse2", "x86-64", 128, 16),
        ("x86_64", AVX2, "x86-64-v3", 256, 16),
        ("x86_64", AVX512, "x86-64-v4", 512, 32),
        ("aarch64", "fp asimd asimddp", "generic", 128, 32),
    ],
)
def test_vector_units(architecture: str, flags: str, cpu: str, bits: int, registers: int) -> None:
    host = dataclasses.replace(HOST, architecture=architecture, flags=frozenset(flags.split()))
    target = detect(host)
    assert (target.cpu, target.vector_bits, target.vector_registers) == (cpu, bits, registers)


def test_features_have_the_names_of_llvm() -> None:
    features = detect(dataclasses.replace(HOST, flags=frozenset(AVX512.split()))).features
    assert {"sse4.2", "lzcnt", "bmi", "avx512vnni"} <= set(features)
    assert not any("_" in name for name in features)


def test_an_unknown_processor_is_refused() -> None:
    with pytest.raises(UsageError, match="WH1002 processors of type 'riscv64'"):
        detect(dataclasses.replace(HOST, architecture="riscv64"))


def fake_machine(root: Path, *, quota: str = "max 100000") -> Path:
    """A folder with the files that Linux has for a machine with two threads per core."""
    (root / "proc").mkdir(parents=True)
    (root / "proc/cpuinfo").write_text(
        "model name\t: Fake\nflags\t\t: fma avx2\n\nmodel name: No\n"
    )
    cpus = root / "sys/devices/system/cpu"
    for n in range(256):
        (cpus / f"cpu{n}/topology").mkdir(parents=True)
        (cpus / f"cpu{n}/topology/thread_siblings_list").write_text(
            f"{n // 2 * 2}-{n // 2 * 2 + 1}"
        )
    for n, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M")]
    ):
        index = cpus / f"cpu0/cache/index{n}"
        index.mkdir(parents=True)
        for name, text in {"level": level, "type": kind, "size": size}.items():
            (index / name).write_text(text + "\n")
        (index / "coherency_line_size").write_text("128\n")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cpu.max").write_text(quota)
    return root


def test_what_linux_says_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3, 6})
    host = read_host(fake_machine(tmp_path))
    assert host.model == "Fake"
    assert host.flags == {"fma", "avx2"}
    assert host.cores == 3
    assert host.caches == {1: 48 << 10, 2: 2 << 20}
    assert host.line_bytes == 128


def test_a_container_quota_limits_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(16)))
    assert read_host(fake_machine(tmp_path, quota="150000 100000")).cores == 2


CGROUP_FILES = {
    "version 2, at the top": ("0::/", {"cpu.max": "250000 100000"}),
    "version 2, own group": ("0::/a/b", {"a/b/cpu.max": "250000 100000"}),
    "version 2, a group above": (
        "0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000"},
    ),
    "version 2, path of the machine around": (
        "0::/docker/0a1b", {"cpu.max": "250000 100000"},
    ),
    "version 1": (
        "4:memory:/x\n2:cpu,cpuacct:/a",
        {"cpu/a/cpu.cfs_quota_us": "250000", "cpu/a/cpu.cfs_period_us": "100000"},
    ),
    "version 1, path of the machine around": (
        "2:cpu,cpuacct:/docker/0a1b",
        {"cpu,cpuacct/cpu.cfs_quota_us": "250000", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
    ),
    "both versions": (
        "1:cpu:/a\n0::/",
        {"cpu/a/cpu.cfs_quota_us": "250000", "cpu/a/cpu.cfs_period_us": "100000",
         "unified/cpu.max": "max 100000"},
    ),
}  # fmt: skip


def control_groups(root: Path, case: str) -> Path:
    groups, files = CGROUP_FILES[case]
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/cgroup").write_text(groups + "\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize("case", CGROUP_FILES)
def test_quotas_of_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(16)))
    root = control_groups(tmp_path, case)
    assert usable_processors(root) == 3
    assert within_quota(2, root) == 2
    assert read_host(root).cores == 3


@pytest.mark.parametrize("quota", ["max 100000", "-1", "0 100000", "", "garbage here"])
def test_no_quota_leaves_all_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(16)))
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text(quota)
    assert usable_processors(tmp_path) == 16


def test_memory_is_what_limits_leave_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda which: unlimited)
    assert usable_memory(tmp_path) == 1 << 62
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8000 kB\nMemFree: 1 kB\nSwapTotal: 500 kB\n")
    assert usable_memory(tmp_path) == 8500 * 1024
    (tmp_path / "proc/self/cgroup").write_text("3:memory:/a\n0::/\n")
    group = tmp_path / "sys/fs/cgroup/memory/a"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert usable_memory(tmp_path) == 8500 * 1024
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("5000000\n")
    assert usable_memory(tmp_path) == 5_000_000
    (group / "memory.limit_in_bytes").write_text("4000000\n")
    assert usable_memory(tmp_path) == 4_000_000
    monkeypatch.setattr(resource, "getrlimit", lambda which: (3_000_000, 9))
    assert usable_memory(tmp_path) == 3_000_000


def test_hidden_files_leave_sensible_defaults(tmp_path: Path) -> None:
    host = read_host(tmp_path)
    assert host.cores >= 1
    assert detect(dataclasses.replace(host, architecture="x86_64")).l1d_bytes == 32768


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_json(name: str) -> None:
    target = PRESETS[name].calibrated(peak_gflops=12.5)
    assert target_from_json(target.to_json()) == target
    assert target.calibration == {"peak_gflops": 12.5}
    assert target.key == PRESETS[name].key
    assert hash(target) == hash(target_from_json(target.to_json()))


KEYS = {
    "x86-64-v2": "640803abfff8be78db5c981ae7d7e16a",
    "x86-64-v3": "7180e3002ff0c43793b1a788a4da2bc0",
    "x86-64-v4": "a007409df5b98cdacff2b2b2f47dbf56",
    "aarch64-neon": "ece3f5526da7cf0bc9eee6d10a2647f2",
}


def test_keys_stay_as_they_are() -> None:
    """They are in records and artifacts: another key would forget all of them."""
    assert {name: target.key for name, target in PRESETS.items()} == KEYS


def test_presets_have_the_features_of_their_level() -> None:
    assert "avx2" in PRESETS["x86-64-v3"].features
    assert "avx512f" not in PRESETS["x86-64-v3"].features
    assert "avx512f" in PRESETS["x86-64-v4"].features
    assert PRESETS["x86-64-v4"].lanes(32) == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cores": "two"}, "'cores' of a target cannot be 'two'"),
        ({"cores": -1}, "'cores' of a target cannot be -1"),
        ({"features": "avx2"}, "'features' of a target cannot be 'avx2'"),
        ({"calibration": {"a": "b"}}, "'calibration' of a target cannot be {'a': 'b'}"),
        ({"name": None}, "'name' of a target cannot be None"),
    ],
)
def test_damaged_json_is_refused(change: dict[str, object], message: str) -> None:
    data = {**json.loads(PRESETS["x86-64-v3"].to_json()), **change}
    with pytest.raises(WhetError, match=re.escape(f"WH1003 {message}")):
        target_from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_what_is_no_description_is_refused(text: str) -> None:
    with pytest.raises(WhetError, match="WH1003"):
        target_from_json(text)


def test_measured_constants_are_remembered(cache: FileCache) -> None:
    first = with_measured(detect(HOST), cache)
    assert first.calibration == {}
    remember(first.calibrated(peak_gflops=100.0), cache)
    assert with_measured(detect(HOST), cache).calibration == {"peak_gflops": 100.0}
    assert with_measured(detect(dataclasses.replace(HOST, cores=3)), cache).calibration == {}


def test_a_damaged_description_is_detected_anew(cache: FileCache) -> None:
    target: CpuTarget = with_measured(detect(HOST), cache)
    cache.put("target", target.key, b'{"from": "another version"}')
    assert with_measured(detect(HOST), cache) == target
    (cache.config.dir / "target" / target.key).write_bytes(b"garbage")
    assert with_measured(detect(HOST), cache) == target


# --------------------------------------------------------------------------------------- by name
WIDE_HOST = dataclasses.replace(HOST, flags=frozenset(AVX512.split()))


def test_targets_are_found_by_name(cache: FileCache) -> None:
    assert with_measured(named_target("cpu", HOST), cache) == detect(HOST)
    with pytest.raises(UsageError, match="WH1002 no target is named 'gpu'"):
        named_target("gpu")


@pytest.mark.parametrize(
    ("name", "bits", "registers", "has", "lacks"),
    [
        ("x86-64-v2", 128, 16, "sse4.2", "avx"),
        ("x86-64-v3", 256, 16, "avx2", "avx512f"),
        ("x86-64-v4", 512, 32, "avx512bw", "avx512vnni"),
    ],
)
def test_a_level_below_this_machine_is_this_machine_held_back(
    name: str, bits: int, registers: int, has: str, lacks: str
) -> None:
    machine, target = detect(WIDE_HOST), named_target(name, WIDE_HOST)
    assert (target.cpu, target.vector_bits, target.vector_registers) == (name, bits, registers)
    assert has in target.features
    assert lacks not in target.features
    assert (target.cores, target.l1d_bytes, target.l2_bytes) == (6, 32768, 1 << 20)
    assert target.name == f"Test CPU as {name}"
    assert len({target.key, machine.key, PRESETS[name].key}) == 3
    assert not target.missing_on(machine)


def test_a_level_that_is_this_machine_changes_nothing() -> None:
    """Records of `cpu` are those of its own level."""
    assert named_target("x86-64-v3", HOST) == detect(HOST)
    assert named_target("x86-64-v3", WIDE_HOST) != detect(WIDE_HOST)


@pytest.mark.parametrize("name", ["x86-64-v4", "aarch64-neon"])
def test_a_level_above_this_machine_is_a_typical_one(name: str) -> None:
    assert named_target(name, HOST) is PRESETS[name]


def test_an_unknown_processor_can_build_for_others() -> None:
    strange = dataclasses.replace(HOST, architecture="riscv64")
    assert named_target("x86-64-v3", strange) is PRESETS["x86-64-v3"]


def test_what_was_measured_belongs_to_one_target(cache: FileCache) -> None:
    remember(detect(WIDE_HOST).calibrated(cycles_per_ns=1.0), cache)
    remember(named_target("x86-64-v3", WIDE_HOST).calibrated(cycles_per_ns=2.0), cache)
    found = [
        with_measured(named_target(n, WIDE_HOST), cache) for n in ("cpu", "x86-64-v3", "x86-64-v2")
    ]
    assert [t.calibration.get("cycles_per_ns") for t in found] == [1.0, 2.0, None]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "detect", lambda: detect(HOST))
    require_here(PRESETS["x86-64-v2"])
    assert missing_here(PRESETS["aarch64-neon"]) == ("aarch64",)
    with pytest.raises(UsageError, match=r"WH1305 code for x86-64-v4 cannot .* no avx512f, avx512"):
        require_here(PRESETS["x86-64-v4"])
