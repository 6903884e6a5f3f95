"""Mutation, crossover and roulette: children are legal, and differ as they should."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.tune.landscapes import grid, open_table
from whet.tune.moves import KINDS, breed, cross, mutate, roulette
from whet.tune.space import Table


def staircase() -> Table:
    """Factors of tiles: the second at most 24 divided by the first."""
    holes = grid(a=24, b=24, c=3)
    keep = (holes["a"] + 1) * (holes["b"] + 1) <= 24
    holes = {name: column[keep] + 1 for name, column in holes.items()}
    return Table("staircase", holes, np.ones(int(keep.sum())))


TABLES = {"closed": staircase, "open": open_table}


@pytest.mark.parametrize("kind", TABLES)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 64))
@settings(max_examples=40)
def test_children_are_legal(kind: str, seed: int, count: int) -> None:
    table, rng = TABLES[kind](), np.random.default_rng(seed)
    parents = table.sample(count, rng)
    assert table.legal(mutate(table, parents, rng)).all()
    assert table.legal(cross(table, parents, parents[::-1], rng)).all()
    born = breed(table, parents, rng.standard_normal(len(parents)), count, 0.85, rng)
    assert len(born) == count
    assert table.legal(born).all()
    assert table.legal(parents).all(), "parents are left as they were"


@pytest.mark.parametrize("kind", TABLES)
def test_mutants_are_new(kind: str) -> None:
    table, rng = TABLES[kind](), np.random.default_rng(0)
    parents = table.sample(200, rng)
    children = mutate(table, parents, rng)
    assert np.mean(np.any(children != parents, axis=1)) > 0.9


def test_steps_go_to_the_next_value() -> None:
    table, rng = open_table(), np.random.default_rng(0)
    parents = table.sample(300, rng)
    children = mutate(table, parents, rng, {"step": 1.0})
    moved = np.abs(table.ranks(children) - table.ranks(parents))
    assert set(moved.sum(axis=1)) <= {0, 1}
    assert not moved[:, table.structure].any()


def test_trades_move_two_factors_against_each_other() -> None:
    table, rng = Table("free", grid(a=50, b=50), np.ones(2500)), np.random.default_rng(0)
    inside = np.all((table.matrix > 0) & (table.matrix < 49), axis=1)
    parents = table.matrix[inside]
    moved = mutate(table, parents, rng, {"trade": 1.0}) - parents
    both = np.all(moved != 0, axis=1)
    assert np.mean(both) > 0.4
    assert np.all(moved[both].sum(axis=1) == 0)


def test_structures_change_seldom() -> None:
    table, rng = open_table(), np.random.default_rng(0)
    parents = table.sample(2000, rng)
    changed = np.mean((mutate(table, parents, rng) != parents)[:, table.structure])
    assert changed == pytest.approx(KINDS["structure"], abs=0.03)


def test_the_holes_of_a_stage_stay_together() -> None:
    table, rng = open_table(), np.random.default_rng(0)
    mothers, fathers = np.repeat([[2, 2, 2, 0]], 200, 0), np.repeat([[4, 4, 4, 1]], 200, 0)
    children = cross(table, mothers, fathers, rng)
    assert {tuple(c) for c in children[:, :2].tolist()} == {(2, 2), (4, 4)}
    assert len({tuple(c) for c in children.tolist()}) == 8


def test_roulette_follows_speeds() -> None:
    scores = -np.log(np.array([1.0, 2.0, 4.0]))
    drawn = roulette(scores, 7000, np.random.default_rng(0), pressure=1.0)
    assert np.bincount(drawn) == pytest.approx([4000, 2000, 1000], rel=0.1)


def test_roulette_stands_scores_of_any_size() -> None:
    drawn = roulette(np.array([-1e4, -1e4, -np.inf]), 100, np.random.default_rng(0))
    assert set(drawn) == {0, 1}


def test_a_table_of_one_row_has_no_mutants() -> None:
    table = Table("one", {"a": np.array([3])}, np.ones(1))
    assert mutate(table, table.matrix, np.random.default_rng(0)).tolist() == [[3]]


def test_holes_that_a_structure_does_not_have_are_left_alone() -> None:
    """Two structures in one table: the second has no hole b, the first no hole c."""
    first, second = grid(a=6, b=6), grid(a=6, c=6)
    zero = np.zeros(36, np.int64)
    holes = {
        "which": np.repeat([7, 9], 36),
        "a": np.concatenate([first["a"], second["a"]]),
        "b": np.concatenate([first["b"], zero]),
        "c": np.concatenate([zero, second["c"]]),
    }
    table = Table("two", holes, np.ones(72))
    table.structure = np.array([True, False, False, False])
    assert table.shapes.moves.tolist()[:2] == [
        [False, True, True, False],
        [False, True, False, True],
    ]
    rng = np.random.default_rng(0)
    children = mutate(table, table.matrix, rng, {"jump": 1.0})
    assert (children[:, 0] == table.matrix[:, 0]).all()
    assert np.all(np.sum(children != table.matrix, axis=1) == 1)
    switched = mutate(table, table.matrix, rng, {"structure": 1.0})
    assert set(switched[:, 0]) == {7, 9}
    assert table.legal(switched).all()
