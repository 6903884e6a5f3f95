"""Policies that go by models, against chance, on landscapes where the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tests.tune.landscapes import POLICIES, Valley, grid, open_table, search, space_of
from whet.core.types import Array
from whet.schedule.space.sketch import Population
from whet.tune.models.protocol import Batch, Trials
from whet.tune.policies.annealing import Annealing, diverse
from whet.tune.policies.bandit import SketchBandit
from whet.tune.policies.beam import Beam, decisions
from whet.tune.policies.chance import RandomSearch
from whet.tune.policies.compose import ExploreThenDroplet
from whet.tune.policies.evolution import Evolution, Habits, evolve
from whet.tune.policies.judge import ANALYTIC, ENOUGH_TRIALS
from whet.tune.policies.protocol import Policy
from whet.tune.policies.verify import DraftThenVerify
from whet.tune.space import Space, Table
from whet.tune.timing import Timing

CENTER = np.array([4, 1, 3, 5, 2])
SHIFT = np.array([-1, 1, 0, 0, 1])
HOLES = "abcde"


def truth(holes: Population) -> Array:
    """Seconds: a bowl in five holes, whose bottom takes 100 microseconds."""
    off = sum((holes[h] - c) ** 2 for h, c in zip(HOLES, CENTER))
    return np.asarray(1e-4 * (1.0 + 0.25 * off))


def shifted_space() -> Space:
    """7776 rows; the model is right but for its center, which is off by one in three holes."""
    holes = grid(**dict.fromkeys(HOLES, 6))
    off = sum((holes[h] - c) ** 2 for h, c in zip(HOLES, CENTER + SHIFT))
    return space_of(Table("shifted", holes, 1e5 * (1.0 + 0.25 * off)))


def mean_best(policy: str, seeds: int = 3, noise: float = 0.0) -> float:
    """How far from the bottom a search of 80 trials ends, 1 for reaching it."""
    found = [
        float(min(search(POLICIES[policy](), shifted_space(), truth, 80, s, noise).values()))
        for s in range(seeds)
    ]
    return float(np.mean(found)) / 1e-4


@pytest.mark.parametrize("name", ["default", "droplet"])
def test_descent_finds_the_optimum(name: str) -> None:
    assert mean_best(name) == pytest.approx(1.0)


def test_chance_does_not_come_near() -> None:
    assert mean_best("random", seeds=12) > 1.65


@pytest.mark.parametrize("name", ["evolution", "bandit", "annealing", "beam", "draft"])
def test_others_come_near(name: str) -> None:
    assert mean_best(name) < 1.4


def test_generations_come_nearer_than_chance() -> None:
    assert mean_best("genetic", seeds=12) < 1.6


@pytest.mark.parametrize("name", ["default", "evolution"])
def test_noise_is_endured(name: str) -> None:
    assert mean_best(name, noise=0.05) < 1.4


# --------------------------------------------------------------------------------- open spaces
BOTTOM = (4.0, 4.0, 2.0)


def open_truth(holes: Population) -> Array:
    """The open sketch's times, with the bottom away from where the analytic model sees it."""
    factors = ("i.outer", "i.inner", "j")
    off = sum((np.log2(holes[f]) - c) ** 2 for f, c in zip(factors, BOTTOM))
    return np.asarray(1e-6 * (1.0 + off + np.abs(holes["order"] - 2)))


@dataclass(frozen=True)
class Oracle:
    """Learns the truth, whatever it is shown."""

    def scores(self, batch: Batch) -> Array:
        return -np.log(open_truth(batch.holes))

    def fit(self, trials: Sequence[Trials]) -> Oracle:
        assert all(len(t.seconds) == len(t.batch) for t in trials)
        assert sum(np.isfinite(t.seconds).sum() for t in trials) >= ENOUGH_TRIALS
        return self


@pytest.mark.parametrize(
    "policy", [Evolution(Oracle()), Annealing(Oracle()), Beam(Oracle()), DraftThenVerify(Oracle())]
)
def test_what_is_learned_counts(policy: Policy) -> None:
    """After the first trials the learned model leads to the bottom at once."""
    known = search(policy, space_of(open_table()), open_truth, ENOUGH_TRIALS + 24, 0)
    first = list(known.values())[:ENOUGH_TRIALS]
    assert float(min(known.values())) == pytest.approx(1e-6)
    assert float(min(known.values())) < float(min(first))


def test_evolution_finds_what_no_sample_held() -> None:
    """The best of an open table is found though neither the sketch's sample had it nor chance."""
    space = space_of(open_table(Valley(center=(5.0, 2.0, 3.0))))
    seen = evolve(space, {}, ANALYTIC, Habits(population=64), np.random.default_rng(0))
    assert seen[0].scores.max() == pytest.approx(-np.log(1e3))
    drawn = space.tables[0].sample(64 * 5, np.random.default_rng(0))
    assert space.tables[0].price(drawn).min() > 1e3


def test_small_spaces_are_scored_as_a_whole() -> None:
    space = shifted_space()
    seen = evolve(space, {}, ANALYTIC, Habits(population=100), np.random.default_rng(0))
    assert len(seen[0].matrix) == 7776


def test_open_tables_grow_by_what_is_proposed_alone() -> None:
    space = space_of(open_table())
    before = space.size
    search(Evolution(), space, open_truth, 64, 0)
    assert space.size <= before + 2 * 64


# -------------------------------------------------------------------------------------- bandit
def test_the_bandit_prefers_the_sketch_that_is_fast() -> None:
    fast = Table("fast", grid(a=40, b=40), np.ones(1600))
    slow = Table("slow", grid(c=40, d=40), np.ones(1600))

    def seconds(holes: Population) -> Array:
        return np.asarray(1e-6 if "a" in holes else 3e-6)

    known = search(SketchBandit(RandomSearch()), space_of(slow, fast), seconds, 96, 0)
    share = np.mean([number == 1 for number, _ in known])
    assert 0.6 < share < 1.0


def test_the_bandit_forgets() -> None:
    """What was fast long ago does not count: only the window does."""
    space = space_of(
        Table("old", grid(a=100), np.ones(100)), Table("new", grid(b=100), np.ones(100))
    )
    old = {(0, n): Timing([1e-6] * 3) for n in range(20)}
    recent = {(0, n): Timing([9e-6] * 3) for n in range(20, 36)}
    recent |= {(1, n): Timing([2e-6] * 3) for n in range(16)}
    shares = SketchBandit(window=32).shares(space, old | recent, 8, set())
    assert shares[1] > shares.get(0, 0)


def test_the_bandit_goes_on_when_a_sketch_is_used_up() -> None:
    tiny = Table("tiny", grid(a=3), np.ones(3))
    known = search(SketchBandit(RandomSearch()), space_of(tiny, shifted_space().tables[0]),
                   lambda h: np.asarray(1e-6) if len(h) == 1 else truth(h), 60, 0)  # fmt: skip
    assert len(known) == 60


# ------------------------------------------------------------------------------- diverse batches
def test_batches_try_different_values() -> None:
    space = shifted_space()
    near = [(0, r) for r in np.argsort(space.tables[0].costs, kind="stable")[:64]]
    scores = -np.log([space.cost(row) for row in near])

    def values(rows: list[tuple[int, int]]) -> int:
        return sum(len(set(c)) for c in space.tables[0].matrix[[r for _, r in rows]].T)

    plain = diverse(space, near, scores, 8, 0.0)
    mixed = diverse(space, near, scores, 8, 0.2)
    assert plain == near[:8]
    assert values(mixed) > values(plain)
    assert mixed[0] == near[0], "speed still counts"


def test_diversity_is_gained_greedily_to_near_the_best() -> None:
    """The greedy batch is within 1 - 1/e of the best one, found by trying all."""
    from itertools import combinations

    rng = np.random.default_rng(0)
    space = shifted_space()
    pool = [(0, int(r)) for r in rng.choice(7776, 10, replace=False)]
    scores = -np.log([space.cost(row) for row in pool])
    speeds = np.exp(scores - scores.max())

    def worth(rows: Sequence[tuple[int, int]]) -> float:
        matrix = space.tables[0].matrix[[r for _, r in rows]]
        covered = sum(len(set(c)) for c in matrix.T)
        return float(sum(speeds[pool.index(r)] for r in rows) + 0.1 * covered)

    best = max(worth(rows) for rows in combinations(pool, 4))
    assert worth(diverse(space, pool, scores, 4, 0.1)) >= (1 - 1 / np.e) * best


# ---------------------------------------------------------------------------------------- beam
def trap() -> tuple[Space, Table]:
    """The one fast row begins with a decision whose other completions are all slow."""
    holes = grid(first=8, second=8, third=8)
    slow = 10.0 + holes["first"] + holes["second"] + holes["third"]
    slow = np.where(holes["first"] == 7, 100.0, slow)
    costs = np.where(
        (holes["first"] == 7) & (holes["second"] == 3) & (holes["third"] == 5), 1.0, slow
    )
    table = Table("trap", holes, costs)
    return space_of(table), table


def test_beams_lose_what_looks_bad_on_average() -> None:
    space, table = trap()

    def seconds(holes: Population) -> Array:
        return np.asarray(1e-6 * table.price(np.array([[int(v) for v in holes.values()]]))[0])

    beam = search(Beam(width=4), space, seconds, 32, 0)
    whole = search(Evolution(chance=0.0), space, seconds, 32, 0)
    assert float(min(whole.values())) == pytest.approx(1e-6)
    assert float(min(beam.values())) > 0.99e-5


def test_beams_keep_what_looks_good() -> None:
    space = shifted_space()
    rows = Beam(width=8).propose(space, {}, 1, np.random.default_rng(0))
    assert space.cost(rows[0]) == space.tables[0].costs.min()


def test_beams_decide_loop_by_loop() -> None:
    """Holes of one loop together, and nothing where there is no choice."""
    holes = {"i.1": [1, 2], "j": [1, 3], "i.2": [4, 2], "k": [5, 5]}
    table = Table("loops", {h: np.array(v) for h, v in holes.items()}, np.ones(2))
    assert [list(d) for d in decisions(table)] == [[0, 2], [1]]


@pytest.mark.parametrize("seed", range(3))
def test_completions_keep_what_is_decided(seed: int) -> None:
    table, rng = open_table(), np.random.default_rng(seed)
    kept, decided, next_holes = table.sample(8, rng), np.array([3, 2]), np.array([0, 1])
    rows = Beam(judged=256).complete(table, kept, decided, next_holes, rng)
    assert 64 < len(rows) <= 256 + len(kept)
    assert table.legal(rows).all()
    beginnings = {tuple(row) for row in kept[:, decided]}
    assert {tuple(row) for row in rows[:, decided]} == beginnings
    ways = [{tuple(r[next_holes]) for r in rows if tuple(r[decided]) == b} for b in beginnings]
    assert min(map(len, ways)) > 4


@dataclass
class Counted:
    """The oracle, which notes the sizes of the batches that it is asked about."""

    asked: list[int]

    def scores(self, batch: Batch) -> Array:
        self.asked.append(len(batch))
        return -np.log(open_truth(batch.holes))

    def fit(self, trials: Sequence[Trials]) -> Counted:
        return self


def test_beams_ask_the_model_once_per_decision() -> None:
    """Three decisions: the holes of i, that of j, and the order."""
    space = space_of(open_table())
    known = {(0, row): Timing([1e-5] * 3) for row in range(ENOUGH_TRIALS)}
    model = Counted([])
    assert Beam(model, judged=128).propose(space, known, 8, np.random.default_rng(0))
    assert len(model.asked) == 3
    assert max(model.asked) <= 128 + 16


# ------------------------------------------------------------------------------------- phases
def test_exploring_comes_first() -> None:
    @dataclass
    class Counting:
        asked: int = 0

        def propose(self, space, known, count, rng):  # type: ignore[no-untyped-def]
            self.asked += count
            return RandomSearch().propose(space, known, count, rng)

    explore = Counting()
    known = search(ExploreThenDroplet(explore, explored=20), shifted_space(), truth, 60, 0)
    assert explore.asked == 20
    assert len(known) == 60
