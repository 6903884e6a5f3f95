"""The task scheduler: which task of a model gets the next trials (Ansor, section 6).

The objective is the model's time, the sum of weight * best over tasks (f1 of the paper).  A task
is worth its gradient: how much a further trial should shorten the sum, judged by its own recent
progress and by how far it is from the best rate that similar tasks reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(eq=False)
class Progress:
    """A task's share of the model and how its best time came about."""

    weight: float
    work: float
    """Operations: what tasks of one kind are compared by."""
    kind: str
    best: list[float] = field(default_factory=list)
    """Best seconds after every round."""
    trials: int = 0
    exhausted: bool = False

    @property
    def seconds(self) -> float:
        return self.best[-1] if self.best else float("inf")


def next_task(
    tasks: Sequence[Progress],
    rng: np.random.Generator,
    *,
    alpha: float = 0.2,
    beta: float = 2.0,
    window: int = 3,
    epsilon: float = 0.05,
) -> int | None:
    """The number of the task to work on, or None when all are exhausted.

    Every task gets one round first.  `alpha` weighs a task's own past against what is to be
    expected of it, `beta` how much better than its peers it is trusted to become.
    """
    open_tasks = [n for n, t in enumerate(tasks) if not t.exhausted]
    if not open_tasks:
        return None
    untried = [n for n in open_tasks if not tasks[n].best]
    if untried:
        return untried[0]
    if rng.random() < epsilon:
        return int(rng.choice(open_tasks))
    return max(open_tasks, key=lambda n: _gain(tasks, n, alpha, beta, window))


def _gain(tasks: Sequence[Progress], n: int, alpha: float, beta: float, window: int) -> float:
    t = tasks[n]
    if not np.isfinite(t.seconds):
        return 0.0
    rounds = len(t.best)
    back = t.best[max(0, rounds - 1 - window)]
    past = (back - t.seconds) / min(window, rounds) if np.isfinite(back) else 0.0
    optimistic = t.seconds / rounds
    rates = [p.work / p.seconds for p in tasks if p.kind == t.kind and np.isfinite(p.seconds)]
    reachable = t.work / (beta * max(rates)) if rates and t.work else 0.0
    future = min(optimistic, max(t.seconds - reachable, 0.0))
    return t.weight * (alpha * past + (1 - alpha) * future)
