"""The analytic model against the clock: every kernel of a network, predicted and measured.

    python bench/model_error.py [--threads 1] [--only resnet50] [--onnx FOLDER] [--rounds 30]

Each network is built twice, with the default constants and with those measured on this machine.
Both run kernel by kernel, in turns, in the order of the network, so that caches are in the state
that they are in when it runs.  The least time of a kernel counts, on one thread that of its
processor.  `ratio` is measured over predicted: its median says how far off the unit is, the
quartiles how far off choices may be; `rank` is Spearman's correlation.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.measured_target import measured_target
from harness.report import Report, number, say, settings_of
from whet.build.cpu.calibrate import calibrated_target
from whet.build.cpu.segment import Context, NativeSegment
from whet.build.native import build
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.cpu import CpuTarget, with_measured
from whet.core.types import Array
from whet.frontend.onnx import import_model
from whet.graph.passes import optimize
from whet.schedule.default import default_choice
from whet.schedule.program.kernel import Kernel
from whet.tasks.task import Task
from zoo.networks import BUILDERS, Network, build_networks, read_networks

SMALLEST_NS = 2000.0
"""Kernels below this are left out of ratios: calling them from Python takes a part of it."""


def arguments() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--only", nargs="+", metavar="NAME", choices=list(BUILDERS))
    made.add_argument("--onnx", type=Path, metavar="FOLDER", help="networks with an index.json")
    made.add_argument("--rounds", type=int, default=30)
    made.add_argument("--worst", type=int, default=0, metavar="N", help="kernels to show")
    made.add_argument("--json", type=Path, metavar="OUT")
    return made


@dataclass
class TimedCall:
    """A kernel in its place in the network."""

    function: object
    table: int
    text: str
    sketch: str
    predicted: float
    measured: float = float("inf")

    @property
    def ratio(self) -> float:
        return self.measured / self.predicted


class Contestant:
    """A network built for a target, called kernel by kernel."""

    def __init__(self, network: Network, target: CpuTarget, threads: int) -> None:
        self.threads = threads
        values = network.sample()
        graph = optimize(import_model(str(network.path), inputs=values).graph)
        chosen: dict[str, tuple[str, float]] = {}

        def schedule(task: Task, name: str) -> Kernel:
            choice = default_choice(task, target, threads)
            holes = " ".join(f"{k}={v}" for k, v in choice.holes.items())
            chosen[name] = (f"{choice.sketch.name} {holes}", choice.nanoseconds)
            return choice.kernel(name)

        self.executable = build(graph, target, threads, schedule=schedule)
        inputs = [values[v.name] for v in graph.inputs]
        self.held = [inputs, self.executable(inputs)]  # the tables point there
        self.calls: list[TimedCall] = []
        for segment in self.executable.segments:
            segment.threads.apply()
            self.add(segment, chosen)

    def add(self, segment: NativeSegment, chosen: dict[str, tuple[str, float]]) -> None:
        (context,) = segment.contexts
        assert isinstance(context, Context)
        for call in segment.image.calls:
            sketch, predicted = chosen.get(call.symbol, ("loop", float("nan")))
            function = segment.library.function(call.symbol, ctypes.c_void_p)
            table = context.table_address + 8 * call.start
            self.calls.append(TimedCall(function, table, call.text, sketch, predicted))

    def turn(self) -> None:
        # One thread's own time leaves out what others take of the core during long kernels.
        clock = time.thread_time_ns if self.threads == 1 else time.perf_counter_ns
        for call in self.calls:
            start = clock()
            call.function(call.table)  # type: ignore[operator]
            call.measured = min(call.measured, float(clock() - start))

    def total(self, *, predicted: bool) -> float:
        counted = [c for c in self.calls if c.predicted == c.predicted]
        return sum(c.predicted if predicted else c.measured for c in counted)


def ranks(values: Sequence[float]) -> Array:
    return np.argsort(np.argsort(np.asarray(values)))


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1]) if len(a) > 2 else float("nan")


def summary(calls: Sequence[TimedCall]) -> list[str]:
    """Median and quartiles of the ratios, and the rank correlation."""
    found = [c for c in calls if c.predicted == c.predicted and c.measured >= SMALLEST_NS]
    if len(found) < 4:
        return ["-", "-", "-"]
    low, median, high = statistics.quantiles((c.ratio for c in found), n=4)
    rank = rank_correlation([c.predicted for c in found], [c.measured for c in found])
    return [number(median), f"{number(low)} to {number(high)}", number(rank)]


def main() -> None:
    given = arguments().parse_args()
    cache = FileCache(process_config().cache)
    here = measured_target()
    known = calibrated_target(with_measured(here, cache), cache, say)
    targets = {"defaults": here, "measured": known}
    report = Report("Analytic model", settings_of(given))
    lines, every = [], {name: [] for name in targets}
    with tempfile.TemporaryDirectory() as folder:
        networks = (
            read_networks(given.onnx, given.only)
            if given.onnx
            else build_networks(Path(folder), given.only)
        )
        for network in networks:
            say(f"building {network.name}")
            pair = {n: Contestant(network, t, given.threads) for n, t in targets.items()}
            for _ in range(given.rounds):
                for contestant in pair.values():
                    contestant.turn()
            for name, contestant in pair.items():
                every[name] += contestant.calls
                predicted, measured = (contestant.total(predicted=p) for p in (True, False))
                sums = [predicted / 1e6, measured / 1e6, measured / predicted]
                head = [f"{network.name}, {name}", str(len(contestant.calls))]
                lines.append([*head, *map(number, sums), *summary(contestant.calls)])
                found = {"predicted_ns": predicted, "measured_ns": measured}
                report.rows.append({"network": network.name, "constants": name, **found})
            show_worst(report, pair["measured"], given.worst, network.name)
    header = ("", "calls", "predicted ms", "measured ms", "sums", "ratio", "quartiles", "rank")
    report.add_table("Networks", header, lines)
    sketches = sorted({c.sketch.split()[0] for calls in every.values() for c in calls} - {"loop"})
    shown = [[f"{s}, {name}", *summary([c for c in every[name] if c.sketch.split()[0] == s])]
             for s in sketches for name in targets]  # fmt: skip
    shown += [[f"all, {name}", *summary(calls)] for name, calls in every.items()]
    report.add_table("Sketches", ("", "ratio", "quartiles", "rank"), shown)
    report.finish(given.json)


def show_worst(report: Report, contestant: Contestant, count: int, name: str) -> None:
    """The kernels where the model is off by most nanoseconds."""
    known = [c for c in contestant.calls if c.predicted == c.predicted]
    worst = sorted(known, key=lambda c: -abs(c.measured - c.predicted))[:count]
    rows = []
    for c in worst:
        text = f"{c.sketch} {c.text}".replace("\n", "; ")
        rows.append([text[:150], number(c.predicted / 1e3), number(c.measured / 1e3)])
    if rows:
        report.add_table(f"{name}, microseconds", ("kernel", "predicted", "measured"), rows)


if __name__ == "__main__":
    main()
