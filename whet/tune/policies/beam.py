"""Beam search over incomplete programs: the baseline that Ansor is compared with (figure 7).

Loops are decided one after the other, as Halide's auto-scheduler does: all holes of a loop are one
decision.  Of the ways to take the next decision only the best few are kept, judged by what the
model thinks of their completions, on average.  An early decision that looks bad on average is never
taken back: that is the defect of the method.

Models take milliseconds for a batch, however small, and hardly more for a large one: listed rows
are scored once, and open tables once per decision.
"""

from __future__ import annotations

import numpy as np

from whet.core.types import Array
from whet.tune.models.protocol import Learner
from whet.tune.policies.evolution import Scored, favourites
from whet.tune.policies.judge import ANALYTIC, Judge, learned
from whet.tune.policies.protocol import Known
from whet.tune.space import Row, Space, Table

COMPLETIONS = 4
"""By how many completions a beginning is judged."""
LISTED = 16384
"""Rows of a closed table that are looked at."""
SPARE = 4
"""How many completions are drawn for each that is judged: not all are legal."""


class Beam:
    """The beam's last rows, the best first; a wider beam when all of them are known."""

    def __init__(self, learner: Learner | None = None, width: int = 16, judged: int = 512) -> None:
        self.learner, self.width, self.judged = learner, width, judged

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        judge = learned(self.learner, space, known) or ANALYTIC
        closed = {
            number: Scored(number, rows, judge.scores(space, number, rows))
            for number, table in enumerate(space.tables)
            if not table.is_open
            for rows in (table.sample(LISTED, rng),)
        }
        width = self.width
        widest = max((len(t.matrix) for t in space.tables), default=0)
        while True:
            ends = [
                narrowed(closed[number], decisions(table), width)
                if number in closed
                else self.grown(space, number, width, judge, rng)
                for number, table in enumerate(space.tables)
            ]
            found = favourites(ends, space, known, count)
            if found or width >= widest:
                return found
            width *= 2

    def grown(
        self, space: Space, number: int, width: int, judge: Judge, rng: np.random.Generator
    ) -> Scored:
        """The complete rows that are left when everything about an open table is decided."""
        table = space.tables[number]
        kept = Scored(number, table.matrix[:1], np.zeros(1))  # any row stands for nothing decided
        decided = np.zeros(0, np.int64)
        for holes in decisions(table):
            rows = self.complete(table, kept.matrix, decided, holes, rng)
            scores = judge.scores(space, number, rows)
            decided = np.concatenate([decided, holes])
            kept = _leading(Scored(number, rows, scores), decided, width)[0]
        return kept

    def complete(
        self, table: Table, kept: Array, decided: Array, holes: Array, rng: np.random.Generator
    ) -> Array:
        """Legal rows that are decided as the kept ones are, with ways to decide the next holes."""
        tails = table.sample(self.judged, rng)
        ways = np.unique(tails[:, holes], axis=0)
        each = max(1, self.judged // (len(kept) * COMPLETIONS)) * SPARE
        # Every kept row goes through all ways, from one by chance; with as many completions each.
        turns = np.arange(each)[:, None] + rng.integers(len(ways), size=len(kept))
        way = np.repeat(turns.reshape(-1) % len(ways), COMPLETIONS)
        rows = tails[rng.integers(len(tails), size=len(way))]
        rows[:, holes] = ways[rng.permutation(len(ways))][way]
        rows[:, decided] = np.tile(
            np.repeat(kept[:, decided], COMPLETIONS, axis=0), (each, 1)
        )  # fmt: skip
        # A kept row is a completion of itself, so that no beam ends with nothing legal.
        return np.concatenate([rows[table.legal(rows)][: self.judged], kept])


def decisions(table: Table) -> list[Array]:
    """The holes of each loop that have several values, in the order of the holes."""
    open_holes = np.flatnonzero([len(values) > 1 for values in table.values])
    loops = table.loops[open_holes]
    return [open_holes[loops == loop] for loop in dict.fromkeys(loops.tolist())]


def narrowed(listed: Scored, order: list[Array], width: int) -> Scored:
    """The rest of listed rows: after every decision only those that begin as the best few."""
    decided = np.zeros(0, np.int64)
    for holes in order:
        decided = np.concatenate([decided, holes])
        listed = _leading(listed, decided, width)[1]
    return listed


def _leading(rows: Scored, decided: Array, width: int) -> tuple[Scored, Scored]:
    """One row of each of the best beginnings, the best first, and all rows that begin so."""
    _, first, label = np.unique(
        rows.matrix[:, decided], axis=0, return_index=True, return_inverse=True
    )
    label = label.reshape(-1)
    mean = np.bincount(label, rows.scores) / np.bincount(label)
    best = np.argsort(-mean, kind="stable")[:width]

    def taken(which: Array) -> Scored:
        return Scored(rows.number, rows.matrix[which], rows.scores[which])

    return taken(first[best]), taken(np.isin(label, best))
