"""Random graphs under random legal schedules give what the interpreter gives.

Every kernel is a draw of task, sketch and holes; `make fuzz` runs many more of them.
"""

from __future__ import annotations

import pytest

from tests.build.schedules import check_many

GRAPHS_PER_TEST = 12


@pytest.mark.parametrize("first", range(0, 96, GRAPHS_PER_TEST))
def test_any_schedule_is_right(first: int) -> None:
    drawn = check_many(range(first, first + GRAPHS_PER_TEST))
    assert drawn.total() >= 2 * GRAPHS_PER_TEST


@pytest.mark.parametrize("first", range(1000, 1024, GRAPHS_PER_TEST))
def test_any_derived_schedule_is_right(first: int) -> None:
    """Beside those of the families, with which they share memory and layouts."""
    drawn = check_many(range(first, first + GRAPHS_PER_TEST), every=True)
    assert drawn["derived"] >= GRAPHS_PER_TEST // 2
    assert drawn.total() > drawn["derived"]
