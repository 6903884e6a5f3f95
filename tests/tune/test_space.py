"""Tables of candidates as arrays: closed ones, which list all, and open ones, which grow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.schedule.small_tasks import TASKS
from tests.tune.landscapes import Valley, grid, open_table
from whet.core.cpu import PRESETS
from whet.schedule.default import default_choice
from whet.tune.space import Space, Table, distinct, make_space


def triangle() -> Table:
    """Rows with b <= a: holes that depend on each other."""
    holes = grid(a=8, b=8)
    keep = holes["b"] <= holes["a"]
    holes = {name: column[keep] for name, column in holes.items()}
    return Table("triangle", holes, 1.0 + holes["a"])


def holes_of(table: Table, row: int) -> tuple[int, ...]:
    return tuple(table.candidate(row).holes.values())


def find(table: Table, **holes: int) -> int:
    row = table.find(holes)
    assert row is not None
    return row


def test_neighbours_differ_in_one_hole_by_the_next_value() -> None:
    holes = grid(a=32, b=32)
    table = Table("square", holes, np.ones(1024))
    around = [holes_of(table, n) for n in table.neighbours(find(table, a=5, b=0))]
    assert around == [(4, 0), (6, 0), (5, 1)]
    farther = [holes_of(table, n) for n in table.neighbours(find(table, a=5, b=1), 2)]
    assert farther == [(3, 1), (7, 1), (5, 3)]


def test_neighbours_are_mutual() -> None:
    table = Table("square", grid(a=6, b=5), np.ones(30))
    for distance in (1, 2, 3):
        near = {row: set(table.neighbours(row, distance)) for row in range(30)}
        assert all(row in near[other] for row, others in near.items() for other in others)


def test_a_step_that_others_forbid_takes_them_along() -> None:
    table = triangle()
    around = [holes_of(table, n) for n in table.neighbours(find(table, a=5, b=5))]
    assert around == [(6, 5), (5, 4), (4, 4), (6, 6)]


def test_repair_keeps_the_hole_that_moved() -> None:
    table = triangle()
    wanted = np.array([[2, 7], [2, 7], [6, 1]])
    found = table.repair(wanted, np.array([0, 1, 0]))
    assert found.tolist() == [[2, 2], [7, 7], [6, 1]]


def test_unknown_holes_are_not_found() -> None:
    table = triangle()
    assert table.find({"a": 99, "b": 0}) is None
    assert table.find({"a": 1, "b": 2}) is None
    assert table.find({"a": 1}) is None


def test_closed_tables_tell_what_is_legal() -> None:
    table = triangle()
    rows = np.array([[3, 3], [3, 4], [0, 0]])
    assert table.legal(rows).tolist() == [True, False, True]
    assert table.intern(rows).tolist() == [find(table, a=3, b=3), -1, find(table, a=0, b=0)]
    assert table.price(rows[[0, 2]]).tolist() == [4.0, 1.0]


def test_open_tables_grow_by_legal_rows_once() -> None:
    table = open_table()
    before = len(table.matrix)
    fresh = np.array([[64, 64, 4, 3], [64, 64, 4, 3], [256, 256, 1, 0]])
    assert table.find(dict(zip(table.names, [512, 512, 1, 0]))) is None
    numbers = table.intern(fresh)
    assert numbers[0] == numbers[1] >= 0
    assert numbers[2] == -1, "the factors are larger than their extent"
    assert len(table.matrix) <= before + 1
    assert table.costs[numbers[0]] == table.price(fresh[:1])[0]
    assert table.intern(fresh).tolist() == numbers.tolist()
    assert dict(table.candidate(int(numbers[0])).holes)["i.outer"] == 64


@given(st.integers(0, 2**32 - 1), st.integers(1, 300))
def test_samples_of_open_tables_are_legal(seed: int, count: int) -> None:
    table = open_table()
    rows = table.sample(count, np.random.default_rng(seed))
    assert len(rows) == count
    assert table.legal(rows).all()


def test_samples_of_closed_tables_do_not_repeat() -> None:
    rows = triangle().sample(30, np.random.default_rng(0))
    assert len(rows) == len({tuple(r) for r in rows}) == 30


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 3)), max_size=40))
def test_distinct_rows_come_once_in_order(rows: list[tuple[int, int]]) -> None:
    matrix = np.array(rows, np.int64).reshape(-1, 2)
    assert [tuple(r) for r in matrix[distinct(matrix)].tolist()] == list(dict.fromkeys(rows))


def test_stages_and_structures_are_read_off_the_names() -> None:
    table = open_table(Valley())
    assert table.loops.tolist() == [0, 0, 1, 2]
    assert table.structure.tolist() == [False, False, False, True]
    assert not triangle().structure.any()


def test_spaces_find_rows_in_the_table_of_their_sketch() -> None:
    space = Space(None, (triangle(), open_table()))  # type: ignore[arg-type]
    row = space.find(space.tables[1].candidate(3))
    assert row == (1, 3)
    assert space.cost((1, 3)) == pytest.approx(space.tables[1].costs[3])


@pytest.mark.parametrize("name", ["matmul", "softmax", "gather"])
def test_the_cheapest_row_is_the_default_schedule(name: str) -> None:
    """What a search tries first is what would run without it, not a guess of the rules."""
    task, target = TASKS[name](64, 48, 40), PRESETS["x86-64-v3"]
    space, default = make_space(task, target, 2), default_choice(task, target, 2)
    row = space.cheapest()
    assert row is not None
    found = space.candidate(row)
    assert (found.sketch, found.holes) == (default.sketch.name, default.holes)
