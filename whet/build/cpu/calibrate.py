"""Measuring this machine, once, in a few seconds: the constants of the analytic models.

Every probe is called for a short while in each of several rounds, and its fastest call counts:
others can only make it slower.  While they do, there are more rounds.  A figure outside of its
limits is an accident, and that of the nearest kind of machine stands in for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from whet.build.cpu.kernel_probes import felt_constants, slowed_down, tile_probes
from whet.build.cpu.probes import STREAM_PIECE_BYTES, Probe, Prober
from whet.core.alignment import aligned_zeros
from whet.core.caching import FileCache
from whet.core.constants import CONSTANTS
from whet.core.cpu import MIB, CpuTarget, detect, remember, with_measured
from whet.core.foreign import is_this_machine
from whet.core.types import Array

ROUNDS = 3
SECONDS_PER_TURN = 0.02
MORE_ROUNDS = 3
"""Further rounds, at most, while the machine is busy."""
BUSY = 1.2
"""How much slower than its multiply-adds a tile may be on a machine that is not."""
MIN_CALLS = 3
"""Calls of a probe in every round, even if they take longer."""
SMALL_NS = 300_000
"""About how long a call of a probe takes that may take any time: much less than the turn that an
operating system gives a process, so that some calls are undisturbed."""
MEMORY_CALLS = 16
"""Calls that it takes to go through arrays that no cache holds, for the same reason."""
FORK_ROUNDS = 12_000
"""Rounds of multiply-adds, about 20 microseconds: much more than handing them over takes."""

FORKED = 1.75
"""Equal pieces on all cores take longer than one piece, but if they take twice as long, a core
did two of them, because another one was busy with something else."""


def calibrated_target(
    target: CpuTarget, cache: FileCache, note: Callable[[str], None] | None = None
) -> CpuTarget:
    """The target with constants measured on it, which are kept in the cache.

    Targets that are not this machine stay as they are.  Without a cache nothing is measured:
    kernels would be chosen anew, and perhaps differently, in every process.
    """
    if target.is_calibrated or not cache.keeps or not is_this_machine(target):
        return target
    if note is not None:
        note(f"measuring {describe(target)} once (a few seconds)")
    found = target.calibrated(**calibrate(target, cache))
    meanwhile = with_measured(target, cache)
    if meanwhile.is_calibrated:
        return meanwhile  # by another process: what is kept counts
    remember(found, cache)
    return found


def describe(target: CpuTarget) -> str:
    """The target, which is this machine, in a message."""
    return "this machine" if target.key == detect().key else f"this machine as {target.cpu}"


def calibrate(target: CpuTarget, cache: FileCache) -> dict[str, float]:
    """All constants of this machine; those of its kind where a measurement failed."""
    tiles = {name: tile.probe(target) for name, tile in tile_probes(target).items()}
    probes = {**_probes(target, cache), **tiles}
    seconds = measure(probes)
    for more in range(MORE_ROUNDS + 1):
        ns = {name: seconds[name] / p.work * 1e9 for name, p in probes.items()}
        rates = constants_from(ns, target.constant)
        known = target.calibrated(**rates)
        if slowed_down(known, ns) < BUSY or more == MORE_ROUNDS:
            break
        again = measure(probes, 1)
        seconds = {name: min(seconds[name], again[name]) for name in probes}
    felt = felt_constants(known, ns)
    return rates | {name: _credible(name, value, target.constant) for name, value in felt.items()}


def measure(probes: Mapping[str, Probe], rounds: int = ROUNDS) -> dict[str, float]:
    """Seconds of the fastest call of every probe."""
    best = dict.fromkeys(probes, float("inf"))
    for _ in range(rounds):
        for name, probe in probes.items():
            best[name] = min(best[name], _fastest(probe.call))
    return best


def _fastest(call: Callable[[], None]) -> float:
    end = time.perf_counter() + SECONDS_PER_TURN
    best, calls = float("inf"), 0
    while calls < MIN_CALLS or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best, calls = min(best, time.perf_counter() - start), calls + 1
    return best


def _default(name: str) -> float:
    return CONSTANTS[name].default


def constants_from(
    ns: Mapping[str, float], instead: Callable[[str], float] = _default
) -> dict[str, float]:
    """The constants, from the nanoseconds that a unit of work of each probe takes."""
    found = {name: 1.0 / t for name, t in ns.items() if name in CONSTANTS and t > 0}
    found["fma_latency_ns"] = ns["latency"]
    if "fork" in ns and ns["fork"] < FORKED * ns["piece"]:
        found["fork_join_ns"] = ns["fork"] - ns["piece"]
    kept = {name: _credible(name, found.get(name), instead) for name in CONSTANTS}
    nearest = ("l1", "l2", "l3", "core_memory")
    for near, far in pairwise(nearest):
        # What lies further away is not faster: a core that was slowed down while it read l1.
        near_name, far_name = f"{near}_bytes_per_ns", f"{far}_bytes_per_ns"
        kept[far_name] = min(kept[near_name], kept[far_name])
    kept["l3_shared_bytes_per_ns"] = max(kept["l3_shared_bytes_per_ns"], kept["l3_bytes_per_ns"])
    kept["memory_bytes_per_ns"] = max(kept["memory_bytes_per_ns"], kept["core_memory_bytes_per_ns"])
    return kept


def _credible(name: str, value: float | None, instead: Callable[[str], float]) -> float:
    """The value, to three digits, or another if there is none or it makes no sense."""
    constant = CONSTANTS[name]
    if value is None or not constant.low <= value <= constant.high:
        return instead(name)
    return float(f"{value:.3g}")


def _probes(target: CpuTarget, cache: FileCache) -> dict[str, Probe]:
    """The probes by the constant whose inverse they show; `latency`, `fork` and `piece` help."""
    one, all_cores = Prober(target, 1, cache), Prober(target, target.cores, cache)
    narrow = min(256, target.vector_bits) // 32
    ends = [_numbers(memory_probe_bytes(target)) for _ in range(2)]
    ends.append(ends[-1])
    probes = {
        "cycles_per_ns": one.chain(SMALL_NS // 5),
        "fma_per_ns_256": one.fma(SMALL_NS // 2, 1, lanes=narrow),
        "latency": one.fma(SMALL_NS, 1, lanes=narrow, chains=1),
        "broadcasts_per_ns": one.broadcast(_numbers(4096), SMALL_NS // 200, lanes=narrow),
        "core_memory_bytes_per_ns": one.stream("read", ends, MEMORY_CALLS),
        "copy_bytes_per_ns": one.stream("copy", ends, MEMORY_CALLS),
    }
    if target.vector_bits >= 512:
        probes["fma_per_ns_512"] = one.fma(SMALL_NS // 4, 1, lanes=16)
    sizes = {"l1": target.l1d_bytes // 2, "l2": target.l2_bytes // 2,
             "l3": min(target.l3_bytes // 2, 4 * target.l2_bytes)}  # fmt: skip
    rates = {"l1": 200, "l2": 100, "l3": 50}
    inner = 0
    for level, size in sizes.items():
        if size > inner:
            times = max(2, rates[level] * SMALL_NS // size)
            probes[f"{level}_bytes_per_ns"] = one.near(_numbers(size), times)
            inner = 2 * size
    if target.cores > 1:
        probes["memory_bytes_per_ns"] = all_cores.stream("read", ends, MEMORY_CALLS)
        if own := _beyond_second_cache(target):
            parts = _numbers(own * target.cores)
            probes["l3_shared_bytes_per_ns"] = all_cores.parts(parts, target.cores)
        alone, many = (p.fma(FORK_ROUNDS, p.threads, lanes=narrow) for p in (one, all_cores))
        probes["piece"], probes["fork"] = Probe(alone.call, 1.0), Probe(many.call, 1.0)
    return probes


def _beyond_second_cache(target: CpuTarget) -> int:
    """Bytes for every core that its second cache does not hold, but the last one holds for all."""
    nbytes = min(4 * target.l2_bytes, target.l3_bytes * 3 // (4 * target.cores))
    return nbytes // MIB * MIB if nbytes > 1.5 * target.l2_bytes else 0


def _numbers(nbytes: int) -> Array:
    """Ones in memory that starts at a line, so that no vector lies in two."""
    made: Array = aligned_zeros(nbytes).view(np.float32)
    made[:] = 1.0
    return made


def memory_probe_bytes(target: CpuTarget) -> int:
    """Bytes of an array that no cache holds, within limits that any machine can bear."""
    wanted = min(max(64 * MIB, target.l3_bytes * 3 // 2), 192 * MIB)
    part = STREAM_PIECE_BYTES * MEMORY_CALLS
    return wanted // part * part
