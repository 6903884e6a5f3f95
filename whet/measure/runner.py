"""What a search asks of whoever measures kernels on a machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from whet.measure.results import Candidate, Comparison, Measured
from whet.tasks.task import Task

COMPARE_SECONDS = 0.5
"""How long two candidates take turns."""


class Runner(Protocol):
    """Builds, checks and times candidates of tasks.

    Whatever a candidate does is an outcome; nothing that it does reaches the caller.  The target
    is one of the kind of machine that it is for.
    """

    def trials(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: Any
    ) -> Iterator[Measured]:
        """How the trial of every candidate ends, one after the other, so that each can be kept
        before the next one runs."""

    def compare(
        self, task: Task, candidate: Candidate, incumbent: Candidate, threads: int, target: Any
    ) -> Comparison:
        """Lets two candidates take turns, to find out whether the first is really faster."""

    def close(self) -> None:
        """Ends all processes; they start anew when they are needed."""
