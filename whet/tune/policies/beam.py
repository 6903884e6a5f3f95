"""Beam search over incomplete programs: the baseline that Ansor is compared with (figure 7).

Holes are decided one after the other, as Halide's auto-scheduler decides loop by loop.  Of all
ways to decide the next hole only the best few are kept, judged by how fast their completions look.
An early decision that looks bad on average is never taken back: that is the defect of the method.
"""

from __future__ import annotations

import numpy as np

from whet.core.types import Array
from whet.tune.models.protocol import Learner
from whet.tune.policies.evolution import Scored, favourites
from whet.tune.policies.judge import ANALYTIC, Judge, learned
from whet.tune.policies.protocol import Known
from whet.tune.space import Row, Space, Table, distinct, row_keys


class Beam:
    """The beam's last rows, the best first; a wider beam when all of them are known."""

    def __init__(
        self, learner: Learner | None = None, width: int = 16, completions: int = 8
    ) -> None:  # fmt: skip
        self.learner, self.width, self.completions = learner, width, completions

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        judge = learned(self.learner, space, known) or ANALYTIC
        width = self.width
        widest = max((len(t.matrix) for t in space.tables), default=0)
        while True:
            ends = [self.search(space, n, width, judge, rng) for n in range(len(space.tables))]
            found = favourites(ends, space, known, count)
            if found or width >= widest:
                return found
            width *= 2

    def search(
        self, space: Space, number: int, width: int, judge: Judge, rng: np.random.Generator
    ) -> Scored:
        """The complete rows that are left when every hole of one table is decided."""
        table = space.tables[number]
        kept = table.matrix[:1]  # nothing is decided yet: any row stands for all
        for decided in range(1, len(table.names) + 1):
            rows = self.complete(table, kept, decided, rng)
            scores = judge.scores(space, number, rows)
            prefixes = rows[:, :decided]
            first = distinct(prefixes)
            group = _group(prefixes, prefixes[first])
            mean = np.bincount(group, scores, len(first)) / np.bincount(group, minlength=len(first))
            kept = rows[first[np.argsort(-mean, kind="stable")[:width]]]
        return Scored(number, kept, judge.scores(space, number, kept))

    def complete(
        self, table: Table, kept: Array, decided: int, rng: np.random.Generator
    ) -> Array:  # fmt: skip
        """Legal rows that go on from the kept ones, which agree with them in the decided holes."""
        if not table.is_open:
            before = table.matrix[:, : decided - 1]
            return table.matrix[_group(before, kept[:, : decided - 1]) >= 0]
        values = table.values[decided - 1]
        each = len(values) * self.completions
        rows = table.sample(len(kept) * each, rng)
        rows = rows[rng.integers(len(rows), size=len(kept) * each)]
        rows[:, : decided - 1] = np.repeat(kept[:, : decided - 1], each, axis=0)
        rows[:, decided - 1] = np.tile(np.repeat(values, self.completions), len(kept))
        # A kept row is a completion of itself, so that no beam ends with nothing legal.
        return np.concatenate([rows[table.legal(rows)], kept])


def _group(rows: Array, prototypes: Array) -> Array:
    """The number of the prototype that each row equals, -1 for none."""
    owners = {key: number for number, key in enumerate(row_keys(prototypes))}
    return np.array([owners.get(key, -1) for key in row_keys(rows)], np.int64)
