"""Default kernels against the best of many trials: what does the analytic model miss?

    python bench/defaults.py [--threads 1] [--trials 200] [--only GMM C2D gemm] [--json OUT]
    WHET_TARGET=x86-64-v3 python bench/defaults.py            the same for another processor

The operators of the Ansor paper at batch 1, and matrix products with constant and with given second
matrices.  Every case is tuned from nothing; what the search found best is compared with the default
in turns (`whet tune` confirms its winners), and the speed of the default is given as a part of that
of the best.  What is done is kept in --work: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from gemm import SHAPES
from harness.report import Goal, Report, geometric_mean, number, say, settings_of
from harness.tuning import native_engine, tasks_of, tune, use_database
from whet.tune.tuner import Budget
from zoo.layers import matmul_model
from zoo.operators import FAMILIES, cases

MEAN, WORST = 0.95, 0.8
"""What the geometric mean and every single case should reach."""
WORK = Path(__file__).parent / "work" / "defaults"


def arguments() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--trials", type=int, default=200, help="trials per case")
    made.add_argument("--seconds", type=float, default=60.0, help="most seconds of search per case")
    made.add_argument("--only", nargs="+", metavar="FAMILY", choices=[*FAMILIES, "gemm"])
    made.add_argument("--work", type=Path, default=WORK, help="where to keep what is done")
    made.add_argument("--json", type=Path, metavar="OUT")
    return made


def models(only: list[str] | None) -> Iterator[tuple[str, onnx.ModelProto]]:
    """The cases by name."""
    chosen = only or [*FAMILIES, "gemm"]
    if "gemm" in chosen:
        for shape in SHAPES:
            for constant in (True, False):
                name = "x".join(map(str, shape)) + (", constant B" if constant else ", packed B")
                yield name, matmul_model(*shape, constant)
    for case in cases([f for f in FAMILIES if f in chosen], batches=(1,)):
        yield str(case), case.model()


def main() -> None:
    given = arguments().parse_args()
    target = native_engine().target
    folder = given.work / f"{target.cpu}_{given.threads}"
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / "cases.jsonl"
    done = [json.loads(line) for line in state.read_text().splitlines()] if state.exists() else []
    known = {row["case"]: row for row in done}
    use_database(folder / "records.db")
    for name, model in models(given.only):
        if name not in known:
            known[name] = measure(name, model, given)
            with state.open("a") as file:
                file.write(json.dumps(known[name]) + "\n")
            say(f"{name}: {known[name]['share']:.3f} of the best of {known[name]['trials']}")
    finish(Report("Default kernels", settings_of(given)), known, given)


def measure(name: str, model: onnx.ModelProto, given: argparse.Namespace) -> dict[str, Any]:
    """One case: seconds of the default and of the best kernels, all tasks together."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        tasks = tasks_of(path, given.threads)
    reports = tune(tasks, given.threads, Budget(given.seconds, given.trials))
    used = [r for r in reports if r.count and r.known]
    default = sum(r.count * r.default_seconds for r in used)
    best = sum(r.count * min(r.best_seconds, r.default_seconds) for r in used)
    return {
        "case": name, "threads": given.threads, "default_s": default, "best_s": best,
        "share": best / default, "trials": sum(r.trials for r in reports),
        "tuning_s": time.monotonic() - start, "schedules": [r.schedule for r in used],
    }  # fmt: skip


def finish(report: Report, known: dict[str, dict[str, Any]], given: argparse.Namespace) -> None:
    rows = [known[name] for name, _ in models(given.only) if name in known]
    report.rows += rows
    report.add_table(
        f"Default against best of {given.trials}, {given.threads} thread(s)",
        ("case", "default µs", "best µs", "share", "trials"),
        [[r["case"], number(1e6 * r["default_s"]), number(1e6 * r["best_s"]), number(r["share"]),
          str(r["trials"])] for r in rows],
    )  # fmt: skip
    shares = [r["share"] for r in rows]
    if shares:
        report.goals.append(Goal("geometric mean", geometric_mean(shares), MEAN))
        report.goals.append(Goal("worst case", min(shares), WORST))
    report.finish(given.json)


if __name__ == "__main__":
    main()
