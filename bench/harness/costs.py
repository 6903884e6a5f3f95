"""What a model costs beside its run time: compiling, loading, calling, memory.

Each figure comes from a process of its own: `costs ACTION ARGUMENTS...` prints it as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from harness.measured_target import measured_target
from harness.turns import machine_busy_seconds
from whet.core.errors import fail
from whet.graph.graph import Graph
from zoo.layers import elementwise_model

_BENCH = Path(__file__).resolve().parents[1]
_START = "import sys; sys.path[:0] = sys.argv[-2:]; from harness.costs import main; main()"
TIMEOUT_SECONDS = 600.0


def in_new_process(action: str, *arguments: str, cache: Path, threads: int) -> dict[str, Any]:
    """The figures of an action, on the first cores, with this folder as whet's cache.

    `foreign` is what others used of a core meanwhile.
    """
    command = [sys.executable, "-P", "-c", _START, action, str(threads)]
    environment = os.environ | {"WHET_CACHE_DIR": str(cache), "OMP_NUM_THREADS": str(threads)}
    busy, own, start = machine_busy_seconds(), _children_seconds(), time.perf_counter()
    done = subprocess.run(
        [*command, *arguments, str(_BENCH), str(_BENCH.parent)],
        env=environment, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode:
        fail("WH3005", f"measuring '{action}' ended with code {done.returncode}")
    elapsed = time.perf_counter() - start
    others = (machine_busy_seconds() - busy) - (_children_seconds() - own)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"foreign": max(0.0, others / elapsed)}


def _children_seconds() -> float:
    """Processor time of processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compile_cost(threads: int, model: str, artifact: str) -> dict[str, Any]:
    """Seconds to import whet, to compile the model, and to call it first; stores it too."""
    start = time.perf_counter()
    import whet

    imported = time.perf_counter()
    f = whet.compile(model, threads=threads, note=lambda message: None)
    compiled = time.perf_counter()
    f(*_samples(f))
    called = time.perf_counter()
    if artifact != "-":
        f.save(artifact)
    return {"import_s": imported - start, "compile_s": compiled - imported,
            "first_call_s": called - compiled, "engine": f.engine}  # fmt: skip


def load_cost(threads: int, artifact: str) -> dict[str, Any]:
    """Seconds to load a stored model whose code is in the cache, and to call it first."""
    import whet

    start = time.perf_counter()
    f = whet.load(artifact, threads=threads)
    loaded = time.perf_counter()
    values = _samples(f)
    before = time.perf_counter()
    f(*values)
    return {"load_s": loaded - start, "first_call_s": time.perf_counter() - before,
            "engine": f.engine}  # fmt: skip


def memory_cost(threads: int, artifact: str) -> dict[str, Any]:
    """Bytes that a loaded model takes at rest and at the peak of a call.

    What the libraries take is there before, because a small model has been loaded and has run
    already; the caller's own arrays are not the model's.
    """
    import whet

    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "small.whet"
        model = elementwise_model("relu", (8,))
        whet.compile(model, threads=threads, note=_silent).save(stored)
        small = whet.load(stored, threads=threads)
    small(*_samples(small))
    gc.collect()
    base = _status("VmRSS")
    f = whet.load(artifact, threads=threads)
    before = _status("VmRSS")
    values = _samples(f)
    base += _status("VmRSS") - before
    f(*values)
    gc.collect()
    rest = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from here
    for _ in range(3):
        f(*values)
    report = f._first.executable.report
    return {"rest_bytes": rest - base, "peak_bytes": _status("VmHWM") - base,
            "packed_weight_bytes": report.constant_bytes, "arena_bytes": report.arena_bytes,
            "live_bytes": live_bytes(f.graph, threads), "engine": f.engine}  # fmt: skip


def overhead_cost(threads: int) -> dict[str, Any]:
    """Seconds per call of a model whose only kernel takes some nanoseconds."""
    import whet

    f = whet.compile(elementwise_model("relu", (8,)), threads=threads, note=_silent)
    x, y = np.ones(8, np.float32), np.empty(8, np.float32)
    return {"call_s": _per_call(lambda: f(x)), "call_into_s": _per_call(lambda: f(x, out=y)),
            "numpy_s": _per_call(lambda: np.maximum(x, 0)), "engine": f.engine}  # fmt: skip


def live_bytes(graph: Graph, threads: int) -> int:
    """The largest sum of intermediate values that must exist at one time.

    Values are those between kernels, as logical tensors, without borders or alignment.
    """
    from whet.graph.passes import expand_composites
    from whet.schedule.prices import AnalyticPrice
    from whet.tasks.segment_plan import plan_segment

    price = AnalyticPrice(measured_target(), threads, "real")
    plan = plan_segment(expand_composites(graph), price)
    uses = []
    for step in plan.steps:
        touched = step.storages.values() if isinstance(step.storages, dict) else step.storages
        uses.append([s for s in touched if s.kind == "arena"])
    return largest_sum([{s: s.value.tensor_type.nbytes for s in use} for use in uses])


def largest_sum(uses: list[dict[Any, int]]) -> int:
    """The largest sum over things alive at a step: from their first use to their last."""
    first, last, sizes = {}, {}, {}
    for n, use in enumerate(uses):
        for thing, size in use.items():
            first.setdefault(thing, n)
            last[thing], sizes[thing] = n, size
    alive = [
        sum(size for thing, size in sizes.items() if first[thing] <= n <= last[thing])
        for n in range(len(uses))
    ]
    return max(alive, default=0)


def _per_call(call: Callable[[], Any], batch: int = 200, batches: int = 100) -> float:
    def once() -> float:
        start = time.perf_counter()
        for _ in range(batch):
            call()
        return (time.perf_counter() - start) / batch

    once()
    return statistics.median(once() for _ in range(batches))


def _samples(f: Any) -> tuple[Any, ...]:
    from whet.api.samples import sample_values

    return sample_values(f.signature, {}, 0)


def _silent(message: str) -> None:
    """Messages are not part of a measurement."""


def _status(name: str) -> int:
    """A figure of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    fail("WH3005", f"/proc/self/status has no {name}")


ACTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "compile": compile_cost,
    "load": load_cost,
    "memory": memory_cost,
    "overhead": overhead_cost,
}


def main() -> None:
    action, threads, *rest = sys.argv[1:-2]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(threads)])
    print(json.dumps(ACTIONS[action](int(threads), *rest)))
