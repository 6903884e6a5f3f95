"""Transfer: what trials of similar tasks say about one that was never tried.

Tasks of one class differ in their extents only ("Transfer-Tuning", PACT 2022).  Every record of
such a donor holds a measured time and what the analytic model had expected.  The rule:

1. The schedules of a donor that came within a tenth of its best are re-legalized: in the table of
   the same sketch, the rows of the new task that are nearest to theirs (by the logarithms of the
   integers) are candidates, and so is the analytic model's own choice.
2. A candidate's time is its estimate times a correction: the mean ratio of measured to expected
   (in logarithms) of the donors' records of that sketch, each weighted by its nearness.  Far from
   all evidence the correction is the mean of all records of the class.
3. Candidates that donors found to fail are left out.  The fastest by these times is used without
   a trial if it beats the default, corrected alike, by the margin; the first few start a search.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.outcomes import Outcome
from whet.core.types import Array
from whet.db.record import Record
from whet.tune.space import Row, Space, Table

GOOD = 1.1
"""Schedules of a donor within this factor of its best are candidates."""
DONATED = 8
"""The most schedules that one donor gives."""
NEAREST = 24
"""Rows around each of them."""
REACH = 0.15
"""The distance, in doublings, at which evidence counts e times less."""
PRIOR = 0.1
"""The weight of the mean of all evidence."""
MARGIN = 0.92
"""What is used without a trial must take at most this share of the default's time."""


@dataclass(frozen=True)
class Prediction:
    """A candidate and the seconds that the evidence lets expect."""

    row: Row
    seconds: float


def transferred(space: Space, records: Sequence[Record], default: Row | None) -> list[Prediction]:
    """Candidates of an untried task, the fastest first; the default is among them.

    `records` are measurements of tasks of the same class.
    """
    known = [r for r in records if r.seconds is not None and r.estimate]
    if not known:
        return []
    overall = float(np.mean(log_ratios(known)))
    found: dict[Row, float] = {}
    for number, table in enumerate(space.tables):
        own = [r for r in known if r.sketch == table.sketch and set(r.holes) == set(table.names)]
        failed = _matrix(table, [r for r in records if r.outcome is not Outcome.OK
                                 and r.sketch == table.sketch
                                 and set(r.holes) == set(table.names)])  # fmt: skip
        rows = _candidates(table, own)
        if default is not None and default[0] == number:
            rows = np.union1d(rows, [default[1]]).astype(np.int64)
        rows = rows[~_contains(failed, table.matrix[rows])]
        seconds = 1e-9 * table.costs[rows] * np.exp(_corrections(table, rows, own, overall))
        found |= {(number, int(r)): float(s) for r, s in zip(rows, seconds)}
    return [Prediction(row, s) for row, s in sorted(found.items(), key=lambda item: item[1])]


def log_ratios(records: Iterable[Record]) -> Array:
    """Logarithms of measured by expected seconds, of the records that hold both."""
    return np.log([r.seconds / r.estimate for r in records if r.seconds and r.estimate])


def best_without_trials(found: Iterable[Prediction], default: Row | None) -> Row | None:
    """The row to use instead of the default, if the evidence is clear enough."""
    times = {p.row: p.seconds for p in found}
    if not times or default is None:
        return None
    best = min(times, key=lambda row: times[row])
    return best if times[best] < MARGIN * times.get(default, 0.0) else None


def _candidates(table: Table, records: Sequence[Record]) -> Array:
    """The rows nearest to the good schedules of every donor."""
    donors: dict[str, list[Record]] = {}
    for r in records:
        donors.setdefault(r.workload.key, []).append(r)
    given: list[Record] = []
    for tried in donors.values():
        tried.sort(key=lambda r: r.seconds or 0.0)
        limit = GOOD * (tried[0].seconds or 0.0)
        given += [r for r in tried[:DONATED] if (r.seconds or 0.0) <= limit]
    if not given:
        return np.zeros(0, np.int64)
    wanted = _matrix(table, given)
    table.intern(wanted)  # the very same integers, where the table is open to them
    distance = _distances(wanted, table.matrix)
    count = min(NEAREST, distance.shape[1])
    return np.unique(np.argpartition(distance, count - 1, axis=1)[:, :count])


def _corrections(table: Table, rows: Array, records: Sequence[Record], overall: float) -> Array:
    """The logarithm of measured by expected time, for every row."""
    if not records:
        return np.full(len(rows), overall)
    ratios = log_ratios(records)
    distance = _distances(table.matrix[rows], _matrix(table, records))
    weights = np.exp(-np.sqrt(distance) / REACH)
    return np.asarray((weights @ ratios + PRIOR * overall) / (weights.sum(axis=1) + PRIOR))


def _matrix(table: Table, records: Sequence[Record]) -> Array:
    rows = [[r.holes[name] for name in table.names] for r in records]
    return np.array(rows, np.int64).reshape(len(rows), len(table.names))


def _distances(a: Array, b: Array) -> Array:
    """Squared distances of all rows of one to all rows of the other, in doublings."""
    u, v = (np.log2(1.0 + np.maximum(m, 0)) for m in (a, b))
    return np.maximum(
        (u**2).sum(axis=1)[:, None] - 2.0 * u @ v.T + (v**2).sum(axis=1)[None, :], 0.0
    )


def _contains(rows: Array, wanted: Array) -> Array:
    """Which of the wanted rows are among the rows."""
    known = {tuple(row) for row in rows.tolist()}
    return np.array([tuple(row) in known for row in wanted.tolist()], bool)
