"""How a network's latency falls with the number of trials.

    python bench/trials.py [resnet50] [--trials 0 16 64 256 1024] [--threads 2] [--json OUT]
    python bench/trials.py --onnx model.onnx

Each line goes on from the one before: trials are cumulative, as they are for a user who tunes
again.  After every step the network is compiled anew and timed, in turns with its untuned self.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from harness.peers import Peer
from harness.report import (
    Report,
    count,
    milliseconds,
    number,
    parser,
    say,
    settings_of,
)
from harness.tuning import tasks_of, tune, use_database
from harness.turns import settings_from, take_turns
from whet.core.types import Array
from whet.tune.tuner import Budget
from zoo.networks import BUILDERS, Network, build_networks, described

STEPS = (0, 16, 32, 64, 128, 256, 512, 1024)


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(2,))
    made.add_argument("network", nargs="?", choices=list(BUILDERS), default="squeezenet")
    made.add_argument("--onnx", type=Path, metavar="FILE", help="another network")
    made.add_argument("--trials", type=int, nargs="+", default=list(STEPS))
    made.add_argument("--seconds", type=float, default=1200.0, help="most seconds of search")
    return made


def main() -> None:
    given = arguments().parse_args()
    report = Report("Trials versus latency", settings_of(given))
    for threads in given.threads:
        with tempfile.TemporaryDirectory() as folder:
            network = find_network(given, Path(folder))
            measure(report, network, threads, Path(folder), given)
    report.finish(given.json)


def find_network(given: argparse.Namespace, folder: Path) -> Network:
    if given.onnx is None:
        (found,) = build_networks(folder, [given.network])
        return found
    import onnx

    inputs = onnx.load(given.onnx, load_external_data=False).graph.input
    return Network(given.onnx.stem, given.onnx, tuple(described(i) for i in inputs))


def measure(
    report: Report, network: Network, threads: int, folder: Path, given: argparse.Namespace
) -> None:
    use_database(folder / f"records_{threads}.db")
    tasks, values = tasks_of(network.path, threads), network.sample()
    lines, done, spent = [], 0, 0.0
    with loaded(network, values, threads) as untuned:
        for step in sorted(set(given.trials)):
            start = time.monotonic()
            reports = (
                tune(tasks, threads, Budget(given.seconds - spent, step - done)) if step else []
            )
            done += sum(r.trials for r in reports)
            spent += time.monotonic() - start
            say(f"{network.name}, {count(threads)}: {done} trials, {spent:.0f} s")
            with loaded(network, values, threads) as tuned:
                times = take_turns({"tuned": tuned, "untuned": untuned}, settings_from(given))
            gain = times["untuned"].median / times["tuned"].median
            known = sum(r.total for r in reports) * 1e3 if reports else None
            report.rows.append({"network": network.name, "threads": threads, "trials": done,
                                "seconds": spent, "times": times, "gain": gain,
                                "tasks_ms": known})  # fmt: skip
            lines.append([str(done), number(spent), milliseconds(times["tuned"]),
                          milliseconds(times["untuned"]), number(gain), number(known)])  # fmt: skip
            if spent >= given.seconds:
                report.notes.append(f"stopped after {spent:.0f} s of search")
                break
    header = ("trials", "search s", "ms", "untuned ms", "gain", "sum of tried tasks ms")
    report.add_table(f"{network.name}, {count(threads)}, {len(tasks)} tasks", header, lines)


def loaded(network: Network, values: dict[str, Array], threads: int) -> Peer:
    """whet with the network as it is compiled now."""
    peer = Peer("whet", threads)
    peer.load(str(network.path), values)
    return peer


if __name__ == "__main__":
    main()
