"""The search inside a network, with times that are made up."""

from __future__ import annotations

import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.tune.networks import (
    TARGET,
    US,
    MadeUpNetwork,
    MadeUpRunner,
    measured_alone,
    plan_of,
)
from whet.core.outcomes import Outcome
from whet.db.store import Database
from whet.measure.records import record_of
from whet.measure.results import Candidate, Measured
from whet.measure.statistics import NETWORK_MARGIN
from whet.schedule.program.triggers import AT_END, AT_START, NEVER
from whet.tune.finalists import finalists, variants
from whet.tune.refine import CONFIRM_SECONDS, TRIAL_SECONDS, Refiner, RefineTools
from whet.tune.report import Refining
from whet.tune.schedule import Schedules

ROOT = Path(__file__).resolve().parents[2]
PLAN = plan_of()
LONG = 1e6


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "records.db") as made:
        yield made


def refiner(
    database: Database, network: MadeUpNetwork, runner: MadeUpRunner | None = None
) -> Refiner:
    tools = RefineTools(TARGET, 1, database, runner or MadeUpRunner(), clock=network.time)
    return Refiner(network.plan, network, tools, "network")


def chosen_now(database: Database) -> dict[str, Candidate]:
    """What a compilation takes."""
    known = Schedules(TARGET, 1, "real", database).within(PLAN.key)
    return {key: known.chosen(task).candidate for key, task in PLAN.tasks.items()}


def chosen_elsewhere(database: Database) -> dict[str, Candidate]:
    known = Schedules(TARGET, 1, "real", database).within(plan_of(48, 64).key)
    return {key: known.chosen(task).candidate for key, task in PLAN.tasks.items()}


def crowded(before: Candidate | None, c: Candidate) -> float:
    """Kernels take longer behind one like themselves: the best alone are bad neighbours."""
    like = before is not None and before.holes["splits"] == c.holes["splits"]
    return US * (10 + 0.1 * c.holes["splits"] + 3 * like)


def by_chance(seed: int, before: Candidate | None, c: Candidate) -> float:
    """Any time for any pair, whatever kernels take alone."""
    return US * (10 + zlib.crc32(f"{seed} {before and before.key} {c.key}".encode()) % 1000 / 200)


# ------------------------------------------------------------------------------------ exchanges
def test_neighbours_decide(database: Database) -> None:
    measured_alone(database, PLAN)
    network = MadeUpNetwork(PLAN, crowded)
    before = chosen_now(database)
    end = refiner(database, network).run(LONG)
    after = chosen_now(database)
    splits = [after[step.key].holes["splits"] for step in PLAN.steps]  # type: ignore[union-attr]
    assert all(a != b for a, b in pairwise(splits))
    assert network.seconds(after) < 0.85 * network.seconds(before)
    assert (end.before, end.seconds) == pytest.approx(
        (network.seconds(before), network.seconds(after))
    )
    assert end.ended
    assert end.changed == sum(before[key] != after[key] for key in before)


@pytest.mark.parametrize("seed", range(6))
def test_no_exchange_is_left_that_helps(database: Database, seed: int) -> None:
    alone = measured_alone(database, PLAN)
    network = MadeUpNetwork(PLAN, lambda before, c: by_chance(seed, before, c))
    refiner(database, network).run(LONG)
    assert no_exchange_helps(network, chosen_now(database), alone)


def no_exchange_helps(
    network: MadeUpNetwork, chosen: dict[str, Candidate], alone: dict[str, list[Candidate]]
) -> bool:
    """Whether every other candidate of a single task makes the network no faster."""
    least = NETWORK_MARGIN * network.seconds(chosen)
    others = [
        {**chosen, key: candidate}
        for key, finals in alone.items()
        for c in finals
        for candidate in (c, *variants(c, TARGET))
    ]
    return all(network.seconds(other) >= least for other in others)


@pytest.mark.parametrize("seed", range(8))
def test_noise_makes_no_exchanges(database: Database, seed: int) -> None:
    measured_alone(database, PLAN)
    network = MadeUpNetwork(PLAN, lambda before, c: 10 * US, noise=0.01, seed=seed)
    end = refiner(database, network).run(LONG)
    assert end.tried > 30
    assert end.changed == 0
    assert chosen_now(database) == chosen_elsewhere(database)


def test_gains_are_seen_through_noise(database: Database) -> None:
    measured_alone(database, PLAN)
    network = MadeUpNetwork(PLAN, crowded, noise=0.003)
    before = chosen_now(database)
    refiner(database, network).run(LONG)
    assert network.seconds(chosen_now(database)) < 0.85 * network.seconds(before)


def test_what_takes_most_time_comes_first(database: Database) -> None:
    plan = plan_of(48, 48, 48, 48, 96)  # products of 48 by 48 are one task
    measured_alone(database, plan)
    network = MadeUpNetwork(plan, lambda before, c: 10 * US)
    refiner(database, network).run(LONG)
    counts = [step.key for step in plan.steps]
    most = max(counts, key=counts.count)
    assert counts.count(most) == 3
    _, (new, old), *_ = network.compared
    assert [key for key in new if new[key] != old[key]] == [most]


def test_other_networks_and_records_stay_as_they_are(database: Database) -> None:
    measured_alone(database, PLAN)
    known = Schedules(TARGET, 1, "real", database)
    before, records = chosen_elsewhere(database), list(database.records())
    refiner(database, MadeUpNetwork(PLAN, crowded)).run(LONG)
    assert chosen_now(database) != before
    assert chosen_elsewhere(database) == before
    assert {key: known.chosen(task).candidate for key, task in PLAN.tasks.items()} == before
    assert list(database.records()) == records


# ------------------------------------------------------------------------------------- triggers
def early(before: Candidate | None, c: Candidate) -> float:
    """All that counts is the moment at which the next kernel is let in."""
    return US * {AT_START: 12, AT_END: 8, NEVER: 10}[c.holes["trigger"]]


def test_moments_that_no_search_offers_are_checked_and_tried(database: Database) -> None:
    measured_alone(database, PLAN)
    runner, network = MadeUpRunner(), MadeUpNetwork(PLAN, early)
    measurements = database.stats().measurements
    refiner(database, network, runner).run(LONG)
    after = chosen_now(database)
    assert {c.holes["trigger"] for c in after.values()} == {AT_END}
    assert all(c in runner.asked for c in after.values())
    assert all(c in network.built for c in runner.asked)
    # They are no records: another network does not get them.
    assert database.stats().measurements == measurements
    assert {c.holes["trigger"] for c in chosen_elsewhere(database).values()} == {NEVER}


def test_what_is_wrong_never_runs_in_the_network(database: Database) -> None:
    alone = measured_alone(database, PLAN)
    fast = frozenset(
        v.key for found in alone.values() for c in found for v in variants(c, TARGET)
        if v.holes["trigger"] == AT_END
    )  # fmt: skip
    network = MadeUpNetwork(PLAN, early)
    runner = MadeUpRunner(wrong=fast)
    refiner(database, network, runner).run(LONG)
    assert any(c.key in fast for c in runner.asked)
    ran = {c.key for new, _ in network.compared for c in new.values()}
    assert not ran & fast
    again = MadeUpRunner(wrong=fast)
    refiner(database, MadeUpNetwork(PLAN, early), again).run(LONG)
    assert not again.asked


# ------------------------------------------------------------------------------------- failures
@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.RUN_TIMEOUT])
def test_a_kernel_that_fails_in_the_network_loses_only_itself(
    database: Database, outcome: Outcome
) -> None:
    alone = measured_alone(database, PLAN)
    bad = {found[1].key for found in alone.values()}
    failing = dict.fromkeys(bad, outcome)
    network = MadeUpNetwork(PLAN, crowded, failing=failing)
    before = chosen_now(database)
    refiner(database, network).run(LONG)
    after = chosen_now(database)
    assert not bad & {c.key for c in after.values()}
    assert network.seconds(after) < network.seconds(before)
    tried = [c.key for new, old in network.compared for k, c in new.items() if c != old[k]]
    assert all(tried.count(text) <= len(PLAN.tasks) for text in bad)  # once for each task
    again = MadeUpNetwork(PLAN, crowded, failing=failing)
    refiner(database, again).run(LONG)
    assert not any(c.key in bad for new, _ in again.compared for c in new.values())


def test_a_network_that_does_not_run_is_left_alone(database: Database) -> None:
    alone = measured_alone(database, PLAN)
    failing = {found[0].key: Outcome.RUN_ERROR for found in alone.values()}
    network = MadeUpNetwork(PLAN, crowded, failing=failing)
    end = refiner(database, network).run(LONG)
    assert end.problem == "run_error: made up"
    assert len(network.compared) == 1
    assert not database.network_trials(PLAN.key, TARGET, 1)


class Fickle(MadeUpNetwork):
    """Exchanges look good one by one, and are bad together."""

    def seconds(self, choices: dict[str, Candidate]) -> float:  # type: ignore[override]
        first = self.compared[0][0]
        exchanges = sum(choices[key] != first[key] for key in choices)
        last = len(self.compared) > 1 and self.compared[-1][1] == first and exchanges > 1
        return 1e-3 * (1.0 - 0.01 * exchanges + (0.5 if last else 0.0))


def test_exchanges_that_are_bad_together_are_withdrawn(database: Database) -> None:
    measured_alone(database, PLAN)
    before = chosen_now(database)
    network = Fickle(PLAN, crowded)
    end = refiner(database, network).run(LONG)
    assert any(t.kept for t in database.network_trials(PLAN.key, TARGET, 1))
    assert chosen_now(database) == before
    assert end.changed == 0
    assert end.seconds == end.before


# ---------------------------------------------------------------------------- stopping, resuming
@pytest.mark.parametrize("at", [1, 2, 9, 17])
def test_a_stopped_search_goes_on_where_it_was(tmp_path: Path, at: int) -> None:
    with Database(tmp_path / "records.db") as database:
        alone = measured_alone(database, PLAN)
        first = MadeUpNetwork(PLAN, crowded, interrupted_at=at)
        with pytest.raises(KeyboardInterrupt):
            refiner(database, first).run(LONG)
        kept = {t.workload.key for t in database.network_trials(PLAN.key, TARGET, 1) if t.kept}
        here, there = chosen_now(database), chosen_elsewhere(database)
        assert {key for key in here if here[key] != there[key]} == kept
    with Database(tmp_path / "records.db") as database:
        second = MadeUpNetwork(PLAN, crowded)
        assert refiner(database, second).chosen == here
        refiner(database, second).run(LONG)
        after = chosen_now(database)
    assert second.seconds(after) <= second.seconds(here)
    assert no_exchange_helps(second, after, alone)
    done = [pair for pair in first.compared[:-1] if pair[0] != pair[1]]
    assert not any(pair in done for pair in second.compared)  # nothing twice beside the same


KILLED = """
import os, signal, sys
from tests.tune.test_refine import LONG, PLAN, Database, MadeUpNetwork, crowded, refiner

class Dying(MadeUpNetwork):
    def compare(self, *args):
        if len(self.compared) == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().compare(*args)

with Database(sys.argv[1]) as database:
    refiner(database, Dying(PLAN, crowded)).run(LONG)
"""


def test_a_killed_search_loses_no_comparison_that_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with Database(path) as database:
        measured_alone(database, PLAN)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    with Database(path) as database:
        assert database.problems() == []
        assert len(database.network_trials(PLAN.key, TARGET, 1)) == 8
        network = MadeUpNetwork(PLAN, crowded)
        killed = network.seconds(chosen_now(database))
        refiner(database, network).run(LONG)
        assert network.seconds(chosen_now(database)) < killed


def test_a_search_that_has_ended_only_confirms(database: Database) -> None:
    measured_alone(database, PLAN)
    refiner(database, MadeUpNetwork(PLAN, crowded)).run(LONG)
    after = chosen_now(database)
    network = MadeUpNetwork(PLAN, crowded)
    end = refiner(database, network).run(LONG)
    assert len(network.compared) == 2
    assert chosen_now(database) == after
    assert end.changed


@pytest.mark.parametrize("seconds", [0.0, 1.0, 3.0])
def test_time_is_a_limit(database: Database, seconds: float) -> None:
    measured_alone(database, PLAN)
    network = MadeUpNetwork(PLAN, crowded)
    told: list[Refining] = []
    end = refiner(database, network).run(seconds, told.append)
    assert network.time.now <= seconds + TRIAL_SECONDS + CONFIRM_SECONDS
    assert told[-1] == end
    assert end.tried == max(0, len(network.compared) - 2)
    assert (end.tried > 0) == (seconds > 0)
    assert {state.tried for state in told} == set(range(end.tried + 1))


# ------------------------------------------------------------------------------------ finalists
def test_finalists_are_the_best_that_were_checked(database: Database) -> None:
    task = next(iter(PLAN.tasks.values()))
    (first, *others) = measured_alone(database, PLAN, 8, apart=0.04)[task.key]

    def add(candidate: Candidate, seconds: float, outcome: Outcome, *, checked: bool) -> None:
        samples = (seconds,) * 9 if outcome is Outcome.OK else ()
        end = Measured(candidate, outcome, samples, checked=checked)
        database.add([record_of(end, task, TARGET, 1)])

    def found() -> list[Candidate]:
        return finalists(task, database, TARGET, 1, "real")

    assert found() == [first, *others[:3]]
    add(others[0], US, Outcome.WRONG_ANSWER, checked=False)
    add(others[0], US, Outcome.OK, checked=True)  # a wrong answer counts for good
    add(others[1], 10 * US, Outcome.OK, checked=False)
    assert found() == [first, *others[2:5]]
    add(others[2], 14 * US, Outcome.OK, checked=True)  # too slow, the latest time counts
    assert found() == [first, *others[3:6]]
    (other, _) = variants(first, TARGET)
    add(other, 9 * US, Outcome.OK, checked=True)
    assert found()[0] == other
    assert first not in found()
