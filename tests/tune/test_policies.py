"""Search policies on landscapes whose true times are known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.tune.landscapes import POLICIES, Truth, bowl, grid, open_table, search, space_of
from whet.tune.policies.chance import RandomSearch
from whet.tune.policies.compose import ExploreThenDroplet
from whet.tune.policies.draft import Draft
from whet.tune.policies.droplet import Droplet, incumbent
from whet.tune.space import Space, Table
from whet.tune.timing import FAILED, Timing

TRUE = bowl({"a": 20, "b": 9})
"""What is measured: a bowl, but not around the place that the model expects."""


def bowl_space() -> Space:
    """One sketch with two holes; the model's estimate is a bowl around (12, 12)."""
    holes = grid(a=32, b=32)
    return space_of(Table("bowl", holes, 1e9 * bowl({"a": 12, "b": 12})(holes)))


def open_truth(away: float = 1.0) -> Truth:
    """The times of the open table's sketch, with its bottom somewhere else."""

    def seconds(holes: dict[str, np.ndarray]) -> np.ndarray:
        factors = zip(("i.outer", "i.inner", "j"), (5.0 - away, 2.0 + away, 3.0))
        off = sum((np.log2(holes[f]) - c) ** 2 for f, c in factors)
        return np.asarray(1e-6 * (1.0 + off + np.abs(holes["order"] - 2)))

    return seconds  # type: ignore[return-value]


def best(known: dict[tuple[int, int], Timing]) -> float:
    return float(min(known.values()))


@pytest.mark.parametrize("name", POLICIES)
def test_searches_are_determined_by_their_seed(name: str) -> None:
    def found(seed: int) -> list[tuple[int, int]]:
        space = space_of(*bowl_space().tables, open_table())

        def truth(holes: dict[str, np.ndarray]) -> np.ndarray:
            return TRUE(holes) if "a" in holes else 90 * open_truth()(holes)

        return list(search(POLICIES[name](), space, truth, 40, seed))  # type: ignore[arg-type]

    assert found(3) == found(3)


@pytest.mark.parametrize("name", POLICIES)
def test_a_small_space_is_searched_to_its_end(name: str) -> None:
    """A descent ends at the bottom, all others when everything has been tried."""
    space = space_of(Table("small", grid(a=3, b=4), np.arange(12.0) + 1))
    known = search(POLICIES[name](), space, bowl({"a": 2, "b": 1}), 50, 0)
    assert best(known) == pytest.approx(1e-4)
    assert len(known) == (10 if name == "droplet" else 12)


@pytest.mark.parametrize("name", POLICIES)
def test_a_search_goes_on_while_everything_fails(name: str) -> None:
    """A descent has nowhere to start from."""
    known = search(POLICIES[name](), bowl_space(), lambda holes: np.asarray(np.inf), 24, 0)
    assert not any(t.ok for t in known.values())
    assert len(known) == (1 if name == "droplet" else 24)


@pytest.mark.parametrize("name", POLICIES)
def test_a_search_goes_on_beside_failures(name: str) -> None:
    """Every other value of a hole fails, next to all that works."""

    def truth(holes: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.where(holes["a"] % 2 == 1, np.inf, TRUE(holes))

    known = search(POLICIES[name](), bowl_space(), truth, 64, 0)
    times = [float(t) for t in known.values() if t.ok]
    assert 0 < len(times) < len(known)
    assert min(times) < times[0], "nothing better than the first"


@pytest.mark.parametrize("name", POLICIES)
def test_an_empty_space_has_no_candidates(name: str) -> None:
    assert POLICIES[name]().propose(space_of(), {}, 8, np.random.default_rng(0)) == []


def test_draft_takes_what_the_model_likes() -> None:
    space = bowl_space()
    rows = Draft(chance=0.0).propose(space, {}, 8, np.random.default_rng(0))
    worst = max(space.cost(r) for r in rows)
    assert len(rows) == 8
    assert worst < 1e5 * 1.02**9
    assert space.cost(rows[0]) == space.tables[0].costs.min(), "the favourite itself is tried"


def test_chance_gives_every_sketch_its_share() -> None:
    space = space_of(
        Table("large", grid(a=100, b=50), np.ones(5000)), Table("small", grid(c=64), np.ones(64))
    )
    rows = RandomSearch().propose(space, {}, 40, np.random.default_rng(0))
    assert 10 <= sum(number == 1 for number, _ in rows) <= 30


@pytest.mark.parametrize("seed", range(5))
def test_descent_finds_the_bottom(seed: int) -> None:
    known = search(ExploreThenDroplet(Draft(), explored=16), bowl_space(), TRUE, 120, seed)
    assert best(known) == pytest.approx(1e-4)


def test_descent_beats_chance() -> None:
    descent = [
        best(search(ExploreThenDroplet(Draft(), explored=24), bowl_space(), TRUE, 64, s))
        for s in range(7)
    ]
    chance = [best(search(RandomSearch(), bowl_space(), TRUE, 64, s)) for s in range(7)]
    assert np.median(descent) < np.median(chance)


# ------------------------------------------------------------------------------------- Droplet
def start_at(space: Space, **holes: int) -> dict[tuple[int, int], Timing]:
    row = space.tables[0].find(holes)
    assert row is not None
    return {(0, row): Timing([float(TRUE({h: np.asarray(v) for h, v in holes.items()}))] * 3)}


def descend(space: Space, truth: Truth, known: dict[tuple[int, int], Timing], starts: int = 1,
            noise: float = 0.0, seed: int = 0) -> dict[tuple[int, int], Timing]:  # fmt: skip
    """Descent until it ends by itself."""
    rng = np.random.default_rng(seed)
    for _ in range(500):
        rows = Droplet(starts).propose(space, known, 8, rng)
        if not rows:
            return known
        for row in rows:
            holes = {h: np.asarray(v) for h, v in space.candidate(row).holes.items()}
            known[row] = Timing(float(truth(holes)) * (1 + noise * rng.random(8)))
    raise AssertionError("the descent does not end")


def test_descent_starts_with_the_nearest() -> None:
    space = bowl_space()
    known = start_at(space, a=5, b=9)
    rows = Droplet().propose(space, known, 8, np.random.default_rng(0))
    found = {tuple(space.candidate(r).holes.values()) for r in rows}
    assert found == {(4, 9), (6, 9), (5, 8), (5, 10)}


def test_descent_jumps_over_what_is_flat() -> None:
    def stairs(holes: dict[str, np.ndarray]) -> np.ndarray:
        return np.asarray(1e-6 * (100 + np.abs(holes["a"] // 3 * 3 - 21) + holes["b"]))

    space = bowl_space()
    known = descend(space, stairs, start_at(space, a=4, b=5))  # type: ignore[arg-type]
    assert best(known) == pytest.approx(1e-4), "steps of three are within reach"


def test_descent_stops_at_a_local_optimum() -> None:
    def two_bowls(holes: dict[str, np.ndarray]) -> np.ndarray:
        return np.minimum(2 * bowl({"a": 4, "b": 4})(holes), bowl({"a": 25, "b": 25})(holes))

    space = bowl_space()
    known = descend(space, two_bowls, start_at(space, a=6, b=6))  # type: ignore[arg-type]
    assert best(known) == pytest.approx(2e-4)
    assert len(known) < 60


def test_restarts_look_elsewhere() -> None:
    def two_bowls(holes: dict[str, np.ndarray]) -> np.ndarray:
        return np.minimum(2 * bowl({"a": 4, "b": 4})(holes), bowl({"a": 25, "b": 25})(holes))

    space = bowl_space()
    both = start_at(space, a=4, b=4) | start_at(space, a=20, b=20)
    row = next(iter(both))
    both[row] = Timing([2e-4] * 3)
    both[list(both)[1]] = Timing([float(two_bowls({"a": 20, "b": 20}))] * 3)  # type: ignore[dict-item]
    assert best(descend(space, two_bowls, dict(both), starts=3)) == pytest.approx(1e-4)  # type: ignore[arg-type]


def test_noise_does_not_move_the_descent() -> None:
    """On a plain, where all is noise, only the neighbourhood of the start is tried."""
    space = bowl_space()
    start = start_at(space, a=16, b=16)
    row = next(iter(start))
    rng = np.random.default_rng(5)
    wandered = []
    for seed in range(10):
        start[row] = Timing(1e-4 * (1 + 0.2 * rng.random(8)))
        known = descend(space, lambda h: np.asarray(1e-4), dict(start), noise=0.2, seed=seed)
        wandered.append(incumbent(known, known) != row)
    assert sum(wandered) <= 6, "twelve comparisons at 5 % each"


def test_only_what_is_faster_beyond_doubt_replaces_the_incumbent() -> None:
    known = {
        (0, 0): Timing((1.0, 1.1, 1.2, 1.0)),
        (0, 1): Timing((0.99, 1.15, 1.05, 1.0)),
        (0, 2): FAILED,
        (0, 3): Timing((0.5, 0.52, 0.51, 0.55)),
    }
    assert incumbent([(0, 0), (0, 1), (0, 2)], known) == (0, 0)
    assert incumbent(known, known) == (0, 3)


def test_descent_ends_when_the_neighbourhood_is_known() -> None:
    space = bowl_space()
    times = TRUE(space.tables[0].holes)
    known = {(0, n): Timing([times[n]] * 3) for n in range(space.size)}
    assert Droplet().propose(space, known, 8, np.random.default_rng(0)) == []


def test_failed_rows_are_no_start() -> None:
    assert Droplet().propose(bowl_space(), {(0, 0): FAILED}, 8, np.random.default_rng(0)) == []
