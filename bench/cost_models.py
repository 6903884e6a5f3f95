"""Cost models on tasks that they have never seen: which candidates are fast, and how soon said?

    python bench/cost_models.py --collect 900 --fit --json bench/results/cost_models.json

`--collect SECONDS` measures candidates by chance of the zoo's networks and operators (or those of
folders with an index.json, `--onnx`) into a database and may be repeated: it goes on where it
stopped.  `--fit` teaches every model with two thirds of the tasks and judges it by the others.
`--keep` also puts the recommended model into that database, where tuning finds it.

Pairs of one task that are more than 5 % apart count; `recall@30` is the share of the 30 fastest
candidates among the 30 that a model prefers, on tasks with at least 60; `peak@32` is the best time
of the task by the best among the 32 preferred, again there.  All are means over tasks.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.cost_data import Subject, collect, model_files, stored_trials, subjects_of
from harness.report import Goal, Report, number, say, settings_of
from whet.build.cpu.calibrate import calibrated_target
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.cpu import host_target
from whet.core.types import Array
from whet.db.store import Database
from whet.tune.models.analytic import Analytic
from whet.tune.models.kept import keep_model
from whet.tune.models.protocol import CostModel, Learner, Trials
from whet.tune.models.ranking import RankingLearner
from whet.tune.models.trees import CorrectionLearner, SummedTrees, ThroughputLearner, good_trials

DATABASE = Path(__file__).parent / "work" / "cost_models.db"
APART = 1.05
TOP, PEAK = 30, 32
LARGE = 2 * TOP
"""Candidates that a task must have for recall and peak to mean something."""
BATCH = 8192
RECOMMENDED = "correction, programs"
LEARNERS: Mapping[str, Learner] = {
    "analytic": Analytic(),
    RECOMMENDED: CorrectionLearner(),
    "correction, statements": CorrectionLearner(rows="statements"),
    "throughput, statements": ThroughputLearner(),
    "rank, itervar": RankingLearner("itervar"),
    "rank, curve": RankingLearner("curve"),
}


def arguments() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("--db", type=Path, default=DATABASE, help="where trials are kept")
    made.add_argument("--onnx", type=Path, nargs="+", default=[], metavar="FOLDER")
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--tasks", type=int, default=110, help="how many, a third of them held out")
    made.add_argument("--candidates", type=int, nargs=2, default=(80, 120), metavar="N",
                      help="of tasks that are held out, of others")  # fmt: skip
    made.add_argument("--collect", type=float, default=0.0, metavar="SECONDS")
    made.add_argument("--fit", action="store_true")
    made.add_argument("--keep", action="store_true")
    made.add_argument("--json", type=Path, metavar="OUT")
    return made


@dataclass(frozen=True)
class Verdict:
    """How well scores of one task's candidates agree with their times."""

    pairs: int
    accuracy: float
    recall: float
    peak: float


def judge(scores: Array, seconds: Array) -> Verdict:
    """NaN where a task has too few candidates, or none that differ."""
    apart = seconds[:, None] * APART < seconds[None]
    right = (scores[:, None] > scores[None]) + 0.5 * (scores[:, None] == scores[None])
    accuracy = float(right[apart].mean()) if apart.any() else np.nan
    recall = peak = np.nan
    if len(seconds) >= LARGE:
        fastest, preferred = np.argsort(seconds)[:TOP], np.argsort(-scores)[:PEAK]
        recall = len(set(fastest) & set(preferred[:TOP])) / TOP
        peak = float(seconds.min() / seconds[preferred].min())
    return Verdict(int(apart.sum()), accuracy, recall, peak)


def verdicts(model: CostModel, tasks: Sequence[Sequence[Trials]]) -> list[Verdict]:
    found = []
    for trials in tasks:
        scores = np.concatenate([model.scores(t.batch) for t in trials])
        seconds = np.concatenate([t.seconds for t in trials])
        ok = np.isfinite(seconds)
        found.append(judge(scores[ok], seconds[ok]))
    return found


def mean(values: Sequence[float]) -> float:
    found = [v for v in values if not np.isnan(v)]
    return float(np.mean(found)) if found else float("nan")


def speed(model: CostModel, subjects: Sequence[Subject], seconds: float = 1.0) -> float:
    """Candidates scored per second of one core, in batches of contractions, the largest spaces."""
    large = max((b for s in subjects for b in s.batches if b.sketch.name == "contraction"), key=len)
    rows = np.resize(np.arange(len(large)), BATCH)
    model.scores(large.take(rows[:64]))
    # All models use one thread; its own time leaves out what others take of the core.
    start, count = time.process_time(), 0
    while time.process_time() - start < seconds:
        model.scores(large.take(rows))
        count += BATCH
    return count / (time.process_time() - start)


def fit(
    report: Report, subjects: Sequence[Subject], database: Database, *, keep: bool
) -> None:  # fmt: skip
    trials = stored_trials(subjects, database)
    held = [trials[s.task.key] for s in subjects if s.held_out and s.task.key in trials]
    taught = [t for s in subjects if not s.held_out for t in trials.get(s.task.key, ())]
    say(f"{sum(len(t.batch) for t in taught)} trials to learn from, {len(held)} tasks held out")
    lines, found = [], {}
    for name, learner in LEARNERS.items():
        start = time.perf_counter()
        model = learner.fit(taught)
        took = time.perf_counter() - start
        result = verdicts(model, held)
        found[name] = {
            "accuracy": mean([v.accuracy for v in result]),
            "recall": mean([v.recall for v in result]),
            "peak": mean([v.peak for v in result]),
            "speed": speed(model, subjects),
            "fit_s": took,
        }
        report.rows.append({"model": name, **found[name]})
        lines.append([name, *(number(found[name][k]) for k in ("accuracy", "recall", "peak")),
                      f"{found[name]['speed']:,.0f}", number(took)])  # fmt: skip
        say(" ".join(lines[-1]))
        if keep and name == RECOMMENDED and isinstance(model, SummedTrees):
            keep_model(database, subjects[0].batches[0].target, model, good_trials(taught))
    header = ("model", "pairs in order", f"recall@{TOP}", f"peak@{PEAK}", "candidates/s", "fit, s")
    report.add_table(f"{len(held)} tasks that no model has seen", header, lines)
    by_sketch(report, held, LEARNERS[RECOMMENDED].fit(taught))
    best, plain = found[RECOMMENDED], found["analytic"]
    report.goals += [
        Goal("held-out tasks", float(len(held)), 30),
        Goal("pairs in order", best["accuracy"], 0.85),
        Goal("recall@30", known(best["recall"]), 0.6),
        Goal("peak@32", known(best["peak"]), 0.9),
        Goal("pairs in order, by the analytic model's", best["accuracy"] / plain["accuracy"], 1.0),
        Goal("candidates per second and core, analytic", plain["speed"], 1e5),
        Goal("candidates per second and core, features and trees", best["speed"], 2e4),
    ]


def known(value: float) -> float | None:
    return None if np.isnan(value) else value


def by_sketch(report: Report, held: Sequence[Sequence[Trials]], model: CostModel) -> None:
    """Pairs within one sketch, where the analytic model has only details to go by."""
    names = dict.fromkeys(t.batch.sketch.name for trials in held for t in trials)
    lines = []
    for name in names:
        own = [[t for t in trials if t.batch.sketch.name == name] for trials in held]
        own = [trials for trials in own if sum(len(t.batch) for t in trials) >= 4]
        if own:
            plain, learned = (mean([v.accuracy for v in verdicts(m, own)])
                              for m in (Analytic(), model))  # fmt: skip
            lines.append([name, str(len(own)), number(plain), number(learned)])
    report.add_table("Pairs of one sketch in order", ("sketch", "tasks", "analytic", RECOMMENDED),
                     lines)  # fmt: skip


def main() -> None:
    given = arguments().parse_args()
    given.db.parent.mkdir(parents=True, exist_ok=True)
    cache = FileCache(process_config().cache)
    target = calibrated_target(host_target(cache), cache, say)
    report = Report("Cost models", settings_of(given))
    with tempfile.TemporaryDirectory() as folder, Database(given.db) as database:
        files = model_files(Path(folder), given.onnx)
        subjects = subjects_of(files, target, given.threads, given.tasks)
        say(f"{len(subjects)} tasks, {sum(s.held_out for s in subjects)} of them held out")
        if given.collect:
            collect(subjects, database, given.collect, tuple(given.candidates))
        if given.fit:
            fit(report, subjects, database, keep=given.keep)
            report.finish(given.json)


if __name__ == "__main__":
    main()
