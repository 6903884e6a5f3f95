"""Whether few trials and a descent replace a long search."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial

from harness.replay import OutOfTime, Replay
from harness.report import Goal, Report, geometric_mean, number, say
from searches.races import MOST_SEEDS, Machine, Subject, largest_task, trials_by
from whet.measure.cpu.measurer import Measurer
from whet.measure.results import Candidate
from whet.tune.policies import Policy, find_policy
from whet.tune.policies.compose import ExploreThenDroplet
from whet.tune.space import Row
from whet.tune.timing import Timing
from zoo.operators import Case

DROPLET_OPERATORS = {"C1D": 1, "GMM": 0, "CAP": 3}
"""Operators whose trials are short and whose spaces have more than the long search's trials."""
EXPLORED, DESCENT, LONG = 100, 100, 1000
LONG_ROUND = 50
"""Trials between two proposals of evolution, as in Ansor; both searches begin with the same."""
FINALISTS = 4
"""The fastest of a search that are timed again: the best of many noisy times is too good."""
KNOWN_TO = 0.98
"""Times are known to 2 %, so a search has reached what another has if it comes this near."""


def droplet(report: Report, given: argparse.Namespace, where: Machine, replay: Replay) -> None:
    """Few explored trials and a descent, against many trials of the same evolution.

    The finalists of both are measured again, and the two winners take turns.
    """
    lines, shares = [], []
    try:
        for seed in range(min(given.seeds, MOST_SEEDS)):
            for name, number_ in DROPLET_OPERATORS.items():
                case = Case(name, number_, 1)
                subject = largest_task(str(case), case.model(), where)
                search = partial(trials_by, subject, seed=seed, replay=replay, where=where)
                first = search(evolution(), EXPLORED, batch=LONG_ROUND)
                descent = ExploreThenDroplet(evolution(), explored=0)
                few = search(descent, EXPLORED + DESCENT, known=first)
                many = search(evolution(), LONG, batch=LONG_ROUND)
                explored = min(first.values())
                short, long = (winner(subject, k, replay.measurer, where) for k in (few, many))
                turns = replay.measurer.compare(
                    subject.task.task, short, long, where.threads, where.target, seconds=2.0
                )
                shares.append(1 / turns.ratio)
                report.rows.append({
                    "section": "droplet", "operator": name, "seed": seed, "share": shares[-1],
                    "low": 1 / turns.high, "high": 1 / turns.low, "few": len(few),
                    "many": len(many), "seconds": [explored, min(few.values()),
                                                   min(many.values())],
                })  # fmt: skip
                lines.append([
                    str(case), str(seed), str(subject.space.size), number(1e6 * explored),
                    number(1e6 * min(few.values())), number(1e6 * min(many.values())),
                    f"{len(few)} / {len(many)}",
                    f"{number(shares[-1])} ({number(1 / turns.high)} to {number(1 / turns.low)})",
                ])  # fmt: skip
                say(f"{case}, seed {seed}: {shares[-1]:.3f}, {replay.live} live trials")
    except OutOfTime:
        report.notes.append("droplet: the time was up; start again to go on")
    header = ("operator", "seed", "candidates", f"{EXPLORED} explored, us", "then Droplet, us",
              f"{LONG} by evolution, us", "trials", "speed, in turns")  # fmt: skip
    report.add_table("Droplet after few trials, and many trials without it", header, lines)
    what = f"{EXPLORED} explored and {DESCENT} Droplet trials, speed by {LONG} evolutionary ones"
    report.goals.append(Goal(what, geometric_mean(shares), KNOWN_TO))


def evolution() -> Policy:
    return find_policy("evolution")()


def winner(
    subject: Subject, known: Mapping[Row, Timing], measurer: Measurer, where: Machine
) -> Candidate:
    """The fastest of the finalists, timed once more."""
    best = sorted(known, key=lambda row: known[row])[:FINALISTS]
    candidates = [subject.space.candidate(row) for row in best]
    again = measurer.measure(subject.task.task, candidates, where.threads, where.target)
    return min((m for m in again if m.ok), key=lambda m: m.seconds).candidate
