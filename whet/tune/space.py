"""The candidates of a task: one table of integers per sketch, priced by the analytic model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from whet.core.target import Target
from whet.core.types import Array
from whet.measure.results import Candidate
from whet.ops.base import Numeric
from whet.schedule import families  # noqa: F401  (adds the sketches)
from whet.schedule.sketch import SKETCHES, Population
from whet.tasks.task import Task

Row = tuple[int, int]
"""A candidate by the number of its table and the number of its row."""


@dataclass(frozen=True, eq=False)
class Table:
    """All candidates of one sketch, with estimated nanoseconds."""

    sketch: str
    holes: Population
    costs: Array

    def candidate(self, row: int) -> Candidate:
        return Candidate(self.sketch, {h: int(column[row]) for h, column in self.holes.items()})

    @cached_property
    def rows(self) -> dict[tuple[int, ...], int]:
        """The row of every combination of integers."""
        matrix = np.stack(list(self.holes.values()), axis=1)
        return {tuple(map(int, values)): n for n, values in enumerate(matrix)}

    def find(self, holes: Mapping[str, int]) -> int | None:
        """The row with these integers, if the table has one."""
        if set(holes) != set(self.holes):
            return None
        return self.rows.get(tuple(int(holes[name]) for name in self.holes))

    def neighbours(self, row: int) -> list[int]:
        """The rows that differ in one hole, by the next smaller or larger value there is."""
        found = []
        for name, column in self.holes.items():
            others = [c == c[row] for h, c in self.holes.items() if h != name]
            same = np.logical_and.reduce(others) if others else np.ones(len(column), bool)
            for side in (column < column[row], column > column[row]):
                rows = np.flatnonzero(same & side)
                if len(rows):
                    found.append(int(rows[np.argmin(np.abs(column[rows] - column[row]))]))
        return found


@dataclass(frozen=True, eq=False)
class Space:
    """The candidates of a task over all sketches that fit it."""

    task: Task
    tables: tuple[Table, ...]

    def candidate(self, row: Row) -> Candidate:
        return self.tables[row[0]].candidate(row[1])

    def find(self, candidate: Candidate) -> Row | None:
        for number, table in enumerate(self.tables):
            if table.sketch == candidate.sketch:
                row = table.find(candidate.holes)
                return None if row is None else (number, row)
        return None

    def neighbours(self, row: Row) -> list[Row]:
        return [(row[0], n) for n in self.tables[row[0]].neighbours(row[1])]

    def cost(self, row: Row) -> float:
        return float(self.tables[row[0]].costs[row[1]])

    @cached_property
    def size(self) -> int:
        return sum(len(t.costs) for t in self.tables)


def make_space(task: Task, target: Target, threads: int, numerics: Numeric = "real") -> Space:
    """All candidates that the sketches offer for the task."""
    tables = []
    for sketch in SKETCHES.values():
        if sketch.numeric == "real" and numerics == "exact":
            continue
        form = sketch.fits(task)
        if form is None:
            continue
        holes = sketch.space(form, target, threads)
        if len(next(iter(holes.values()))):
            costs = sketch.costs(form, target, threads, holes)
            tables.append(Table(sketch.name, holes, np.asarray(costs)))
    return Space(task, tuple(tables))
