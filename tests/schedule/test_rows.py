"""Chains of stages along rows, one row after the other or several together."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.small_tasks import (
    TASKS,
    arrays_for,
    check_native,
    softmax,
)
from tests.schedule.test_family_nests import shape_of
from tests.targets import HOST
from whet.schedule.families.rows.lower import lower_rows
from whet.schedule.families.rows.match import Rows, RowTiling, find_rows
from whet.schedule.families.rows.nests import row_nests
from whet.schedule.families.rows.price import row_costs, row_holes
from whet.schedule.space.statements import program_nests
from whet.tasks.task import Task


def found(task: Task) -> Rows:
    form = find_rows(task)
    assert form is not None
    return form


@pytest.mark.parametrize("together", [1, 2, 4, 8])
@pytest.mark.parametrize("n", [16, 24, 37, 300])
@pytest.mark.parametrize("name", ["softmax", "two_outputs"])
def test_rows_together_mean_the_same(name: str, n: int, together: int) -> None:
    task = TASKS[name](24, n)
    # Steps of 16 rows: the second is moved back to end at the last row.
    for per_step in (8, 16, 24):
        tiling = RowTiling(8, 2, per_step, together)
        check_native(lower_rows(found(task), tiling, "k"), task, arrays_for(task), HOST)


def test_candidates_take_whole_groups() -> None:
    for rows in (1, 7, 12, 96, 100):
        holes = row_holes(found(softmax(rows, 40)), HOST, 2)
        assert (holes["rows_per_step"] % holes["together"] == 0).all()
        assert (rows % holes["together"] == 0).all()
    assert set(row_holes(found(softmax(96, 40)), HOST, 2)["together"]) == {1, 2, 4, 8}
    assert set(row_holes(found(softmax(96, 4000)), HOST, 2)["together"]) == {1}


def test_short_rows_go_together() -> None:
    form = found(softmax(1024, 64))
    holes = row_holes(form, HOST, 1)
    best = int(row_costs(form, HOST, 1, holes).argmin())
    assert holes["together"][best] > 1


def test_loops_are_what_programs_say() -> None:
    form = found(softmax(96, 40))
    holes = row_holes(form, HOST, 2)
    nests = row_nests(form, HOST, 2, holes)
    for row in range(0, len(holes["lanes"]), 3):
        tiling = RowTiling(**{name: int(column[row]) for name, column in holes.items()})
        known = {shape_of(s, 0) for s in program_nests(lower_rows(form, tiling, "k").program)}
        for s in nests:
            (at,) = np.nonzero(s.rows == row)
            assert not len(at) or shape_of(s, int(at[0])) in known, tiling
