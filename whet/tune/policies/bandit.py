"""A bandit over sketches: those that gave fast kernels lately get more trials (HARL, ICPP 2022)."""

from __future__ import annotations

import math

import numpy as np

from whet.tune.policies.evolution import Evolution
from whet.tune.policies.protocol import Known, Policy
from whet.tune.space import Row, Space

BOLDNESS = 0.25
"""How much sketches that were tried seldom are preferred."""


class SketchBandit:
    """Upper confidence bounds over a sliding window choose sketches; a policy chooses rows.

    The reward of a trial is the best time so far over its own.  Only the last trials count,
    because what a sketch still has to offer changes as its best rows are used up.
    """

    def __init__(self, inner: Policy | None = None, window: int = 64) -> None:
        self.inner: Policy = inner or Evolution()
        self.window = window

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        found: list[Row] = []
        done: set[int] = set()
        while len(found) < count and len(done) < len(space.tables):
            shares = self.shares(space, known, count - len(found), done)
            for number, share in shares.items():
                rows = self._within(space, number, known, share, set(found), rng)
                found += rows
                if len(rows) < share:
                    done.add(number)
        return found

    def shares(
        self, space: Space, known: Known, count: int, done: set[int]
    ) -> dict[int, int]:  # fmt: skip
        """The share of each sketch in the next trials."""
        best = min(known.values(), default=math.inf)
        rewards: dict[int, list[float]] = {n: [] for n in range(len(space.tables)) if n not in done}
        for (number, _), timing in list(known.items())[-self.window :]:
            if number in rewards:
                rewards[number].append(best / timing if timing.ok else 0.0)
        shares = dict.fromkeys(rewards, 0)
        for _ in range(count):
            total = sum(len(r) + shares[n] for n, r in rewards.items())
            shares[max(rewards, key=lambda n: self._bound(rewards[n], shares[n], total))] += 1
        return {number: share for number, share in shares.items() if share}

    def _bound(self, rewards: list[float], planned: int, total: int) -> float:
        pulls = len(rewards) + planned
        if pulls == 0:
            return math.inf
        mean = sum(rewards) / len(rewards) if rewards else 0.5
        horizon = min(total, self.window)
        return mean + BOLDNESS * math.sqrt(math.log(horizon + 1) / pulls)

    def _within(
        self, space: Space, number: int, known: Known, count: int, taken: set[Row],
        rng: np.random.Generator,
    ) -> list[Row]:  # fmt: skip
        """Rows of one sketch, as if the task had no other."""
        alone = Space(space.task, (space.tables[number],), space.base)
        mine = {(0, row): timing for (owner, row), timing in known.items() if owner == number}
        rows = self.inner.propose(alone, mine, count, rng)
        return [(number, row) for _, row in rows if (number, row) not in taken]
