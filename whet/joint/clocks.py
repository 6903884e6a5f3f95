"""Clocks of searches: time as it passes, or work as it is done.

    long search    ends when its time has passed
    short search   ends when its work is done: it finds the same on a slow or busy machine

Work is given in the seconds that an ordinary core takes for it.
"""

from __future__ import annotations

import math
import time

NODE_SECONDS = 4e-4
"""Seconds to find, plan and price a graph, for each of its nodes."""
FLOP_SECONDS = 1e-10
"""Seconds to compare a block with what replaces it on numbers, for each of its operations."""
PATIENCE = 10.0
"""A search that counts work ends in any case so many seconds of the processor's time, which others
on the machine take no part of, after its own."""


class Clock:
    """The time that passes."""

    def now(self) -> float:
        return time.perf_counter()

    def spend(self, seconds: float) -> None:
        """Notes that work was done which takes so long."""


class WorkClock(Clock):
    """The work that was done, in seconds; endless once this thread has had the processor for
    `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.done = 0.0
        self.until = time.thread_time() + seconds

    def now(self) -> float:
        return self.done if time.thread_time() < self.until else math.inf

    def spend(self, seconds: float) -> None:
        self.done += seconds
