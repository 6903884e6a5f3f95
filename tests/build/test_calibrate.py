"""Measuring a machine: what probes do, what becomes of their times, and what models make of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.schedule.small_tasks import make_task, matmul
from tests.schedule.windows import Windows
from tests.targets import LEVELS
from whet.api import engines
from whet.build.cpu import calibrate as calibration, kernel_probes
from whet.build.cpu.calibrate import calibrated_target, constants_from, measure
from whet.build.cpu.kernel_probes import WAITS, felt_constants, tile_probes
from whet.build.cpu.probes import Probe, Prober
from whet.codegen.llvm.probecode import CHAINS, STREAMS
from whet.core.caching import FileCache
from whet.core.config import CacheConfig, Config
from whet.core.constants import CONSTANTS
from whet.core.cpu import PRESETS, CpuTarget, detect, named_target, with_measured
from whet.core.dtypes import f32
from whet.core.target import target_from_json
from whet.ir.expr import call
from whet.ir.tensor import compute, placeholder, reduce_axis, sum_
from whet.schedule.cost.rates import rates_of
from whet.schedule.default import default_choice
from whet.tasks.task import Task

HOST = detect()
NO_CACHE = FileCache(CacheConfig(enabled=False))
PROBER = Prober(HOST, 1, NO_CACHE)

PLAUSIBLE = {
    "cycles_per_ns": 0.25, "fma_per_ns_256": 0.125, "fma_per_ns_512": 0.25, "latency": 1.0,
    "broadcasts_per_ns": 0.125, "l1_bytes_per_ns": 1 / 256, "l2_bytes_per_ns": 1 / 128,
    "l3_bytes_per_ns": 1 / 64, "core_memory_bytes_per_ns": 1 / 16, "memory_bytes_per_ns": 1 / 32,
    "copy_bytes_per_ns": 1 / 8, "l3_shared_bytes_per_ns": 1 / 512, "piece": 20_000.0,
    "fork": 21_500.0,
}  # fmt: skip
"""Nanoseconds per unit of work of a machine with round figures."""


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(CacheConfig(dir=tmp_path / "cache"))


# ---------------------------------------------------------------------------------------- probes
@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("threads", [1, 2])
def test_streams_go_through_the_arrays(kind: str, threads: int) -> None:
    a, b, c = (np.full(1 << 19, value, np.float32) for value in (1, 2, 5))
    probe = Prober(HOST, threads, NO_CACHE).stream(kind, [a, b, c])
    probe.call()
    assert probe.work == STREAMS[kind] * a.nbytes
    expected = {"copy": 1.0, "memcpy": 1.0, "triad": 7.0}
    if kind in expected:
        assert (c == expected[kind]).all()
    else:
        sums = c[: HOST.lanes(32)]
        assert (sums == (1 << 18) / HOST.lanes(32)).all()  # of the first piece


def test_streams_in_several_calls_go_through_all_parts() -> None:
    a, c = np.arange(1 << 20, dtype=np.float32), np.zeros(1 << 20, np.float32)
    probe = PROBER.stream("copy", [a, a, c], calls=4)
    assert probe.work == 2 * a.nbytes / 4
    for part in range(4):
        assert (c[: part << 18] == a[: part << 18]).all()
        assert (c[part << 18 :] == 0).all()
        probe.call()
    assert (c == a).all()


def test_counted_work_is_work_done() -> None:
    probe = PROBER.fma(100, 2, lanes=4, chains=3)
    assert probe.work == 600
    assert PROBER.fma(100, 1, lanes=4).work == 100 * CHAINS
    assert PROBER.chain(10).work == 160
    assert PROBER.broadcast(np.ones(64, np.float32), 3, lanes=4).work == 192
    assert PROBER.near(np.ones(4096, np.float32), 3).work == 3 * 4096 * 4


def test_more_work_takes_longer() -> None:
    # Nothing of a probe may be optimised away, so that eight times the work takes far longer.
    array = np.ones(1024, np.float32)
    probes: dict[str, tuple[Probe, Probe]] = {
        "fma": (PROBER.fma(20_000, 1, lanes=8), PROBER.fma(160_000, 1, lanes=8)),
        "chain": (PROBER.chain(10_000), PROBER.chain(80_000)),
        "near": (PROBER.near(array, 1000), PROBER.near(array, 8000)),
        "broadcast": (
            PROBER.broadcast(array, 200, lanes=8),
            PROBER.broadcast(array, 1600, lanes=8),
        ),
    }
    for name, pair in probes.items():
        found = measure({"short": pair[0], "long": pair[1]})
        assert found["long"] > 4 * found["short"], name


def test_the_fastest_call_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now = 0.0

    def slow_but_once(durations: Iterator[float]) -> Callable[[], None]:
        def call() -> None:
            Clock.now += next(durations)

        return call

    durations = [0.5, 0.5, 0.125, *[0.25] * 100]
    monkeypatch.setattr(calibration.time, "perf_counter", lambda: Clock.now)
    found = measure({"probe": Probe(slow_but_once(iter(durations)), 1.0)})
    assert found == {"probe": 0.125}


# ------------------------------------------------------------------------------------- constants
def test_constants_are_what_the_times_say() -> None:
    assert constants_from(PLAUSIBLE) == {
        **{name: CONSTANTS[name].default for name in WAITS}, "l3_shared_bytes_per_ns": 512.0,
        "cycles_per_ns": 4.0, "fma_per_ns_256": 8.0, "fma_per_ns_512": 4.0, "fma_latency_ns": 1.0,
        "broadcasts_per_ns": 8.0, "l1_bytes_per_ns": 256.0, "l2_bytes_per_ns": 128.0,
        "l3_bytes_per_ns": 64.0, "core_memory_bytes_per_ns": 16.0, "memory_bytes_per_ns": 32.0,
        "copy_bytes_per_ns": 8.0, "fork_join_ns": 1500.0,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4", "aarch64-neon"])
@pytest.mark.parametrize("slower", [1.0, 1.25])
def test_waits_are_what_makes_the_model_right(name: str, slower: float) -> None:
    """A machine that computes as the model says, or slower by a factor, with these waits."""
    waits = {
        "l2_felt": 0.15, "far_felt": 0.8, "hinted_felt": 0.3, "memory_felt": 1.2,
        "memory_hinted_felt": 0.4, "hint_ns": 0.2, "apart_ns": 9.0,
    }  # fmt: skip
    target = PRESETS[name]
    machine = target.calibrated(**waits)
    near = machine.calibrated(far_felt=0.0, hinted_felt=0.0)  # calls find their weights again
    ns = {
        n: slower * p.expected(near if p.source == "near" else machine)
        for n, p in tile_probes(target).items()
    }
    overhead = {n: t + 2000.0 for n, t in ns.items()} | {"tile_call": 2000.0}
    found = felt_constants(target, overhead)
    assert found == {n: pytest.approx(w, rel=0.06) for n, w in waits.items()}


def test_a_machine_that_feels_no_waits_has_none() -> None:
    target = PRESETS["x86-64-v4"]
    calm = target.calibrated(**dict.fromkeys(WAITS, 0.0))
    fast = {n: 0.9 * p.expected(calm) for n, p in tile_probes(target).items()}
    assert set(felt_constants(target, fast | {"tile_call": 0.0}).values()) == {0.0}


@pytest.mark.parametrize("ns", [0.0, 1e-9, 1e9, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["cycles_per_ns", "copy_bytes_per_ns", "l3_bytes_per_ns"])
def test_absurd_times_leave_the_default(name: str, ns: float) -> None:
    assert constants_from({**PLAUSIBLE, name: ns})[name] == CONSTANTS[name].default


def test_probes_that_do_not_exist_leave_the_default() -> None:
    needed = {"latency": 1.0}
    found = constants_from(needed)
    expected = {name: c.default for name, c in CONSTANTS.items()}
    assert found == {**expected, "fma_latency_ns": 1.0}


def test_a_core_that_did_the_work_of_two_is_no_fork() -> None:
    found = constants_from({**PLAUSIBLE, "fork": 40_000.0})
    assert found["fork_join_ns"] == CONSTANTS["fork_join_ns"].default
    found = constants_from({**PLAUSIBLE, "fork": 19_000.0})
    assert found["fork_join_ns"] == CONSTANTS["fork_join_ns"].default


def test_what_is_further_away_is_not_faster() -> None:
    found = constants_from({**PLAUSIBLE, "l1_bytes_per_ns": 1 / 100})
    assert found["l1_bytes_per_ns"] == found["l2_bytes_per_ns"] == 100.0
    found = constants_from({**PLAUSIBLE, "memory_bytes_per_ns": 1 / 4})
    assert found["memory_bytes_per_ns"] == found["core_memory_bytes_per_ns"] == 16.0


def test_defaults_are_within_their_limits() -> None:
    for constant in CONSTANTS.values():
        assert constant.low < constant.default < constant.high
    kept = constants_from({"latency": CONSTANTS["fma_latency_ns"].default})
    assert kept["memory_bytes_per_ns"] == CONSTANTS["memory_bytes_per_ns"].default


def test_this_machine_can_be_measured(monkeypatch: pytest.MonkeyPatch, cache: FileCache) -> None:
    monkeypatch.setattr(calibration, "SECONDS_PER_TURN", 0.001)
    monkeypatch.setattr(calibration, "memory_probe_bytes", lambda target: 16 << 20)
    monkeypatch.setattr(kernel_probes, "MOST_IN_MEMORY", 8 << 20)
    found = calibration.calibrate(HOST, cache)
    assert found.keys() == CONSTANTS.keys()
    for name, value in found.items():
        assert CONSTANTS[name].low <= value <= CONSTANTS[name].high, name
    assert found["fma_per_ns_256"] != CONSTANTS["fma_per_ns_256"].default


def test_a_busy_machine_is_measured_longer(
    monkeypatch: pytest.MonkeyPatch, cache: FileCache
) -> None:
    """A neighbour that takes caches, and hardly any multiply-adds, leaves after two rounds."""
    counts: list[int] = []

    def seconds(probes: Mapping[str, Probe], rounds: int = 3) -> dict[str, float]:
        counts.append(rounds)
        known = HOST.calibrated(**constants_from(PLAUSIBLE))
        slow = 1.5 if len(counts) < 3 else 1.0
        tiles = {n: slow * t.expected(known) for n, t in tile_probes(HOST).items()}
        ns = PLAUSIBLE | tiles | {"tile_call": 0.0}
        return {name: ns.get(name, 1.0) * p.work * 1e-9 for name, p in probes.items()}

    monkeypatch.setattr(calibration, "measure", seconds)
    found = calibration.calibrate(HOST, cache)
    assert counts == [3, 1, 1]
    assert found["cycles_per_ns"] == 4.0


# --------------------------------------------------------------------------------------- targets
@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[CpuTarget]:
    """The targets that were measured, which takes no time here."""
    found: list[CpuTarget] = []

    def calibrate(target: CpuTarget, cache: FileCache) -> dict[str, float]:
        found.append(target)
        return constants_from(PLAUSIBLE)

    monkeypatch.setattr(calibration, "calibrate", calibrate)
    return found


def test_a_machine_is_measured_once(measured: list[CpuTarget], cache: FileCache) -> None:
    notes: list[str] = []
    first = calibrated_target(with_measured(detect(), cache), cache, notes.append)
    again = calibrated_target(with_measured(detect(), cache), cache, notes.append)
    assert first == again
    assert first.key == HOST.key
    assert first.constant("cycles_per_ns") == 4.0
    assert len(measured) == 1
    assert notes == ["measuring this machine once (a few seconds)"]


def test_what_another_process_stored_meanwhile_counts(
    monkeypatch: pytest.MonkeyPatch, cache: FileCache
) -> None:
    others = HOST.calibrated(**constants_from({**PLAUSIBLE, "cycles_per_ns": 0.5}))

    def calibrate(target: CpuTarget, cache: FileCache) -> dict[str, float]:
        calibration.remember(others, cache)
        return constants_from(PLAUSIBLE)

    monkeypatch.setattr(calibration, "calibrate", calibrate)
    assert calibrated_target(HOST, cache) == others


def test_a_calibration_that_lacks_a_constant_is_repeated(
    measured: list[CpuTarget], cache: FileCache
) -> None:
    calibration.remember(HOST.calibrated(cycles_per_ns=3.0), cache)
    assert calibrated_target(with_measured(detect(), cache), cache).constant("cycles_per_ns") == 4.0


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
def test_typical_machines_are_never_measured(
    measured: list[CpuTarget], cache: FileCache, preset: CpuTarget
) -> None:
    assert calibrated_target(preset, cache) is preset
    assert not measured


@pytest.mark.parametrize("name", LEVELS)
def test_this_machine_held_back_is_measured_apart(
    name: str, measured: list[CpuTarget], cache: FileCache
) -> None:
    notes: list[str] = []
    calibration.remember(HOST.calibrated(cycles_per_ns=1.0), cache)
    target = with_measured(named_target(name), cache)
    found = calibrated_target(target, cache, notes.append)
    assert measured == [target]
    assert found.constant("cycles_per_ns") == 4.0
    assert with_measured(named_target(name), cache) == found
    if target.key != HOST.key:
        assert notes == [f"measuring this machine as {target.cpu} once (a few seconds)"]
        assert with_measured(detect(), cache).constant("cycles_per_ns") == 1.0


def test_nothing_is_measured_that_cannot_be_kept(measured: list[CpuTarget]) -> None:
    assert calibrated_target(HOST, NO_CACHE) is HOST
    assert calibrated_target(HOST, FileCache(CacheConfig(dir=None))) is HOST
    assert not measured


@pytest.mark.parametrize("wanted", [True, False])
def test_the_knob_decides(
    wanted: bool, measured: list[CpuTarget], cache: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    calibration.remember(HOST.calibrated(cycles_per_ns=1.0), cache)
    config = Config(calibrate=wanted, cache=cache.config)
    monkeypatch.setattr(engines, "process_config", lambda: config)
    monkeypatch.setattr(engines._Process, "engines", {})
    found: Any = engines.default_engine(notes.append)
    assert found is engines.default_engine(notes.append)
    assert (len(measured), len(notes)) == ((1, 1) if wanted else (0, 0))
    unmeasured = HOST.constant("cycles_per_ns")
    assert found.target.constant("cycles_per_ns") == (4.0 if wanted else unmeasured)


# ---------------------------------------------------------------------------------------- models
def elementwise(size: int) -> Task:
    x = placeholder((size,), f32, "x")
    return make_task(compute((size,), lambda i: call("max", x[i], 0.0), "y"))


def scaled(size: int) -> Task:
    x, w = placeholder((size,), f32, "x"), placeholder((size,), f32, "w")
    return make_task(compute((size,), lambda i: x[i] * w[i], "y"), constants=[w])


def two_inputs(m: int, n: int, k: int) -> Task:
    a, b, r = placeholder((m, k), f32, "a"), placeholder((k, n), f32, "b"), reduce_axis(k, "r")
    return make_task(compute((m, n), lambda i, j: sum_(a[i, r] * b[r, j], r), "y"))


TASKS = {
    "matmul": (matmul(64, 256, 512), 1),
    "matmul of inputs": (two_inputs(96, 512, 2048), 1),
    "weights": (scaled(1 << 16), 1),
    "deep matmul": (matmul(64, 64, 8192), 1),
    "large matmul": (matmul(256, 1024, 1024), 2),
    "wide matmul": (matmul(4, 8192, 1024), 2),
    "one row": (matmul(1, 4096, 4096), 1),
    "convolution": (Windows((28, 28), 64, 64).task, 2),
    "large copy": (elementwise(1 << 24), 1),
    "copy": (elementwise(1 << 20), 1),
}


def price(name: str, target: CpuTarget) -> float:
    task, threads = TASKS[name]
    return default_choice(task, target, threads).nanoseconds


@pytest.mark.parametrize("name", CONSTANTS)
def test_every_constant_matters_and_better_ones_never_cost(name: str) -> None:
    target = PRESETS["x86-64-v3" if name == "fma_per_ns_256" else "x86-64-v4"]
    ends = "_per_ns" not in name  # of what takes time, less is better
    better = CONSTANTS[name].default * (0.5 if ends else 2.0)
    if name == "cycles_per_ns":
        # The rates are per nanosecond: a clock alone makes only overheads cheaper.
        assert rates_of(target.calibrated(cycles_per_ns=better)).clock == better
    before = {task: price(task, target) for task in TASKS}
    after = {task: price(task, target.calibrated(**{name: better})) for task in TASKS}
    worse = CONSTANTS[name].default * (8.0 if ends else 0.125)
    slow = {task: price(task, target.calibrated(**{name: worse})) for task in TASKS}
    assert all(after[task] <= before[task] * 1.0001 for task in TASKS), (before, after)
    assert any(slow[task] > before[task] for task in TASKS), (before, slow)


def test_choices_follow_from_what_is_kept() -> None:
    target = HOST.calibrated(**constants_from(PLAUSIBLE))
    copy = target_from_json(target.to_json())
    for task, threads in TASKS.values():
        first, second = (default_choice(task, t, threads) for t in (target, copy))
        assert (first.sketch.name, first.holes) == (second.sketch.name, second.holes)


def test_wide_vectors_cost_what_they_take() -> None:
    preset = PRESETS["x86-64-v4"]
    full = preset.calibrated(fma_per_ns_256=6.6, fma_per_ns_512=6.6)
    lanes = np.array([4, 8, 16, 32])
    assert rates_of(preset).passes(lanes, 32).tolist() == [1, 1, 2, 4]
    assert rates_of(full).passes(lanes, 32).tolist() == [1, 1, 1, 2]
    assert price("matmul", full) < 0.7 * price("matmul", preset)


def test_equal_targets_with_other_constants_are_told_apart() -> None:
    fast = dataclasses.replace(HOST, calibration={"cycles_per_ns": 7.0})
    assert rates_of(HOST).clock == HOST.constant("cycles_per_ns")
    assert rates_of(fast).clock == 7.0
