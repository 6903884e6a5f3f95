"""The protocol of what times the kernels of a network where they run: behind each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from whet.measure.results import Candidate, Comparison
from whet.tasks.task import Task

Choices = Mapping[str, Candidate]
"""The candidates of a network's tasks, by the keys of these."""


class TimedNetwork(Protocol):
    """The kernels of one plan, all of which can be exchanged.

    Whatever a kernel does is an outcome; nothing that it does reaches the caller.
    """

    def compare(self, new: Choices, old: Choices, seconds: float) -> Comparison:
        """Lets the network with new kernels and that with old ones take turns, at most about that
        long; candidates must have been checked."""

    def build_ahead(self, wanted: Iterable[tuple[Task, Candidate]]) -> None:
        """Builds kernels that are going to be tried, many at once."""
