"""Schedules that an artifact carries: what the kernels of a tuned model were made by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.runtime.damage import require

MOST_SCHEDULES = 100_000

Place = tuple[str, str, int, str]
"""The keys of task and target, the number of threads, and the key of a plan, or nothing."""


@dataclass(frozen=True)
class StoredSchedule:
    """A candidate of a sketch, for a task (by its key) on a target (by its key).

    Nothing that it says is trusted: it is used only if it is one of the candidates that the
    sketch offers for the task.
    """

    task: str
    target: str
    threads: int
    sketch: str
    holes: Mapping[str, int]
    network: str = ""
    """The key of the only plan that it is for, where it was chosen for what is around it."""

    @property
    def place(self) -> Place:
        """The task that it is the schedule of."""
        return self.task, self.target, self.threads, self.network


def encode_schedules(schedules: Sequence[StoredSchedule]) -> list[dict[str, Any]]:
    """As JSON; in an order that depends on nothing else."""
    return [
        {"task": s.task, "target": s.target, "threads": s.threads, "sketch": s.sketch,
         "holes": dict(sorted(s.holes.items()))} | ({"network": s.network} if s.network else {})
        for s in sorted(schedules, key=lambda s: s.place)
    ]  # fmt: skip


def decode_schedules(records: Any) -> tuple[StoredSchedule, ...]:
    """The schedules that `encode_schedules` was given; `WH3001` for anything else."""
    sound = isinstance(records, list) and len(records) <= MOST_SCHEDULES
    require(sound and all(map(_is_sound, records)), "the artifact's schedules are malformed")
    return tuple(StoredSchedule(**record) for record in records)


def _is_sound(record: Any) -> bool:
    types = {"task": str, "target": str, "threads": int, "sketch": str, "holes": dict}
    if not isinstance(record, dict):
        return False
    if record.get("network"):
        types["network"] = str
    if record.keys() != types.keys():
        return False
    if any(type(record[name]) is not kind for name, kind in types.items()):
        return False
    return all(type(value) is int for value in record["holes"].values())
