"""Mutation, crossover and roulette: children are legal, and differ as they should."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.schedule.small_tasks import make_task, matmul, softmax
from tests.tune.landscapes import TARGET, Valley, grid, open_table
from whet.core.dtypes import f32
from whet.core.types import Array
from whet.ir.tensor import compute, placeholder, reduce_axis, sum_
from whet.tasks.task import Task
from whet.tune.moves import KINDS, breed, cross, mutate, roulette
from whet.tune.space import Table, make_space


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


def exchanged(children: Array) -> set[tuple[int, ...]]:
    """The children that occur often; a few are mutants."""
    found = Counter(map(tuple, children.tolist()))
    return {child for child, count in found.items() if count > 0.1 * len(children)}


def test_the_holes_of_a_loop_stay_together_where_no_stages_are_known() -> None:
    table, rng = open_table(), np.random.default_rng(0)
    mothers, fathers = np.repeat([[2, 2, 2, 0]], 200, 0), np.repeat([[4, 4, 4, 0]], 200, 0)
    children = cross(table, mothers, fathers, rng)
    assert exchanged(children) == {(2, 2, 4, 0), (4, 4, 2, 0)}


@dataclass(frozen=True)
class Stages(Valley):
    """The same with two stages: `i.inner` and `j` are of one, `i.outer` is the other."""

    def stages(self, form: object, structure: Mapping[str, int]) -> list[set[str]]:
        return [{"i.inner", "j"}, {"i.outer"}]


def test_the_holes_of_a_stage_stay_together() -> None:
    table, rng = open_table(Stages()), np.random.default_rng(0)
    mothers, fathers = np.repeat([[2, 2, 2, 0]], 200, 0), np.repeat([[4, 4, 4, 0]], 200, 0)
    children = cross(table, mothers, fathers, rng)
    assert exchanged(children) == {(2, 4, 4, 0), (4, 2, 2, 0)}


def test_parents_that_differ_in_one_stage_exchange_its_loops() -> None:
    table, rng = open_table(Stages()), np.random.default_rng(0)
    mothers, fathers = np.repeat([[2, 2, 2, 0]], 200, 0), np.repeat([[2, 4, 4, 0]], 200, 0)
    children = cross(table, mothers, fathers, rng)
    assert exchanged(children) == {(2, 4, 2, 0), (2, 2, 4, 0)}


def test_the_structure_is_the_mothers() -> None:
    table, rng = open_table(Stages()), np.random.default_rng(0)
    mothers, fathers = np.repeat([[2, 2, 2, 0]], 200, 0), np.repeat([[4, 4, 4, 1]], 200, 0)
    children = cross(table, mothers, fathers, rng)
    assert exchanged(children) == {(2, 4, 4, 0), (4, 2, 2, 0), (4, 4, 4, 0)}


def two_products() -> Task:
    a, b, c = (placeholder((48, 48), f32, name) for name in "abc")
    k, m = reduce_axis(48, "k"), reduce_axis(48, "m")
    first = compute((48, 48), lambda i, j: sum_(a[i, k] * b[k, j], k), "first")
    return make_task(compute((48, 48), lambda i, j: sum_(first[i, m] * c[m, j], m), "second"))


@pytest.mark.parametrize("make", [two_products, softmax, matmul])
def test_few_children_equal_a_parent(make: Callable[[], Task]) -> None:
    """Of derived programs nearly half did when parts were drawn once, by loop."""
    space = make_space(make(), TARGET, 4)
    (table,) = (t for t in space.tables if t.sketch == "derived")
    rng = np.random.default_rng(0)
    mothers, fathers = table.sample(500, rng), table.sample(500, rng)
    children = cross(table, mothers, fathers, rng)
    copies = (children == mothers).all(axis=1) | (children == fathers).all(axis=1)
    assert np.mean(copies) < 0.1
    assert table.legal(children).all()


def test_whole_stages_of_derived_programs_are_exchanged() -> None:
    space = make_space(two_products(), TARGET, 4)
    (table,) = (t for t in space.tables if t.sketch == "derived")
    apart = [n for n, stages in enumerate(table.stages[:-1]) if stages.max() == 2]
    assert apart
    for number in apart[:2]:
        of = dict(zip(table.names, table.stages[number].tolist()))
        assert of["structure"] == 0
        assert len({of[h] for h in ("i.1", "j.1", "k.1", "k.1.unroll")}) == 1
        assert len({of[h] for h in ("i_1.1", "j_1.1", "m.1", "m.1.unroll")}) == 1
        rows = table.matrix[table.shapes.rows[number]]
        half = len(rows) // 2
        mothers, fathers = rows[:half], rows[half : 2 * half]
        children = cross(table, mothers, fathers, np.random.default_rng(0))
        own = table.stages[number] == 1
        whole = [
            (children[:, own] == p[:, own]).all(axis=1)
            & (children[:, ~own] == q[:, ~own]).all(axis=1)
            for p, q in ((mothers, fathers), (fathers, mothers))
        ]
        assert np.mean(whole[0] | whole[1]) > 0.9


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
