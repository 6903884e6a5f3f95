"""The task scheduler: which task gets the next trials (Ansor, section 6 and appendix A).

A task is worth its gradient: how much a further round should improve the objective, judged by
the task's own recent progress and by how far it is from the rate that similar tasks reached.

    slope_i * (alpha * past_i + (1 - alpha) * future_i)
    past_i    what a round brought lately: (g_i(t - window) - g_i(t)) / window
    future_i  max(g_i / t_i, g_i - beta * work_i / the best rate of similar tasks)

The paper writes what changes, which is negative, and takes the least of it; here it is what is
gained, and the most counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from whet.core.types import Array
from whet.tune.objectives import Objective, Standing

_RATIO = (1 + math.sqrt(5)) / 2
"""Tasks of one class are similar when the logarithms of their work to this base agree."""
_LAG_ROUNDS = 5


@dataclass(eq=False)
class Progress:
    """The history of a task's best time."""

    work: float
    """Operations: what similar tasks are compared by."""
    kind: str
    """Equal for tasks that differ in their extents only."""
    estimate: float = math.inf
    """Seconds that the analytic model expects."""
    best: list[float] = field(default_factory=list)
    """Best seconds after every round."""
    trials: int = 0
    idle: int = 0
    """Trials since the best time last fell."""
    exhausted: bool = False
    alone: bool = False
    """Whether it has left its group, whose rate it does not reach."""

    @property
    def seconds(self) -> float:
        return self.best[-1] if self.best else math.inf

    @property
    def rate(self) -> float:
        return self.work / self.seconds if self.best else 0.0

    @property
    def group(self) -> tuple[str, int]:
        return self.kind, math.floor(math.log(self.work + 1, _RATIO))

    def add_round(self, trials: int, best: float) -> None:
        self.idle = 0 if best < self.seconds else self.idle + trials
        self.trials += trials
        self.best.append(best)


@dataclass(eq=False)
class Scheduler:
    """Hands out rounds.

    `alpha` weighs a task's own past against what is to be expected of it; `beta` says how little
    the rate of similar tasks is trusted: one that takes less than `beta` times what it would at
    their rate need not reach it.  With chance `epsilon` any task gets its turn.
    """

    tasks: Sequence[Progress]
    weights: Array
    """How often each model (row) runs each task (column)."""
    objective: Objective
    alpha: float = 0.2
    beta: float = 2.0
    window: int = 3
    epsilon: float = 0.05

    def next(self, rng: np.random.Generator) -> int | None:
        """The number of the task to work on; None when nothing is left that would help.

        Every task gets one round first, those that should take the most time before the others:
        a budget may be too small for all.
        """
        untried = [n for n, t in enumerate(self.tasks) if not t.exhausted and not t.best]
        if untried:
            uses = self.weights.sum(axis=0)
            return max(untried, key=lambda n: uses[n] * self.tasks[n].estimate)
        slopes = self.objective.slopes(self.standing())
        open_tasks = [n for n, t in enumerate(self.tasks) if not t.exhausted and slopes[n] > 0]
        if not open_tasks:
            return None
        if rng.random() < self.epsilon:
            return int(rng.choice(open_tasks))
        self._part_groups()
        return max(open_tasks, key=lambda n: slopes[n] * self._gain(n))

    def standing(self) -> Standing:
        """The state of the tasks; one without any right kernel counts with its estimate."""
        known = [t.seconds if math.isfinite(t.seconds) else t.estimate for t in self.tasks]
        seconds = np.array([s if math.isfinite(s) else 0.0 for s in known])
        return Standing(self.weights, seconds, np.array([t.idle for t in self.tasks]))

    def _similar(self, n: int) -> list[Progress]:
        """The other members of a task's group."""
        me = self.tasks[n]
        if me.alone:
            return []
        return [t for t in self.tasks if t is not me and not t.alone and t.group == me.group]

    def _part_groups(self) -> None:
        """A member that lags although it had more rounds than the others leaves its group."""
        for n, t in enumerate(self.tasks):
            others = self._similar(n)
            if not others:
                continue
            ahead = len(t.best) - max(len(o.best) for o in others)
            if ahead > _LAG_ROUNDS and t.rate * self.beta < max(o.rate for o in others):
                t.alone = True

    def _gain(self, n: int) -> float:
        """Seconds that another round should save."""
        t = self.tasks[n]
        if not math.isfinite(t.seconds):
            return 0.0
        rounds = len(t.best)
        back = t.best[max(0, rounds - 1 - self.window)]
        past = (back - t.seconds) / min(self.window, rounds) if math.isfinite(back) else 0.0
        rate = max((o.rate for o in self._similar(n)), default=0.0)
        expected = self.beta * t.work / rate if rate else math.inf
        future = max(t.seconds / rounds, t.seconds - expected)
        return self.alpha * past + (1 - self.alpha) * future
