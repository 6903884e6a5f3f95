"""ResNet-50 tuned for ten minutes: how near is it to its roofline, and is the sum of its tasks
what the model takes?

    python bench/resnet_tuning.py [--budget 570] [--threads 2] [--json OUT]

The roofline is direct: multiply-adds of the layers as they are written at the measured rate, or
the bytes that each moves; Winograd may go below it.  The sum of the tuned tasks is compared with
the measured time of the compiled model, in turns with ONNX Runtime and the untuned model.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from harness.peers import Peer
from harness.report import Goal, Report, count, milliseconds, number, parser, say, settings_of
from harness.tuning import native_engine, tasks_of, tune, use_database
from harness.turns import settings_from, take_turns
from whet.tune.report import Report as TaskReport
from whet.tune.roofline import roofline_seconds
from whet.tune.tuner import Budget
from zoo.networks import build_networks

MOST_SECONDS = 600.0


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(2,))
    made.add_argument("--network", default="resnet50")
    made.add_argument("--budget", type=float, default=570.0, help="seconds of search")
    made.add_argument("--work", type=Path, help="keep (or go on with) the records in this folder")
    return made


def main() -> None:
    given = arguments().parse_args()
    report = Report(f"{given.network} tuned", settings_of(given))
    with tempfile.TemporaryDirectory() as name:
        for threads in given.threads:
            measure(report, Path(name), threads, given)
    report.finish(given.json)


def measure(report: Report, folder: Path, threads: int, given: argparse.Namespace) -> None:
    use_database((given.work or folder) / f"{given.network}_{threads}.db")
    (network,) = build_networks(folder, [given.network])
    values = network.sample()
    untuned = Peer("whet", threads)
    untuned.load(str(network.path), values)
    start = time.monotonic()
    tasks = tasks_of(network.path, threads)
    tuned = tune(tasks, threads, Budget(given.budget))
    seconds = time.monotonic() - start
    say(f"{sum(r.trials for r in tuned)} trials in {seconds:.0f} s")
    peers = {"untuned": untuned, "whet": Peer("whet", threads),
             "onnxruntime": Peer("onnxruntime", threads)}  # fmt: skip
    for name in ("whet", "onnxruntime"):
        peers[name].load(str(network.path), values)
    times = take_turns(peers, settings_from(given))
    for peer in peers.values():
        peer.close()
    target = native_engine().target
    roofline = sum(t.count * roofline_seconds(t.task, target, threads) for t in tasks)
    total = sum(r.total for r in tuned)
    default = sum(r.count * r.default_seconds for r in tuned)
    model = times["whet"].median
    lines = [task_line(r, total) for r in sorted(tuned, key=lambda r: -r.total)]
    report.add_table(
        f"Tasks, {count(threads)}",
        ("task", "count", "trials", "default us", "best us", "gain", "GFLOP/s", "% of roofline",
         "% of time"), lines)  # fmt: skip
    figures = {
        "direct roofline, ms": roofline * 1e3, "sum of default tasks, ms": default * 1e3,
        "sum of tuned tasks, ms": total * 1e3, "model, ms": model * 1e3,
        "trials": float(sum(r.trials for r in tuned)), "search, s": seconds,
    }  # fmt: skip
    report.rows.append({"threads": threads, "figures": figures, "times": times})
    summary = [[what, number(value)] for what, value in figures.items()]
    summary += [[f"{name}, ms", milliseconds(m)] for name, m in times.items()]
    report.add_table(f"Sums, {count(threads)}", ("", "found"), summary)
    where, unsure = count(threads), times["whet"].disturbed
    report.goals += [
        Goal(f"{where}: seconds of search", seconds, MOST_SECONDS, at_least=False),
        Goal(f"{where}: tuned tasks by the direct roofline", total / roofline, 1.15,
             at_least=False),
        Goal(f"{where}: |sum of tasks / model - 1|", abs(total / model - 1), 0.15,
             at_least=False, disturbed=unsure),
    ]  # fmt: skip


def task_line(r: TaskReport, total: float) -> list[str]:
    return [r.name, str(r.count), str(r.trials), number(r.default_seconds * 1e6),
            number(r.best_seconds * 1e6), number(r.gain), number(r.gflops),
            number(100 * r.of_roofline), number(100 * r.total / total)]  # fmt: skip


if __name__ == "__main__":
    main()
