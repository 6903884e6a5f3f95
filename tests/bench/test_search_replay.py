"""The benchmark of searches: what is recorded is not measured again, and standards are honest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from harness.replay import OutOfTime, Replay
from searches.droplet import FINALISTS, winner
from searches.efficiency import tried_rows, widen
from searches.races import (
    Machine,
    Pool,
    Subject,
    operator_subject,
    race,
    share_of,
    trials_by,
    trials_to,
)
from whet.core.cpu import PRESETS, CpuTarget
from whet.core.outcomes import Outcome
from whet.db.store import Database
from whet.measure.results import Candidate, Measured
from whet.tasks.task import Task
from whet.tune.policies.chance import RandomSearch
from whet.tune.policies.droplet import Droplet
from whet.tune.timing import Timing

TARGET = PRESETS["x86-64-v3"]
WHERE = Machine(TARGET, 1)


class Counting:
    """Made-up times, and how many were asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def measure(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: CpuTarget
    ) -> list[Measured]:
        self.asked += len(candidates)
        return [
            Measured(c, Outcome.OK, (1e-6 * (1 + sum(c.holes.values())),) * 3, checked=True)
            for c in candidates
        ]


@pytest.fixture(scope="module")
def subject() -> Subject:
    return operator_subject("GMM", WHERE)


def test_candidates_are_measured_once(tmp_path: Path, subject: Subject) -> None:
    live = Counting()
    with Database(tmp_path / "r.db") as database:
        first = Replay(database, live)  # type: ignore[arg-type]
        curve = race(subject, RandomSearch(), 24, 0, first, WHERE)
        assert (first.live, first.replayed, live.asked) == (24, 0, 24)
        assert curve == sorted(curve, reverse=True)
        again = Replay(database, live)  # type: ignore[arg-type]
        assert race(subject, RandomSearch(), 24, 0, again, WHERE) == curve
        assert (again.live, again.replayed, live.asked) == (0, 24, 24)
        assert again.best(subject.task.task, TARGET, 1) == curve[-1]


def test_after_the_time_is_up_only_records_count(tmp_path: Path, subject: Subject) -> None:
    with Database(tmp_path / "r.db") as database:
        replay = Replay(database, Counting())  # type: ignore[arg-type]
        race(subject, RandomSearch(), 8, 0, replay, WHERE)
        replay.end = time.monotonic() - 1
        assert len(race(subject, RandomSearch(), 8, 0, replay, WHERE)) == 8
        with pytest.raises(OutOfTime):
            race(subject, RandomSearch(), 8, 1, replay, WHERE)


def test_the_standard_rests_on_as_many_trials_as_it_says(tmp_path: Path, subject: Subject) -> None:
    with Database(tmp_path / "r.db") as database:
        replay = Replay(database, Counting())  # type: ignore[arg-type]
        widen([subject], 100, replay, WHERE)
        assert len(tried_rows(subject, replay, WHERE)) == 100


def test_trials_to_a_share() -> None:
    best = [4.0, 2.0, 1.05, 1.0]
    assert trials_to(best, 0.9, 1.0) == 3
    assert trials_to(best, 0.5, 1.0) == 2
    assert trials_to(best, 0.95, 0.5) == float("inf")
    assert share_of(best[:2], 1.0) == 0.5


def test_chance_shares_its_pool(subject: Subject) -> None:
    pool = Pool(40)
    rows = [set(pool.propose(subject.space, {}, 40, np.random.default_rng(s))) for s in (0, 1)]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 40


def test_a_search_goes_on_from_what_is_known(tmp_path: Path, subject: Subject) -> None:
    """Both searches of the Droplet benchmark begin with the same trials, which cost nothing."""
    with Database(tmp_path / "r.db") as database:
        replay = Replay(database, Counting())  # type: ignore[arg-type]
        first = trials_by(subject, RandomSearch(), 16, 0, replay, WHERE)
        longer = trials_by(subject, Droplet(), 24, 0, replay, WHERE, known=first)
        assert list(longer)[:16] == list(first)
        assert len(longer) == 24
        again = trials_by(subject, RandomSearch(), 24, 0, replay, WHERE, batch=8)
        assert list(again)[:16] == list(first)


def test_the_winner_is_measured_again(subject: Subject) -> None:
    rows = RandomSearch().propose(subject.space, {}, 8, np.random.default_rng(0))
    lucky = {row: Timing((1e-6 * (n + 1),)) for n, row in enumerate(rows)}
    live = Counting()
    chosen = winner(subject, lucky, live, WHERE)  # type: ignore[arg-type]
    finalists = [subject.space.candidate(row) for row in rows[:FINALISTS]]
    assert live.asked == FINALISTS
    assert chosen == min(finalists, key=lambda c: sum(c.holes.values()))
