"""Rows of the database as records: what is asked for, and what the answer means."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from whet.core.errors import WhetError
from whet.core.outcomes import Outcome
from whet.core.target import Target, target_from_json
from whet.db.record import NetworkTrial, Record, Workload

COLUMNS = """
    SELECT w.key, w.class_key, w.text, t.description, r.threads, r.sketch, r.holes, r.trace,
           m.outcome, m.samples, m.message, m.build_ms, m.code_bytes, m.checked, m.seed,
           m.version, m.at, m.estimate, r.id
"""
TABLES = """
    JOIN record r ON r.id = m.record JOIN workload w ON w.id = r.workload
    JOIN target t ON t.id = r.target
"""
NETWORK_TRIALS = """
    SELECT w.key, w.class_key, w.text, r.sketch, r.holes, n.beside, n.outcome, n.ratio, n.kept,
           n.at, r.id
    FROM network_trial n JOIN record r ON r.id = n.record
    JOIN workload w ON w.id = r.workload JOIN target t ON t.id = r.target
    WHERE n.network = ? AND t.key = ? AND r.threads = ? AND NOT EXISTS (
        SELECT 1 FROM measurement WHERE record = r.id AND outcome = 'wrong_answer')
    ORDER BY n.id
"""

DAMAGE = (ValueError, TypeError, WhetError)
"""How a row that was changed from outside shows when it is read."""


def problem(row: Sequence[Any], error: Exception) -> str:
    why = error.message if isinstance(error, WhetError) else str(error)
    return f"candidate {row[-1]} of workload '{row[0]}': {why}"


def record_of_row(row: Sequence[Any], targets: dict[str, Target]) -> Record:
    """The record of a row of `COLUMNS`; `targets` keeps those that were read before."""
    key, class_key, text, description, threads, sketch, holes, trace, *measured = row
    outcome, samples, message, build_ms, code_bytes, checked, seed, version, at, *rest = measured
    if description not in targets:
        targets[description] = target_from_json(description)
    return Record(
        Workload(key, class_key, text), targets[description], threads, sketch, json.loads(holes),
        Outcome(outcome), tuple(json.loads(samples)), trace, message, build_ms, code_bytes,
        bool(checked), seed, version, at, *rest,
    )  # fmt: skip


def network_trial_of_row(
    row: Sequence[Any], network: str, target: Target, threads: int
) -> NetworkTrial:
    """The trial of a row of `NETWORK_TRIALS`."""
    key, class_key, text, sketch, holes, beside, outcome, ratio, kept, at, _ = row
    return NetworkTrial(
        network, beside, Workload(key, class_key, text), target, threads, sketch,
        json.loads(holes), Outcome(outcome), ratio, bool(kept), at,
    )  # fmt: skip
