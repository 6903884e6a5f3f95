"""Records as lines of JSON, to carry them from one machine to another.

{"whet": 1, "workload": {...}, "target": {...}, "threads": 2, "sketch": "contraction", ...}
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.core.errors import WhetError
from whet.core.outcomes import Outcome
from whet.core.target import target_from_json
from whet.db.foreign import foreign_origin
from whet.db.record import Record, Workload
from whet.db.store import Database

FORMAT = 1
_INTEGERS = range(-(1 << 63), 1 << 63)
"""What the database and arrays can hold."""
BATCH = 1000
"""Lines per transaction: an interrupted import keeps what it has done."""


@dataclass
class ImportReport:
    """The outcome of reading the lines of a file."""

    added: int = 0
    known: int = 0
    """Measurements that the database already had."""
    refused: Counter[str] = field(default_factory=Counter)
    """Lines that were not taken, by reason."""

    def lines(self) -> list[str]:
        """The report as text."""
        reasons = [f"{n} lines refused: {why}" for why, n in self.refused.most_common()]
        return [f"{self.added} measurements added, {self.known} known already", *reasons]


class RefusedLine(Exception):  # noqa: N818 - a line is refused, the import goes on
    """The line is no record; the text says why."""


def export_lines(database: Database) -> Iterator[str]:
    """All measurements, one line each."""
    for r in database.records():
        fields = {
            "whet": FORMAT,
            "workload": {
                "key": r.workload.key,
                "class_key": r.workload.class_key,
                "text": r.workload.text,
            },
            "target": json.loads(r.target.to_json()),
            "threads": r.threads,
            "sketch": r.sketch,
            "trace": r.trace,
            "holes": dict(r.holes),
            "outcome": r.outcome.value,
            "samples": r.samples,
            "message": r.message,
            "build_ms": r.build_ms,
            "code_bytes": r.code_bytes,
            "checked": r.checked,
            "seed": r.seed,
            "version": r.version,
            "at": r.at,
            "estimate": r.estimate,
        }
        yield json.dumps(fields, allow_nan=False)


def import_lines(database: Database, lines: Iterable[str]) -> ImportReport:
    """Adds the records of the lines; others are counted and left out."""
    report = ImportReport()
    batch: list[Record] = []
    for line in lines:
        if not line.strip():
            continue
        try:
            batch.append(parse_line(line))
        except RefusedLine as refused:
            report.refused[str(refused)] += 1
        if len(batch) == BATCH:
            _store(database, batch, report)
    _store(database, batch, report)
    return report


def _store(database: Database, batch: list[Record], report: ImportReport) -> None:
    before = sum(database.stats().measurements.values())
    database.add(batch)
    added = sum(database.stats().measurements.values()) - before
    report.added += added
    report.known += len(batch) - added
    batch.clear()


def parse_line(line: str) -> Record:
    """The record that a line spells; `RefusedLine` if it spells something else."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise RefusedLine("not JSON") from None
    origin = foreign_origin(fields)
    if origin is not None:
        raise RefusedLine(f"written by {origin}, whose schedules mean nothing to whet")
    if not isinstance(fields, dict) or "whet" not in fields:
        raise RefusedLine("not a record of whet")
    if fields["whet"] != FORMAT:
        raise RefusedLine(f"format {fields['whet']!r}, this is whet for format {FORMAT}")
    try:
        return _record(fields)
    except (KeyError, TypeError, ValueError, OverflowError, WhetError) as error:
        problem = error.message if isinstance(error, WhetError) else _problem(error)
        raise RefusedLine(f"damaged record: {problem}") from None


def _problem(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _record(fields: Mapping[str, Any]) -> Record:
    workload = _typed(fields, "workload", dict)
    holes = _typed(fields, "holes", dict)
    samples = _typed(fields, "samples", list)
    outcome = Outcome(_typed(fields, "outcome", str))
    if not all(type(v) is int and v in _INTEGERS for v in holes.values()):
        raise ValueError("'holes' are not all integers of 64 bits")
    if not all(_is_time(s) for s in samples) or (outcome is Outcome.OK) != bool(samples):
        raise ValueError("'samples' do not fit the outcome")
    # Neither infinite numbers nor halves of characters, which could not be written again.
    json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    return Record(
        Workload(*(_typed(workload, name, str) for name in ("key", "class_key", "text"))),
        target_from_json(json.dumps(_typed(fields, "target", dict))),
        _positive(fields, "threads"),
        _typed(fields, "sketch", str),
        holes,
        outcome,
        tuple(float(s) for s in samples),
        _typed(fields, "trace", str),
        _typed(fields, "message", str),
        float(_typed(fields, "build_ms", int, float)),
        _typed(fields, "code_bytes", int),
        _typed(fields, "checked", bool),
        _typed(fields, "seed", int),
        _typed(fields, "version", str),
        float(_typed(fields, "at", int, float)),
        _estimate(fields.get("estimate")),
    )


def _positive(fields: Mapping[str, Any], name: str) -> int:
    value: int = _typed(fields, name, int)
    if value < 1:
        raise ValueError(f"'{name}' is {value}")
    return value


def _estimate(value: Any) -> float | None:
    """Lines of earlier versions have none."""
    if value is not None and not _is_time(value):
        raise ValueError("'estimate' is not a time")
    return value


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value > 0


def _typed(fields: Mapping[str, Any], name: str, *types: type) -> Any:
    value = fields[name]
    if type(value) not in types:
        raise ValueError(f"'{name}' is a {type(value).__name__}")
    if int in types and type(value) is int and value not in _INTEGERS:
        raise ValueError(f"'{name}' is not an integer of 64 bits")
    return value
