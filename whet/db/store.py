"""The database of records, for any number of processes at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from whet.core.closing import Closing
from whet.core.digest import digest_text
from whet.core.errors import RecordsError, check, fail
from whet.core.target import Target
from whet.core.version import VERSION
from whet.db.connection import ELSEWHERE, connect, explained, may_write, transaction
from whet.db.record import NetworkTrial, Record, Workload, holes_text
from whet.db.rows import (
    COLUMNS,
    DAMAGE,
    NETWORK_TRIALS,
    TABLES,
    network_trial_of_row,
    problem,
    record_of_row,
)

R = TypeVar("R")


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

    def add_network_trials(self, trials: Iterable[NetworkTrial]) -> None:
        """Adds comparisons inside a network in one transaction."""
        with self._writing():
            for t in trials:
                number = self._candidate(t, trace="")
                self._connection.execute(
                    "INSERT INTO network_trial (network, beside, record, outcome, ratio, kept, "
                    "version, at) VALUES (?,?,?,?,?,?,?,?)",
                    (t.network, t.beside, number, t.outcome.value, t.ratio, int(t.kept), VERSION,
                     t.at),
                )  # fmt: skip

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

    def _candidate(self, r: Record | NetworkTrial, trace: str) -> int:
        """The number of a trial's candidate."""
        candidate = (
            self._workload(r.workload), self._target(r.target), r.threads, r.sketch, trace,
            holes_text(r.holes),
        )  # fmt: skip
        return self._number(
            "record (workload, target, threads, sketch, trace, holes)",
            "workload = ? AND target = ? AND threads = ? AND sketch = ? AND trace = ? "
            "AND holes = ?",
            candidate,
            candidate,
        )

    def _add(self, r: Record) -> int:
        number = self._candidate(r, r.trace)
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
        query = f"{COLUMNS} FROM measurement m {TABLES} WHERE {where} ORDER BY m.id"
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
            for table in ("measurement", "promotion", "network_trial")
        ]  # fmt: skip
        found = self._best("t.key = ? AND b.threads = ?", (target.key, threads))
        lines = sorted(f"{r.workload.key} {r.sketch} {holes_text(r.holes)}" for r in found)
        return digest_text(*map(str, counts), *lines)

    def network_trials(self, network: str, target: Target, threads: int) -> list[NetworkTrial]:
        """All comparisons inside a network, oldest first, but for candidates that have ever given
        a wrong answer."""
        return [
            self._sound(row, lambda row: network_trial_of_row(row, network, target, threads))
            for row in self._rows(NETWORK_TRIALS, (network, target.key, threads))
        ]

    def _best(self, where: str, values: Sequence[Any]) -> list[Record]:
        query = f"{COLUMNS} FROM best b JOIN measurement m ON m.id = b.measurement {TABLES}"
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
        query = f"{COLUMNS} FROM measurement m {TABLES} WHERE {where} ORDER BY m.id"
        return self._records(query, list(given.values()))

    def _records(self, query: str, values: Sequence[Any]) -> Iterator[Record]:
        targets: dict[str, Target] = {}
        for row in self._rows(query, values):
            yield self._sound(row, lambda row: record_of_row(row, targets))

    def _sound(self, row: Sequence[Any], parse: Callable[[Sequence[Any]], R]) -> R:
        """The meaning of a row; `WH4101` if it has none."""
        try:
            return parse(row)
        except DAMAGE as error:
            fail("WH4101", f"the tuning database '{self.path}' is damaged",
                 problem(row, error), hint="whet db doctor lists all",
                 kind=RecordsError)  # fmt: skip

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
        for row in self._rows(f"{COLUMNS} FROM measurement m {TABLES} ORDER BY m.id"):
            try:
                record_of_row(row, targets)
            except DAMAGE as error:
                yield problem(row, error)

    def _one(self, query: str, values: Sequence[Any] = ()) -> Any:
        with explained(self.path):
            return self._connection.execute(query, values).fetchone()

    # ------------------------------------------------------------------------------- closing
    def close(self) -> None:
        self._connection.close()
