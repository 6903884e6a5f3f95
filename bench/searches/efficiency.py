"""How few trials searches need to come near the best that is known."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from harness.replay import OutOfTime, Replay
from harness.report import Goal, Report, number, say
from searches.races import (
    ROUND,
    Machine,
    Pool,
    Subject,
    operator_subject,
    race,
    share_of,
    trials_to,
)
from whet.measure.results import Candidate
from whet.tune.policies import Policy, find_policy
from whet.tune.policies.chance import RandomSearch
from whet.tune.policies.draft import Draft
from whet.tune.policies.evolution import Evolution
from whet.tune.space import Row
from whet.tune.timing import Timing

Curves = dict[tuple[str, str], list[float]]
"""The best seconds after every trial, by policy and operator."""
SHARES = (0.9, 0.95)
AFTER = (8, 32)
"""Numbers of trials, beside all, after which the share that was reached is shown."""
FEWEST_CANDIDATES = 64
"""Operators with fewer candidates are shown, but do not count: anything finds the best there."""


def contestants(trials: int) -> dict[str, Callable[[], Policy]]:
    """Who is compared: the default, what it is made of, and chance."""
    return {
        "default": find_policy("default"),
        "default, no Droplet": Draft,
        "learned": find_policy("learned"),
        "learned, no Droplet": find_policy("evolution"),
        "evolution, analytic model": Evolution,
        "random": lambda: Pool(trials + trials // 4),
    }


def efficiency(report: Report, given: argparse.Namespace, where: Machine, replay: Replay) -> None:
    """Trials to 90 % and 95 % of the best, over operators and seeds."""
    subjects = [operator_subject(name, where) for name in given.operators]
    policies = {
        name: make for name, make in contestants(given.trials).items()
        if given.policies is None or name in ("default", *given.policies)
    }  # fmt: skip
    seeds: list[Curves] = []
    try:
        for seed in range(given.seeds):
            found = {}
            for subject in subjects:
                for name, make in policies.items():
                    curve = race(subject, make(), given.trials, seed, replay, where)
                    found[name, subject.name] = curve
                say(f"seed {seed}, {subject.name}: {replay.live} live trials")
            seeds.append(found)
        widen(subjects, given.reference, replay, where)
    except OutOfTime:
        pass  # the notes and the table say how far it came
    report.notes.append(f"efficiency: {len(seeds)} of {given.seeds} seeds are complete and counted")
    if not seeds:
        return
    tried = [len(replay.records(s.task.task, where.target, where.threads)) for s in subjects]
    counts = [["candidates", *(str(s.space.size) for s in subjects)],
              ["trials that set the standard", *map(str, tried)]]  # fmt: skip
    report.add_table("Operators", ("", *(s.name for s in subjects)), counts)
    best = {s.name: replay.best(s.task.task, where.target, where.threads) for s in subjects}
    counted = [s.name for s in subjects if s.space.size >= FEWEST_CANDIDATES]
    medians = {
        share: add_trials_to(report, share, list(policies), seeds, best, counted, given.trials)
        for share in SHARES
    }
    add_shares(report, list(policies), seeds, best, counted, given.trials)
    for found in seeds:
        report.rows += [{"section": "efficiency", "policy": p, "operator": o, "best": best[o],
                         "curve": curve} for (p, o), curve in found.items()]  # fmt: skip
    wide = all(n >= min(given.reference, s.space.size) for n, s in zip(tried, subjects))
    for share, bound in zip(SHARES, (32, 100)) if given.reference >= 1000 else ():
        what = f"median trials to {share:.0%} of the best of {given.reference}"
        report.goals.append(
            Goal(what, medians[share]["default"] if wide else None, bound, at_least=False)
        )


def add_trials_to(
    report: Report, share: float, policies: Sequence[str], seeds: Sequence[Curves],
    best: Mapping[str, float], counted: Sequence[str], most: int,
) -> dict[str, float]:  # fmt: skip
    """The table of trials until a share of the best was reached; each policy's median."""
    medians, rows = {}, []
    for policy in policies:
        each = {
            name: statistics.median(trials_to(found[policy, name], share, best[name])
                                    for found in seeds)
            for name in best
        }  # fmt: skip
        medians[policy] = statistics.median(each[n] for n in counted)
        cells = [*each.values(), medians[policy]]
        rows.append([policy, *(shown_trials(t, most) for t in cells)])
    title = f"Trials to {share:.0%} of the best of all trials"
    report.add_table(title, ("", *best, "median"), rows)
    return medians


def add_shares(
    report: Report, policies: Sequence[str], seeds: Sequence[Curves],
    best: Mapping[str, float], counted: Sequence[str], trials: int,
) -> None:  # fmt: skip
    """The table of the share of the best that is reached after some numbers of trials."""
    after = (*AFTER, trials)
    rows = []
    for policy in policies:
        shares = [
            [share_of(found[policy, n][:most], best[n]) for n in counted for found in seeds]
            for most in after
        ]
        rows.append([policy, *(f"{100 * statistics.mean(s):.1f} %" for s in shares)])
    report.add_table("Mean share of the best's speed", ("", *(f"{n} trials" for n in after)), rows)


def widen(subjects: Sequence[Subject], reference: int, replay: Replay, where: Machine) -> None:
    """Trials until every task has as many as the standard asks for, or none is left.

    Half of them are the model's favourites, half are by chance.
    """
    rng = np.random.default_rng(99)
    policies: tuple[Policy, ...] = (Evolution(), RandomSearch())
    waiting = list(subjects)
    while waiting:
        subject = min(waiting, key=lambda s: len(tried_rows(s, replay, where)))
        known = tried_rows(subject, replay, where)
        missing = min(4 * ROUND, reference - len(known))
        rows: list[Row] = []
        for policy in policies if missing > 0 else ():
            taken = {**known, **dict.fromkeys(rows, Timing())}
            rows += policy.propose(subject.space, taken, -(-missing // 2), rng)
        if not rows:
            waiting.remove(subject)
            continue
        candidates = [subject.space.candidate(r) for r in rows]
        replay.measure(subject.task.task, candidates, where.threads, where.target)


def tried_rows(subject: Subject, replay: Replay, where: Machine) -> dict[Row, Timing]:
    """The trials of a task that are recorded."""
    found = {}
    for r in replay.records(subject.task.task, where.target, where.threads).values():
        row = subject.space.find(Candidate(r.sketch, r.holes))
        if row is not None:
            found[row] = Timing(r.samples if r.seconds is not None else ())
    return found


def shown_trials(trials: float, most: int) -> str:
    return f"> {most}" if trials == float("inf") else number(trials)
