"""Random models through the compiler against the interpreter:  python tools/fuzz_graphs.py

    [--count 1000] [--seed 0] [--first 0] [--target NAME] [--jobs 2] [--timeout 120]
    [--out build/fuzz] [--shrink 20] [--no-peer]
    [--replay FOLDER]

Graph number N of a seed is the same on every machine.  Each runs for one of the targets, in a
process that may crash or hang.  Failures are stored under `out` and the first of them are then
made small; `--replay` runs a stored one.  Prints a summary, and exits with 1 if anything failed.
Where ONNX Runtime is of another opinion than both engines, that is stored and counted, and is
no failure: it may be its mistake.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# Work is split over processes, and the same kernels are chosen on every machine.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["WHET_CALIBRATE"] = "0"
os.environ["WHET_STRICT"] = "1"  # an unforeseen failure is seen as such
os.environ["WHET_DB_PATH"] = str(Path(tempfile.gettempdir()) / "whet-fuzz-has-no-records.db")

from tools.graph_fuzz.campaign import Plan, looked_at_again, run_plan
from tools.graph_fuzz.report import Tally
from tools.graph_fuzz.shrink import Budget, shrink
from tools.graph_fuzz.store import replay, store_failure
from tools.graph_fuzz.targets import GPUS, NAMES
from tools.graph_fuzz.trial import make_case

ROOT = Path(__file__).resolve().parents[1]
EVERY = 100
"""Graphs between two lines of progress."""


def fuzz(plan: Plan, out: Path, shrunk: int) -> Tally:
    """Runs a plan and stores its failures."""
    tally, failures, start = Tally(), [], time.monotonic()
    for index, outcome in run_plan(plan):
        if outcome.failed:
            case, _ = make_case(plan.seed, index, plan.target)
            outcome = looked_at_again(case, outcome, plan.timeout)
            folder = out / f"{outcome.kind}-{plan.seed}-{index}"
            title = f"graph {index} of seed {plan.seed}, {outcome.target}, {outcome.style}"
            store_failure(folder, case, case, outcome, title)
            failures.append((index, outcome, folder, title))
            print(f"{outcome.kind}: {title}: {outcome.detail}", flush=True)
        tally.add(outcome)
        if tally.graphs % EVERY == 0:
            print(f"{tally.graphs} graphs, {time.monotonic() - start:.0f} s", flush=True)
    for index, outcome, folder, title in failures[:shrunk]:
        case, _ = make_case(plan.seed, index, plan.target)
        small = shrink(case, outcome, Budget())
        store_failure(folder, case, small, outcome, title)
        print(f"{folder}: {case.size} nodes made {small.size}", flush=True)
    return tally


def is_failure(tally: Tally) -> bool:
    return tally.total("wrong", "error", "outside", "shared", "crash", "hang") > 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Random models against the interpreter")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--target", choices=(*NAMES, *GPUS))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--shrink", type=int, default=20)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--replay", type=Path)
    given = parser.parse_args()
    if given.replay:
        return replay(given.replay)
    plan = Plan(given.seed, given.first, given.count, given.target, given.jobs, given.timeout,
                not given.no_peer)  # fmt: skip
    start = time.monotonic()
    tally = fuzz(plan, given.out, given.shrink)
    lines = [*tally.lines(), "", f"{time.monotonic() - start:.0f} s with {plan.jobs} processes"]
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "summary.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return int(is_failure(tally))


if __name__ == "__main__":
    sys.exit(main())
