"""Learners by name: what makes the cost model of a policy that learns."""

from __future__ import annotations

from collections.abc import Callable

from whet.core.errors import UsageError, check
from whet.tune.models.analytic import Analytic
from whet.tune.models.protocol import Learner
from whet.tune.models.ranking import RankingLearner
from whet.tune.models.trees import CorrectionLearner, ThroughputLearner

LEARNERS: dict[str, Callable[[], Learner]] = {
    "correction": CorrectionLearner,
    "statements": lambda: CorrectionLearner(rows="statements"),
    "throughput": ThroughputLearner,
    "ranking": RankingLearner,
    "ranking-loops": lambda: RankingLearner("itervar"),
    "analytic": Analytic,
}
"""Makers of learners; the first is the default."""
DEFAULT_LEARNER = next(iter(LEARNERS))


def find_learner(name: str) -> Learner:
    """A new learner of that name."""
    check(name in LEARNERS, "WH1002", f"there is no cost model '{name}'",
          hint=", ".join(LEARNERS), kind=UsageError)  # fmt: skip
    return LEARNERS[name]()
