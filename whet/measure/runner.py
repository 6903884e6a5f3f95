"""The protocol of what measures kernels on a machine, as a search asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from whet.core.target import Target
from whet.measure.results import Candidate, Comparison, Measured
from whet.tasks.task import Task

COMPARE_SECONDS = 0.5
"""How long two candidates take turns."""


T = TypeVar("T", bound=Target, contravariant=True)


class Runner(Protocol[T]):
    """Builds, checks and times candidates of tasks; T are the targets that it knows.

    Whatever a candidate does is an outcome; nothing that it does reaches the caller.
    """

    def trials(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: T
    ) -> Iterator[Measured]:
        """The end of every candidate's trial, one after the other, so that each can be kept
        before the next one runs."""

    def compare(
        self, task: Task, candidate: Candidate, incumbent: Candidate, threads: int, target: T
    ) -> Comparison:
        """Lets two candidates take turns, to find out whether the first is really faster."""

    def close(self) -> None:
        """Ends all processes; they start anew when they are needed."""
