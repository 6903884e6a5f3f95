"""Ten operators against TVM MetaSchedule at equal trials.

    python -m venv TVM && TVM/bin/pip install apache-tvm apache-tvm-ffi==0.1.14 onnx xgboost \\
        cloudpickle
    python bench/peers_tvm.py --python TVM/bin/python [--trials 64] [--only C2D_2_b1 ...]
        [--cap 1800] [--json OUT]

MetaSchedule tunes and runs in a process of its own, with an interpreter of its own if one is
given, through its graph front end; it is ended after --cap seconds per case, and what timed out or
failed is listed as such.  whet gets as many trials.  The two then take turns.  Without TVM nothing
is measured, and the report says so.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from harness.peers import Peer, error_of_range
from harness.report import (
    ABSENT,
    Report,
    count,
    geometric_mean,
    milliseconds,
    number,
    parser,
    say,
    settings_of,
)
from harness.tuning import tasks_of, tune, use_database
from harness.turns import settings_from, take_turns
from whet.core.closing import Closing
from whet.core.errors import WhetError
from whet.tune.tuner import Budget
from zoo.operators import Case, cases

CASES = ("C1D_0_b1", "C2D_1_b1", "C2D_2_b1", "C3D_3_b1", "GMM_2_b1", "GRP_2_b1", "DEP_0_b1",
         "T2D_1_b1", "CAP_1_b1", "NRM_2_b1")  # fmt: skip


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__, default_threads=(2,))
    made.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    made.add_argument("--trials", type=int, default=64)
    made.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="the interpreter that has TVM"
    )
    made.add_argument("--cap", type=float, default=1800.0, help="seconds per case for TVM")
    return made


def main() -> None:
    given = arguments().parse_args()
    report = Report("TVM MetaSchedule", settings_of(given))
    chosen = [c for c in cases() if str(c) in given.only]
    for threads in given.threads:
        with tempfile.TemporaryDirectory() as folder, Tvm(threads, given) as tvm:
            use_database(Path(folder) / "records.db")
            rows = [measure(c, threads, Path(folder), tvm, given) for c in chosen]
        report.rows += rows
        lines = [
            [row["case"], milliseconds(row["times"].get("whet")),
             milliseconds(row["times"].get("tvm")), number(row["ratio"]), number(row["whet_s"]),
             number(row["tvm_s"]), number(row["error"], 2), row["note"] or ABSENT]
            for row in rows
        ]  # fmt: skip
        mean = geometric_mean(r["ratio"] for r in rows if r["ratio"])
        lines.append(["geometric mean", "", "", number(mean), "", "", "", ""])
        header = ("case", "whet ms", "TVM ms", "ratio", "whet tuning s", "TVM tuning s", "error",
                  "note")  # fmt: skip
        report.add_table(f"{count(threads)}, {given.trials} trials", header, lines)
    report.finish(given.json)


class Tvm(Closing):
    """TVM's process, for all cases: starting it takes longer than tuning a small one."""

    def __init__(self, threads: int, given: argparse.Namespace) -> None:
        self.make = partial(Peer, "tvm", threads, given.cap, str(given.python))
        self.peer = self.make()

    def ready(self) -> Peer:
        """The process, or a new one where it was ended."""
        if self.peer.process.poll() is not None:
            self.peer.close()
            self.peer = self.make()
        return self.peer

    def close(self) -> None:
        self.peer.close()


def measure(
    case: Case, threads: int, folder: Path, tvm: Tvm, given: argparse.Namespace
) -> dict[str, Any]:
    say(f"{case}, {count(threads)}")
    network = case.written(folder)
    values = network.sample()
    start = time.monotonic()
    tune(tasks_of(network.path, threads), threads, Budget(given.cap, given.trials))
    own_s = time.monotonic() - start
    row: dict[str, Any] = {"case": str(case), "times": {}, "ratio": None, "error": None,
                           "whet_s": own_s, "tvm_s": None, "note": ""}  # fmt: skip
    with Peer("whet", threads) as own:
        other = tvm.ready()
        own.load(str(network.path), values)
        start = time.monotonic()
        try:
            # A budget, for this runtime, is a number of trials.
            other.load(str(network.path), values, budget=float(given.trials))
            row["tvm_s"] = time.monotonic() - start
            row["error"] = max(error_of_range(a, b) for a, b in zip(own.run(), other.run()))
            row["times"] = take_turns({"whet": own, "tvm": other}, settings_from(given))
            row["ratio"] = row["times"]["tvm"].median / row["times"]["whet"].median
        except WhetError as error:
            row["note"] = error.message
            row["times"] = take_turns({"whet": own}, settings_from(given))
    say(f"{case}: {number(row['ratio'])}x, TVM took {number(row['tvm_s'])} s {row['note']}")
    return row


if __name__ == "__main__":
    main()
