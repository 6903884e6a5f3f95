"""What the search inside a network brings on an NVIDIA GPU.

    python bench/gpu_refine.py resnet50 --precision tf32 --seconds 60

The network with default kernels, with those that are best alone, and with those that were chosen
inside it, replayed in turns; and the sum of its kernels' times alone.  Records are made anew.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import whet
from harness.gpu_networks import BUILDERS, networks, replayed_seconds
from harness.report import say
from whet.api.engines import default_engine
from whet.build.native import NativeExecutable, build
from whet.core.target import Target
from whet.core.types import Array
from whet.db.store import Database
from whet.graph.graph import Graph
from whet.joint.refining import SHARE
from whet.joint.tuning import refine_tuned, tune_tasks, weighted_tasks
from whet.tune.report import Refining, Report, Status
from whet.tune.schedule import Schedules
from whet.tune.tuner import Budget

ROUNDS = 25


def main() -> None:
    given = arguments().parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (network,) = networks(folder, [given.network])
        graph = whet.compile(str(network.path), target="cuda", precision=given.precision).graph
        target = default_engine(print, "cuda", given.precision).target
        assert target is not None
        say(f"{given.network}, {given.precision}, {target}")
        sample = network.sample()
        inputs = [sample[value.name] for value in graph.inputs]
        compared(graph, target, inputs, folder / "records.db", given.seconds)


def arguments() -> argparse.ArgumentParser:
    as_written = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    made.add_argument("network", choices=list(BUILDERS))
    made.add_argument("--precision", default="fp32", help="fp32, fp32x3, tf32, fp16 or bf16")
    made.add_argument("--seconds", type=float, default=60.0, help="of both searches together")
    return made


def compared(
    graph: Graph, target: Target, inputs: Sequence[Array], path: Path, seconds: float
) -> None:
    """Searches, and prints what each part brought."""
    start = time.perf_counter()
    reports = tune_tasks(weighted_tasks([graph], target, 1, "real"), target, 1,
                         Budget((1 - SHARE) * seconds), database=path)  # fmt: skip
    tuned = time.perf_counter()
    states = refine_tuned([graph], target, 1, SHARE * seconds, watch=watch, database=path)
    refined = time.perf_counter()
    made = {"default": build(graph, target, 1)}
    with Database(path) as database:
        known = Schedules(target, 1, "real", database)
        made["alone"] = build(graph, target, 1, schedule=known, evidence=known.faster)
        made["refined"] = build(graph, target, 1, schedule=known, in_plan=known.within,
                                evidence=known.faster)  # fmt: skip
    results = {what: executable(inputs) for what, executable in made.items()}
    times = in_turns(made)
    say(f"searched for {tuned - start:.1f} s, refined for {refined - tuned:.1f} s, "
        f"{sum(r.trials for r in reports)} trials")  # fmt: skip
    say(f"kernels alone, their sum   {sum(r.total for r in reports) * 1e3:8.4f} ms")
    for what, text in (("default", "default kernels"), ("alone", "best alone"),
                       ("refined", "chosen inside")):  # fmt: skip
        off = difference(results[what], results["default"])
        say(f"network, {text:18} {times[what] * 1e3:8.4f} ms   "
            f"{times['default'] / times[what]:.3f}x   off by {off:.1e}")  # fmt: skip
    say(f"inside by alone            {times['alone'] / times['refined']:8.4f}x")
    for state in states:
        say(told(state))


def watch(reports: Sequence[Report], status: Status) -> None:
    state = status.refining
    if state is not None and state.tried % 25 == 0:
        say(f"{status.elapsed:6.1f} s  {told(state)}")


def told(state: Refining) -> str:
    return (
        f"{state.network}: {state.tried} tried, {state.changed} tasks changed, "
        f"{state.before * 1e3:.4f} -> {state.seconds * 1e3:.4f} ms in the search {state.problem}"
    )


def in_turns(made: Mapping[str, NativeExecutable]) -> dict[str, float]:
    """Seconds of a replay: medians over rounds in which all take their turn."""
    samples: dict[str, list[float]] = {what: [] for what in made}
    for _ in range(ROUNDS):
        for what, executable in made.items():
            samples[what].append(replayed_seconds(executable))
    return {what: statistics.median(taken) for what, taken in samples.items()}


def difference(got: Sequence[Array], want: Sequence[Array]) -> float:
    """The largest difference of an output, relative to its norm."""
    return max(
        float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b.astype(np.float64)))
        for a, b in zip(got, want, strict=True)
    )


if __name__ == "__main__":
    main()
