"""The candidates of a task: one array of integers per sketch, priced by the analytic model.

    space = make_space(task, target, threads)
    table = space.tables[0]
    population = table.sample(2048, rng)             a row per candidate, a column per hole
    table.legal(population), table.price(population)
    rows = table.intern(population)                  the numbers that trials know candidates by

A table is closed when its sketch lists every legal row, and open when the sketch has a function
`legal`: then what `space` returned is a sample, and every combination of the values that occur in
it may be a candidate.  Open tables grow by the rows that are proposed for trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from whet.core.target import Target
from whet.core.types import Array
from whet.measure.results import Candidate
from whet.ops.base import Numeric
from whet.schedule.space.registry import allowed_sketches
from whet.schedule.space.sketch import Population, Sketch
from whet.tasks.task import Task
from whet.tune.models.protocol import Batch, CostModel

Row = tuple[int, int]
"""A candidate by the number of its table and the number of its row."""

F = TypeVar("F", contravariant=True)

DRAWS = 8
"""How often rows of an open table are drawn anew in place of illegal ones."""


@dataclass(frozen=True, eq=False)
class Offer:
    """A sketch that fits a task: what prices the rows of a table."""

    task: Task
    sketch: Sketch[Any, Any]
    form: Any
    target: Target
    threads: int

    def batch(self, population: Population) -> Batch:
        """Candidates as cost models see them."""
        return Batch(self.task, self.sketch, self.form, self.target, self.threads, population)

    def price(self, population: Population) -> Array:
        costs = self.sketch.costs(self.form, self.target, self.threads, population)
        return np.asarray(costs, np.float64)


@dataclass(frozen=True, eq=False)
class Shapes:
    """The structures of a table's first rows: combinations of its structural holes."""

    numbers: Mapping[bytes, int]
    """By the keys of the structural holes' entries."""
    rows: Sequence[Array]
    moves: Array
    """Which holes of each structure have several values, and last, which of any."""

    def of(self, structural: Array) -> Array:
        """The structures of rows, given as their structural entries; -1 where none is like it."""
        return np.array([self.numbers.get(key, -1) for key in row_keys(structural)], np.int64)


class Table:
    """Candidates of one sketch, with estimated nanoseconds."""

    def __init__(
        self, sketch: str, holes: Population, costs: Array, offer: Offer | None = None
    ) -> None:
        self.sketch, self.offer = sketch, offer
        self.names = tuple(holes)
        self.matrix: Array = np.stack([np.asarray(c, np.int64) for c in holes.values()], axis=1)
        """The rows that have numbers."""
        self.costs: Array = np.asarray(costs, np.float64)
        self.values = [np.unique(column) for column in self.matrix.T]
        """The values of every hole that occur, sorted."""

    @property
    def is_open(self) -> bool:
        return self.offer is not None and self.offer.sketch.is_open

    @property
    def holes(self) -> Population:
        return self.population(self.matrix)

    @cached_property
    def structure(self) -> Array:
        """Which holes choose between structures of the program, as the sketch says."""
        named = () if self.offer is None else self.offer.sketch.structure
        return np.array([name in named for name in self.names])

    @cached_property
    def shapes(self) -> Shapes:
        """The structures that occur."""
        chosen = self.matrix[:, self.structure]
        first = distinct(chosen)
        numbers = {key: number for number, key in enumerate(row_keys(chosen[first]))}
        owner = np.array([numbers[key] for key in row_keys(chosen)], np.int64)
        rows = [np.flatnonzero(owner == number) for number in range(len(first))]
        moves = [
            [len(np.unique(c)) > 1 for c in self.matrix[r].T]
            for r in (*rows, np.arange(len(owner)))
        ]
        return Shapes(numbers, rows, np.array(moves) & ~self.structure)

    @cached_property
    def loops(self) -> Array:
        """The number of the loop of every hole: `loop.hole`, or a hole on its own."""
        nodes = [name.rpartition(".")[0] or name for name in self.names]
        return np.unique(nodes, return_inverse=True)[1].reshape(-1)

    @cached_property
    def stages(self) -> Array:
        """[structures, holes]: the stage of every hole in each of the structures, from 1 on, and
        last in any other.

        What chooses the structure is of none, 0.  Where the sketch does not say, every loop is one.
        """
        found = np.tile(np.where(self.structure, 0, 1 + self.loops), (len(self.shapes.rows) + 1, 1))
        if self.offer is None:
            return found
        for number, rows in enumerate(self.shapes.rows):
            chosen = self.candidate(int(rows[0])).holes
            stages = self.offer.sketch.stages(self.offer.form, chosen)
            if stages:
                found[number] = 0
            for n, stage in enumerate(stages, 1):
                found[number, [name in stage for name in self.names]] = n
        return found

    def population(self, matrix: Array) -> Population:
        return dict(zip(self.names, matrix.T))

    def candidate(self, row: int) -> Candidate:
        return Candidate(self.sketch, dict(zip(self.names, map(int, self.matrix[row]))))

    # ------------------------------------------------------------------------------ whole arrays
    def legal(self, matrix: Array) -> Array:
        """Which rows are candidates."""
        if not self.is_open:
            return self._numbers(matrix) >= 0
        offer = self.offer
        assert offer is not None
        assert offer.sketch.is_open
        population = self.population(matrix)
        found = offer.sketch.legal(offer.form, offer.target, offer.threads, population)
        return np.asarray(found, bool)

    def price(self, matrix: Array) -> Array:
        """The analytic model's nanoseconds of legal rows."""
        if not len(matrix):
            return np.zeros(0)
        if not self.is_open:
            return self.costs[self._numbers(matrix)]
        assert self.offer is not None
        return self.offer.price(self.population(matrix))

    def intern(self, matrix: Array) -> Array:
        """The numbers of rows; -1 for those that are illegal.  New ones are added and priced."""
        numbers = self._numbers(matrix)
        if not self.is_open or np.all(numbers >= 0):
            return numbers
        fresh = matrix[numbers < 0]
        fresh = fresh[self.legal(fresh)]
        fresh = fresh[distinct(fresh)]
        if len(fresh):
            start = len(self.matrix)
            self._index.update({k: start + n for n, k in enumerate(row_keys(fresh))})
            self.matrix = np.concatenate([self.matrix, fresh])
            self.costs = np.concatenate([self.costs, self.price(fresh)])
            self.values = [np.union1d(v, c) for v, c in zip(self.values, fresh.T)]
        return self._numbers(matrix)

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Legal rows by chance; of an open table any, of a closed one no row twice."""
        if not self.is_open:
            return self.matrix[rng.permutation(len(self.matrix))[:count]]
        found, missing = [self.matrix[:0]], count
        for _ in range(DRAWS):
            columns = [v[rng.integers(len(v), size=2 * missing)] for v in self.values]
            drawn = np.stack(columns, axis=1)
            drawn = drawn[self.legal(drawn)][:missing]
            found.append(drawn)
            missing -= len(drawn)
            if not missing or len(drawn) * DRAWS < missing:
                break
        # Where few combinations are legal, the rows that the sketch itself drew fill up.
        rest = rng.permutation(len(self.matrix))[:missing]
        return np.concatenate([*found, self.matrix[rest]])

    def ranks(self, matrix: Array) -> Array:
        """The places of the entries in the sorted values of their holes."""
        return np.stack([np.searchsorted(v, c) for v, c in zip(self.values, matrix.T)], axis=1)

    def repair(self, matrix: Array, holes: Array) -> Array:
        """The nearest rows of a closed table that keep the entry of one hole each.

        (mr=7, tiles=49)  ->  (mr=7, tiles=28)    with mr kept, where there are only 28 tiles

        Nearest by the ranks of all other entries, relative to how many values there are.
        """
        scale, there, length = self._places
        wanted = self.ranks(matrix) * scale
        kept = matrix[np.arange(len(matrix)), holes]
        nearest = np.zeros(len(matrix), np.int64)
        for hole, value in {*zip(holes.tolist(), kept.tolist())}:
            mine = np.flatnonzero((holes == hole) & (kept == value))
            rows = self._having(hole, value)
            # The square of the distance, less what is the same for all rows of the table.
            away = length[rows] - 2.0 * wanted[mine] @ there[rows].T
            nearest[mine] = rows[np.argmin(away, axis=1)]
        return self.matrix[nearest]

    @cached_property
    def _places(self) -> tuple[Array, Array, Array]:
        """The scale of ranks, the scaled ranks of a closed table's rows, and their squares."""
        scale = np.array([1.0 / max(1, len(v) - 1) for v in self.values])
        there = self.ranks(self.matrix) * scale
        return scale, there, (there**2).sum(axis=1)

    def _having(self, hole: int, value: int) -> Array:
        """The rows of a closed table with this entry; there must be some."""
        if (hole, value) not in self._lists:
            self._lists[hole, value] = np.flatnonzero(self.matrix[:, hole] == value)
        return self._lists[hole, value]

    @cached_property
    def _lists(self) -> dict[tuple[int, int], Array]:
        return {}

    # ---------------------------------------------------------------------------------- one row
    def find(self, holes: Mapping[str, int]) -> int | None:
        """The number of the row with these integers, if that is a candidate."""
        if set(holes) != set(self.names):
            return None
        row = np.array([[int(holes[name]) for name in self.names]], np.int64)
        number = int(self.intern(row)[0])
        return None if number < 0 else number

    def neighbours(self, row: int, distance: int = 1) -> list[int]:
        """The rows that differ in one hole, by its value so many legal steps up or down.

        Where a closed table has no such row because other holes depend on this one, the nearest
        row with the next value stands in.
        """
        moves = [
            (hole, int(values[place]))
            for hole, (values, here) in enumerate(self._lines(row))
            for place in (here - distance, here + distance)
            if 0 <= place < len(values)
        ]
        found = [int(n) for n in self.intern(self._moved(row, moves))]
        if distance == 1 and not self.is_open:
            found += self._repaired_neighbours(row)
        return [n for n in dict.fromkeys(found) if n != row]

    def _lines(self, row: int) -> list[tuple[Array, int]]:
        """For every hole, the values that are legal beside the row's other entries, sorted, and
        where the row's own value is among them."""
        entries = self.matrix[row]
        moves = [(hole, int(v)) for hole, values in enumerate(self.values) for v in values]
        legal = self.legal(self._moved(row, moves))
        ends = np.cumsum([len(values) for values in self.values])[:-1]
        allowed = [v[good] for v, good in zip(self.values, np.split(legal, ends))]
        return [(v, int(np.searchsorted(v, entry))) for v, entry in zip(allowed, entries)]

    def _moved(self, row: int, moves: Sequence[tuple[int, int]]) -> Array:
        """Copies of a row with one entry each set to a value."""
        matrix = np.repeat(self.matrix[row][None], len(moves), axis=0)
        for n, (hole, value) in enumerate(moves):
            matrix[n, hole] = value
        return matrix

    def _repaired_neighbours(self, row: int) -> list[int]:
        ranks = self.ranks(self.matrix[row][None])[0]
        moves = [
            (hole, int(values[rank + step]))
            for hole, (values, rank) in enumerate(zip(self.values, ranks))
            for step in (-1, 1)
            if 0 <= rank + step < len(values)
        ]
        if not moves:
            return []
        matrix = self._moved(row, moves)
        holes = np.array([hole for hole, _ in moves])
        illegal = ~self.legal(matrix)
        nearest = self.repair(matrix[illegal], holes[illegal])
        return [int(n) for n in self._numbers(nearest)]

    def _numbers(self, matrix: Array) -> Array:
        index = self._index
        return np.array([index.get(key, -1) for key in row_keys(matrix)], np.int64)

    @cached_property
    def _index(self) -> dict[bytes, int]:
        """The number of every row that has one."""
        return {key: number for number, key in enumerate(row_keys(self.matrix))}


def row_keys(matrix: Array) -> list[bytes]:
    """The bytes of every row: equal keys are equal rows, and nothing else is."""
    dense = np.ascontiguousarray(matrix, np.int64)
    if not dense.size:
        return [b""] * len(dense)
    whole: Any = dense.view(np.dtype((np.void, dense.shape[1] * 8))).reshape(-1)
    found: list[bytes] = whole.tolist()
    return found


def distinct(matrix: Array) -> Array:
    """The first occurrence of every row, in order."""
    if not matrix.size:  # without columns all rows are equal
        return np.arange(min(1, len(matrix)))
    order = np.lexsort(matrix.T)  # stable: of equal rows the first comes first
    ordered = matrix[order]
    new = np.concatenate([[True], np.any(ordered[1:] != ordered[:-1], axis=1)])
    return np.sort(order[new])


@dataclass(frozen=True, eq=False)
class Space:
    """The candidates of a task over all sketches that fit it."""

    task: Task
    tables: tuple[Table, ...]
    base: CostModel | None = None
    """What trials of other tasks have taught, if any."""

    def candidate(self, row: Row) -> Candidate:
        return self.tables[row[0]].candidate(row[1])

    def find(self, candidate: Candidate) -> Row | None:
        for number, table in enumerate(self.tables):
            if table.sketch == candidate.sketch:
                row = table.find(candidate.holes)
                return None if row is None else (number, row)
        return None

    def neighbours(self, row: Row, distance: int = 1) -> list[Row]:
        return [(row[0], n) for n in self.tables[row[0]].neighbours(row[1], distance)]

    def cost(self, row: Row) -> float:
        return float(self.tables[row[0]].costs[row[1]])

    def cheapest(self) -> Row | None:
        """The row that the analytic model expects to be fastest: the default schedule.

        Sketches that draft no defaults have a say only where there are no others.
        """
        drafting = [t.offer is None or t.offer.sketch.drafts_default for t in self.tables]
        best = [
            (float(t.costs.min()), n, int(t.costs.argmin()))
            for n, t in enumerate(self.tables)
            if drafting[n] or not any(drafting)
        ]
        return min(best)[1:] if best else None

    @property
    def size(self) -> int:
        """The number of numbered candidates: of closed tables all, of open ones those in use."""
        return sum(len(t.costs) for t in self.tables)


def make_space(task: Task, target: Target, threads: int, numerics: Numeric = "real") -> Space:
    """All candidates that the sketches offer for the task."""
    tables = []
    for sketch in allowed_sketches(target, numerics):
        form = sketch.fits(task)
        if form is None:
            continue
        holes = sketch.space(form, target, threads)
        if len(next(iter(holes.values()))):
            offer = Offer(task, sketch, form, target, threads)
            tables.append(Table(sketch.name, holes, offer.price(holes), offer))
    return Space(task, tuple(tables))
