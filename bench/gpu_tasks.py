"""Networks at batch 1 on an NVIDIA GPU, alone, and their tasks one by one.

    python bench/gpu_tasks.py [--only resnet50] [--precision fp32 tf32] [--first 10]
                              [--kernels OUT.jsonl]

For every network: a replay with default kernels, and the sum of these kernels' times when each
follows itself; then the first candidates of every task are measured, and the network is replayed
with the best of each.  What prices said is beside it.  `--kernels` writes the contractions among
them in the form that `gpu_law.py` reads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import whet
from harness.gpu_kernels import LEAVES, own_rows
from harness.gpu_networks import BUILDERS, error_of, networks, reference, replayed_seconds
from harness.report import Report, number, parser, say, settings_of
from whet.api.engines import default_engine
from whet.build.backend import backend_of
from whet.build.native import NativeExecutable, build
from whet.core.gpu import GpuTarget
from whet.db.store import Database
from whet.joint.tuning import weighted_tasks
from whet.measure.records import record_of
from whet.measure.results import Candidate, Measured
from whet.schedule.families.gpu_contraction.match import find_gpu_contraction
from whet.tune.schedule import Schedules
from whet.tune.search import WeightedTask
from whet.tune.space import make_space
from zoo.networks import Network

PRECISIONS = ("fp32", "fp32x3", "tf32", "fp16")
ROUNDS = 25


@dataclass(frozen=True)
class Tried:
    """The first candidates of a task, and what became of them."""

    weighted: WeightedTask
    expected: tuple[float, ...]
    """Seconds, by their prices."""
    ends: tuple[Measured, ...]

    @property
    def first(self) -> float:
        return self.ends[0].seconds

    @property
    def best(self) -> float:
        return min(end.seconds for end in self.ends)

    def row(self) -> dict[str, Any]:
        return {
            "task": self.weighted.name, "times": self.weighted.count,
            "kernels": [
                {"candidate": str(end.candidate), "expected_us": 1e6 * seconds,
                 "us": 1e6 * end.seconds if end.ok else None, "outcome": end.outcome.name}
                for seconds, end in zip(self.expected, self.ends, strict=True)
            ],
        }  # fmt: skip


def main() -> None:
    given = arguments().parse_args()
    report = Report("Networks on a GPU and their tasks, batch 1", settings_of(given))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for precision in given.precision:
            rows = []
            for network in networks(folder, given.only or list(BUILDERS)):
                say(f"{network.name}, {precision}")
                found = measured(network, precision, given, folder / "records.db")
                report.rows.append(found)
                rows.append(row(found))
                say("  ".join(rows[-1]))
            head = ["network", "default, us", "its kernels", "expected", "best of each, us",
                    "its kernels", "error"]  # fmt: skip
            report.add_table(precision, head, rows)
    report.finish(given.json)


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(1,))
    made.add_argument("--only", nargs="+", metavar="NAME", choices=list(BUILDERS))
    made.add_argument("--precision", nargs="+", default=list(PRECISIONS), choices=PRECISIONS)
    made.add_argument("--first", type=int, default=10, help="candidates of each task")
    made.add_argument("--kernels", type=Path, metavar="OUT", help="write what was measured")
    return made


def measured(
    network: Network, precision: str, given: argparse.Namespace, records: Path
) -> dict[str, Any]:
    sample = network.sample()
    model = whet.compile(str(network.path), target="cuda", precision=precision)
    target = default_engine(say, "cuda", precision).target
    assert isinstance(target, GpuTarget)
    error = error_of(model, sample, reference(network, sample))
    default = replay_seconds(model._first.executable)
    start = time.perf_counter()
    with closing(backend_of(target).runner()) as runner, Database(records) as database:
        tasks = []
        for weighted in weighted_tasks([model.graph], target, 1, "real"):
            tried = first_ones(weighted, target, given.first)
            ends = tuple(runner.trials(weighted.task, [c for _, c in tried], 1, target))
            expected = tuple(seconds for seconds, _ in tried)
            tasks.append(Tried(weighted, expected, ends))
            database.add(
                record_of(end, weighted.task, target, 1, estimate=seconds)
                for seconds, end in zip(expected, ends, strict=True)
            )
        taken = time.perf_counter() - start
        known = Schedules(target, 1, "real", database)
        chosen = build(model.graph, target, 1, schedule=known, evidence=known.faster)
        chosen([sample[value.name] for value in model.graph.inputs])
    if given.kernels:
        write(given.kernels, network.name, tasks)
    used = [t for t in tasks if not t.weighted.alternative]
    return {
        "network": network.name, "precision": precision, "error": error,
        "default_us": 1e6 * default, "best_us": 1e6 * replay_seconds(chosen),
        "firsts_us": 1e6 * sum(t.weighted.count * t.first for t in used),
        "bests_us": 1e6 * sum(t.weighted.count * t.best for t in used),
        "expected_us": 1e6 * sum(t.weighted.count * t.expected[0] for t in used),
        "trials": sum(len(t.ends) for t in tasks), "trials_s": taken,
        "tasks": [t.row() for t in tasks],
    }  # fmt: skip


def first_ones(
    weighted: WeightedTask, target: GpuTarget, count: int
) -> list[tuple[float, Candidate]]:
    """The candidates of all sketches that are expected to be the fastest, with their seconds."""
    tables = make_space(weighted.task, target, 1).tables
    ranked = sorted(
        (float(cost), number, row)
        for number, table in enumerate(tables) for row, cost in enumerate(table.costs)
    )  # fmt: skip
    return [(1e-9 * cost, tables[n].candidate(row)) for cost, n, row in ranked[:count]]


def replay_seconds(executable: NativeExecutable) -> float:
    return statistics.median(replayed_seconds(executable) for _ in range(ROUNDS))


def row(found: dict[str, Any]) -> list[str]:
    times = ("default_us", "firsts_us", "expected_us", "best_us", "bests_us")
    return [found["network"], *(number(found[t]) for t in times), f"{found['error']:.1e}"]


def write(path: Path, network: str, tasks: Sequence[Tried]) -> None:
    """Adds the contractions that gave right results to the file."""
    with path.open("a") as file:
        for tried in tasks:
            for leaf in LEAVES.values():
                mine = [e for e in tried.ends if e.candidate.sketch == f"gpu_{leaf.name}"]
                form = find_gpu_contraction(tried.weighted.task, leaf) if mine else None
                if form is None or form.contraction.batch > 1:
                    continue
                name = f"{network} {tried.weighted.name} {tried.weighted.task.key[:6]}"
                for line in own_rows(name, network, form, mine):
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
