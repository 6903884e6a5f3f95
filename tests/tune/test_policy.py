"""Search policies on tables whose true times are known."""

from __future__ import annotations

import numpy as np
import pytest

from whet.tune.policy import Draft, DraftThenDroplet, Droplet, Policy, RandomSearch
from whet.tune.space import Row, Space, Table


def bowl_space() -> Space:
    """One sketch with two holes; the model's estimate is a bowl around (12, 12)."""
    a, b = np.meshgrid(np.arange(32), np.arange(32), indexing="ij")
    holes = {"a": a.ravel(), "b": b.ravel()}
    costs = 100.0 + (holes["a"] - 12.0) ** 2 + (holes["b"] - 12.0) ** 2
    return Space(None, (Table("bowl", holes, costs),))  # type: ignore[arg-type]


def true_seconds(space: Space, row: Row) -> float:
    """What is measured: another bowl, around (20, 9)."""
    holes = space.candidate(row).holes
    return 1e-6 * (100.0 + (holes["a"] - 20.0) ** 2 + (holes["b"] - 9.0) ** 2)


def search(policy: Policy, space: Space, trials: int, seed: int) -> dict[Row, float]:
    rng = np.random.default_rng(seed)
    known: dict[Row, float] = {}
    while len(known) < trials:
        rows = policy.propose(space, known, min(8, trials - len(known)), rng)
        if not rows:
            break
        assert not set(rows) & set(known), "a candidate was proposed twice"
        assert len(set(rows)) == len(rows)
        known.update({row: true_seconds(space, row) for row in rows})
    return known


def test_neighbours_differ_in_one_hole_by_the_next_value() -> None:
    space = bowl_space()
    start = space.tables[0].find({"a": 5, "b": 0})
    assert start is not None
    around = [dict(space.tables[0].candidate(n).holes) for n in space.tables[0].neighbours(start)]
    assert around == [{"a": 4, "b": 0}, {"a": 6, "b": 0}, {"a": 5, "b": 1}]


def test_unknown_holes_are_not_found() -> None:
    table = bowl_space().tables[0]
    assert table.find({"a": 99, "b": 0}) is None
    assert table.find({"a": 1}) is None


def test_draft_takes_what_the_model_likes() -> None:
    space = bowl_space()
    rows = Draft(chance=0.0).propose(space, {}, 8, np.random.default_rng(0))
    worst = max(space.cost(r) for r in rows)
    assert len(rows) == 8
    assert worst < 100.0 * 1.02**9


@pytest.mark.parametrize("seed", range(5))
def test_descent_finds_the_bottom(seed: int) -> None:
    space = bowl_space()
    known = search(DraftThenDroplet(drafted=16), space, 120, seed)
    assert min(known.values()) == pytest.approx(1e-4)


def test_descent_beats_chance() -> None:
    space = bowl_space()
    descent = [min(search(DraftThenDroplet(16), space, 64, s).values()) for s in range(7)]
    chance = [min(search(RandomSearch(), space, 64, s).values()) for s in range(7)]
    assert np.median(descent) < np.median(chance)


def test_descent_ends_when_the_neighbourhood_is_known() -> None:
    space = bowl_space()
    known = {(0, n): true_seconds(space, (0, n)) for n in range(space.size)}
    assert Droplet().propose(space, known, 8, np.random.default_rng(0)) == []


def test_failed_rows_are_no_start() -> None:
    space = bowl_space()
    known = {(0, 0): float("inf")}
    assert Droplet().propose(space, known, 8, np.random.default_rng(0)) == []
