"""Records to store."""

from __future__ import annotations

from dataclasses import replace

from whet.core.cpu import PRESETS
from whet.core.outcomes import Outcome
from whet.db.record import NetworkTrial, Record, Workload

TARGET = PRESETS["x86-64-v3"]
WORKLOAD = Workload("w0", "class0", "y = x")


def record(number: int, seconds: float | None = 1e-3, **changes: object) -> Record:
    """A trial of candidate `number`; without seconds it has crashed."""
    made = Record(
        WORKLOAD,
        TARGET,
        2,
        "contraction",
        {"mr": number, "nv": 2},
        Outcome.OK if seconds else Outcome.CRASH,
        (seconds, seconds * 1.5, seconds * 0.5) if seconds else (),
        checked=bool(seconds),
        at=float(number),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def network_trial(number: int, ratio: float | None = 0.99, **changes: object) -> NetworkTrial:
    """A trial of candidate `number` inside a network; without a ratio it has crashed."""
    made = NetworkTrial(
        "a network",
        "beside these",
        WORKLOAD,
        TARGET,
        2,
        "contraction",
        {"mr": number, "nv": 2},
        Outcome.OK if ratio else Outcome.CRASH,
        ratio,
        at=float(number),
    )
    return replace(made, **changes)  # type: ignore[arg-type]
