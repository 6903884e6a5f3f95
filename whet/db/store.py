"""The database of records, for any number of processes at once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.core.closing import Closing
from whet.core.digest import digest_text
from whet.core.errors import RecordsError, WhetError, check, fail
from whet.core.outcomes import Outcome
from whet.core.target import Target, target_from_json
from whet.core.version import VERSION
from whet.db.connection import ELSEWHERE, connect, explained, may_write, transaction
from whet.db.record import Record, Workload, holes_text

_COLUMNS = """
    SELECT w.key, w.class_key, w.text, t.description, r.threads, r.sketch, r.holes, r.trace,
           m.outcome, m.samples, m.message, m.build_ms, m.code_bytes, m.checked, m.seed,
           m.version, m.at, m.estimate, r.id
"""
_TABLES = """
    JOIN record r ON r.id = m.record JOIN workload w ON w.id = r.workload
    JOIN target t ON t.id = r.target
"""


@dataclass(frozen=True, slots=True)
class Stats:
    """The amount of everything; measurements by outcome."""

    targets: int
    workloads: int
    classes: int
    records: int
    measurements: dict[str, int]
    models: int
    bytes: int


class Database(Closing):
    """Records of trials in one file.

    Everything that is added is kept as a whole or not at all, and what has been added survives
    whatever happens to the process afterwards.  A file that may not be written is opened for
    reading, unless it is opened `to_write`; writing then raises `WH4102`, as it does when the
    disk is full.
    """

    def __init__(
        self, path: str | Path, *, read_only: bool = False, to_write: bool = False
    ) -> None:
        self.path = Path(path)
        self.read_only = read_only or not may_write(self.path)
        check(not (to_write and self.read_only), "WH4102",
              f"the tuning database '{self.path}' cannot be written: permission denied",
              hint=ELSEWHERE, kind=RecordsError)  # fmt: skip
        self._connection = connect(self.path, read_only=self.read_only)

    # ------------------------------------------------------------------------------- writing
    def add(self, records: Iterable[Record]) -> list[int]:
        """Adds measurements in one transaction; the numbers of their candidates.

        A measurement that is already there (same candidate, time and samples) is left alone.
        """
        with self._writing():
            return [self._add(record) for record in records]

    def promote(self, record: int) -> None:
        """Makes the candidate of that number the best of its workload, target and threads.

        For the winner of a comparison side by side, which outranks separate measurements.
        """
        with self._writing():
            self._connection.execute(
                "INSERT INTO promotion (record, at) VALUES (?, ?)", (record, time.time())
            )

    def add_model(self, target: Target, kind: str, data: bytes) -> None:
        """Keeps a learned model; earlier ones of its kind stay."""
        with self._writing():
            self._connection.execute(
                "INSERT INTO model (target, kind, data, version, at) VALUES (?, ?, ?, ?, ?)",
                (self._target(target), kind, data, VERSION, time.time()),
            )

    def _writing(self) -> Any:
        if self.read_only:
            fail("WH4102", f"the tuning database '{self.path}' is open for reading only",
                 hint=ELSEWHERE, kind=RecordsError)  # fmt: skip
        return transaction(self._connection, self.path)

    def _add(self, r: Record) -> int:
        candidate = (
            self._workload(r.workload), self._target(r.target), r.threads, r.sketch, r.trace,
            holes_text(r.holes),
        )  # fmt: skip
        number = self._number(
            "record (workload, target, threads, sketch, trace, holes)",
            "workload = ? AND target = ? AND threads = ? AND sketch = ? AND trace = ? "
            "AND holes = ?",
            candidate,
            candidate,
        )
        self._connection.execute(
            "INSERT OR IGNORE INTO measurement (record, outcome, seconds, samples, message, "
            "build_ms, code_bytes, checked, seed, version, at, estimate) "
            "VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            (number, r.outcome.value, r.seconds, json.dumps(r.samples), r.message, r.build_ms,
             r.code_bytes, int(r.checked), r.seed, r.version, r.at, r.estimate),
        )  # fmt: skip
        return number

    def _workload(self, w: Workload) -> int:
        return self._number(
            "workload (key, class_key, text)", "key = ?", (w.key,), (w.key, w.class_key, w.text)
        )

    def _target(self, t: Target) -> int:
        return self._number(
            "target (key, name, description)", "key = ?", (t.key,), (t.key, t.name, t.to_json())
        )

    def _number(
        self, table: str, where: str, known: Sequence[Any], values: Sequence[Any]
    ) -> int:  # fmt: skip
        """The number of a row, which is added if it is not there."""
        name = table.split()[0]
        row = self._connection.execute(f"SELECT id FROM {name} WHERE {where}", known).fetchone()
        if row is None:
            marks = ", ".join("?" * len(values))
            done = self._connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)
            assert done.lastrowid is not None
            return done.lastrowid
        return int(row[0])

    # ------------------------------------------------------------------------------- reading
    def best(self, workload: str, target: Target, threads: int) -> Record | None:
        """The candidate to use for a workload (by its key), if any was measured."""
        found = self._best("w.key = ? AND t.key = ? AND b.threads = ?",
                           (workload, target.key, threads))  # fmt: skip
        return found[0] if found else None

    def similar(self, class_key: str, target: Target, threads: int) -> list[Record]:
        """The best candidate of every workload that differs in its extents only."""
        return self._best("w.class_key = ? AND t.key = ? AND b.threads = ?",
                          (class_key, target.key, threads))  # fmt: skip

    def class_records(
        self, class_key: str, target: Target, threads: int, *, without: str = ""
    ) -> list[Record]:
        """All measurements of workloads that differ in their extents only, but for one."""
        where = "w.class_key = ? AND t.key = ? AND r.threads = ? AND w.key != ?"
        query = f"{_COLUMNS} FROM measurement m {_TABLES} WHERE {where} ORDER BY m.id"
        return list(self._records(query, (class_key, target.key, threads, without)))

    def has_records(self, target: Target, threads: int) -> bool:
        """Whether anything was measured for that many threads of the target."""
        query = ("SELECT 1 FROM record r JOIN target t ON t.id = r.target "
                 "WHERE t.key = ? AND r.threads = ? LIMIT 1")  # fmt: skip
        return self._one(query, (target.key, threads)) is not None

    def evidence_key(self, target: Target, threads: int) -> str:
        """A digest of what schedules follow from: equal as long as nothing is added."""
        counts = [
            self._one(f"SELECT coalesce(max(x.id), 0) FROM {table} x JOIN record r "
                      "ON r.id = x.record JOIN target t ON t.id = r.target "
                      "WHERE t.key = ? AND r.threads = ?", (target.key, threads))[0]
            for table in ("measurement", "promotion")
        ]  # fmt: skip
        found = self._best("t.key = ? AND b.threads = ?", (target.key, threads))
        lines = sorted(f"{r.workload.key} {r.sketch} {holes_text(r.holes)}" for r in found)
        return digest_text(*map(str, counts), *lines)

    def _best(self, where: str, values: Sequence[Any]) -> list[Record]:
        query = f"{_COLUMNS} FROM best b JOIN measurement m ON m.id = b.measurement {_TABLES}"
        return list(self._records(f"{query} WHERE {where} ORDER BY r.id", values))

    def records(
        self,
        workload: str | None = None,
        target: Target | None = None,
        threads: int | None = None,
    ) -> Iterator[Record]:
        """All measurements, or those of a workload, target or number of threads; oldest first."""
        wanted = {
            "w.key": workload,
            "t.key": target.key if target else None,
            "r.threads": threads,
        }
        given = {column: value for column, value in wanted.items() if value is not None}
        where = " AND ".join(["1", *(f"{column} = ?" for column in given)])
        query = f"{_COLUMNS} FROM measurement m {_TABLES} WHERE {where} ORDER BY m.id"
        return self._records(query, list(given.values()))

    def _records(self, query: str, values: Sequence[Any]) -> Iterator[Record]:
        targets: dict[str, Target] = {}
        for row in self._rows(query, values):
            try:
                made = _record(row, targets)
            except _DAMAGE as error:
                fail("WH4101", f"the tuning database '{self.path}' is damaged",
                     _problem(row, error), hint="whet db doctor lists all",
                     kind=RecordsError)  # fmt: skip
            yield made

    def _rows(self, query: str, values: Sequence[Any] = ()) -> Iterator[Sequence[Any]]:
        with explained(self.path):
            yield from self._connection.execute(query, values)

    def model(self, target: Target, kind: str) -> bytes | None:
        """The newest learned model of a kind."""
        row = self._one(
            "SELECT data FROM model WHERE kind = ? AND target = "
            "(SELECT id FROM target WHERE key = ?) ORDER BY id DESC LIMIT 1",
            (kind, target.key),
        )
        return bytes(row[0]) if row else None

    def stats(self) -> Stats:
        def count(what: str) -> int:
            return int(self._one(f"SELECT count({what}")[0])

        with explained(self.path):
            outcomes = self._connection.execute(
                "SELECT outcome, count(*) FROM measurement GROUP BY outcome ORDER BY outcome"
            ).fetchall()
        return Stats(
            count("*) FROM target"),
            count("*) FROM workload"),
            count("DISTINCT class_key) FROM workload"),
            count("*) FROM record"),
            dict(outcomes),
            count("*) FROM model"),
            self.path.stat().st_size,
        )

    def problems(self) -> list[str]:
        """The problems of the file; nothing for a sound one."""
        with explained(self.path):
            found = [str(row[0]) for row in self._connection.execute("PRAGMA integrity_check")]
            dangling = self._connection.execute("PRAGMA foreign_key_check").fetchall()
        found = [line for line in found if line != "ok"]
        found += [f"row {row} of {table} refers to nothing" for table, row, *_ in dangling]
        return found or list(self._unreadable())

    def _unreadable(self) -> Iterator[str]:
        """Rows that SQLite finds sound and that mean nothing."""
        targets: dict[str, Target] = {}
        for row in self._rows(f"{_COLUMNS} FROM measurement m {_TABLES} ORDER BY m.id"):
            try:
                _record(row, targets)
            except _DAMAGE as error:
                yield _problem(row, error)

    def _one(self, query: str, values: Sequence[Any] = ()) -> Any:
        with explained(self.path):
            return self._connection.execute(query, values).fetchone()

    # ------------------------------------------------------------------------------- closing
    def close(self) -> None:
        self._connection.close()


_DAMAGE = (ValueError, TypeError, WhetError)
"""How a row that was changed from outside shows when it is read."""


def _problem(row: Sequence[Any], error: Exception) -> str:
    why = error.message if isinstance(error, WhetError) else str(error)
    return f"candidate {row[-1]} of workload '{row[0]}': {why}"


def _record(row: Sequence[Any], targets: dict[str, Target]) -> Record:
    key, class_key, text, description, threads, sketch, holes, trace, *measured = row
    outcome, samples, message, build_ms, code_bytes, checked, seed, version, at, *rest = measured
    if description not in targets:
        targets[description] = target_from_json(description)
    return Record(
        Workload(key, class_key, text), targets[description], threads, sketch, json.loads(holes),
        Outcome(outcome), tuple(json.loads(samples)), trace, message, build_ms, code_bytes,
        bool(checked), seed, version, at, *rest,
    )  # fmt: skip
