"""Steps of parallel loops, and threads that wait for each other."""

from __future__ import annotations

from typing import Annotated

from whet.schedule.cost.numbers.origin import XEON, chosen, measured

STEP_NS: Annotated[float, "ns per step", chosen("bench/fork_join.py", "2026-11-15")] = 40.0
"""What it costs to begin a step of a parallel loop that threads share."""

SERIAL_STEP_NS: Annotated[
    float, "ns per step", chosen("bench/elementwise.py --threads 1", "2026-11-15")
] = 5.0
"""The same where one thread runs them all, one after the other."""

LATE: Annotated[float, "of a step", measured(
    "bench/networks.py --threads 16", "2026-11-16",
    "contractions of ResNet-50 take 8.0, 7.3, 7.8, 7.7 ms and of BERT 24.9, 24.4, 27.8, 30.9 with "
    "0, 0.25, 0.5 and 1", XEON,
)] = 0.25  # fmt: skip
"""Cores are not equally fast: by how much the last one to finish is late."""

MEETING: Annotated[float, "times as long", measured(
    "bench/price_numbers.py", "2026-11-16",
    "prices are off by a factor of 1.34 with it, 1.43 with half of it and 1.71 with twice",
)] = 1.1  # fmt: skip
"""Of reductions in parts: threads wait for each other once more, and read what others wrote."""
