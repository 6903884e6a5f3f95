"""Networks rewritten for ONNX Runtime: what `whet superopt` writes, checked and measured.

    python bench/superopt.py [--threads 2] [--only nasrnn] [--budget 45s]

Both models run with all of ONNX Runtime's own optimizations, each in a process of its own, in
turns; the interval is that of the median ratio over rounds (95 %).  A network that nothing surely
faster was found for is written as it was, and has no ratio.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import onnx

from harness.report import ABSENT, Goal, Report, count, number, parser, say, settings_of
from zoo.networks import BUILDERS, build_networks

GAINS = {"nasrnn": 1.3}
"""Gains that are wanted; no other network may lose."""


def main() -> None:
    given = arguments().parse_args()
    report = Report("Networks rewritten for ONNX Runtime", settings_of(given))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        networks = build_networks(folder, given.only or list(BUILDERS))
        for threads in given.threads:
            rows = []
            for network in networks:
                say(f"rewriting {network.name}")
                better = folder / f"{network.name}.better.onnx"
                found = rewritten(network.path, better, threads, given)
                onnx.checker.check_model(str(better))
                rows.append(row(report, network.name, found))
                report.rows.append({"network": network.name, "threads": threads, **found})
            header = ["network", "graphs", "measured", "95 %", "steps"]
            report.add_table(f"Rewritten by ONNX Runtime's times, {count(threads)}", header, rows)
    report.finish(given.json)


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(2,))
    made.add_argument("--only", nargs="+", metavar="NAME", choices=list(BUILDERS))
    made.add_argument("--budget", default="45s", metavar="TIME", help="search per network")
    made.add_argument("--measure", type=float, default=5.0, help="seconds of calls per model")
    return made


def rewritten(
    path: Path, better: Path, threads: int, given: argparse.Namespace
) -> dict[str, Any]:  # fmt: skip
    """What the command says of a network."""
    command = [sys.executable, "-m", "whet", "superopt", str(path), "-o", str(better),
               "--cost", "onnxruntime", "--budget", given.budget, "--seconds", str(given.measure),
               "--threads", str(threads), "--json", "--quiet"]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return {key: value for key, value in found.items() if key != "output"}


def row(report: Report, network: str, found: dict[str, Any]) -> list[str]:
    if not found["changed"]:
        return [network, str(found["graphs"]), ABSENT, "as it was", ABSENT]
    low, high = found["measured_interval"]
    gain = found["measured_gain"]
    report.goals.append(Goal(f"{network}, gain", gain, GAINS.get(network, 1.0)))
    report.goals.append(Goal(f"{network}, end of the interval", high, 1.0))
    rules: Counter[str] = Counter()
    for step in found["steps"]:
        rules.update(step)
    told = ", ".join(f"{rule} x{n}" for rule, n in rules.most_common(4))
    return [network, str(found["graphs"]), number(gain), f"{number(low)} to {number(high)}", told]


if __name__ == "__main__":
    main()
