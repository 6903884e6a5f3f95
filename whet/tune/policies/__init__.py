"""Search policies by name, behind one protocol: one file each."""

from __future__ import annotations

from collections.abc import Callable

from whet.tune.models.trees import CorrectionLearner
from whet.tune.policies.annealing import Annealing
from whet.tune.policies.bandit import SketchBandit
from whet.tune.policies.beam import Beam
from whet.tune.policies.chance import GridSearch, RandomSearch
from whet.tune.policies.compose import ExploreThenDroplet
from whet.tune.policies.draft import Draft
from whet.tune.policies.droplet import Droplet
from whet.tune.policies.evolution import Evolution
from whet.tune.policies.genetic import Genetic
from whet.tune.policies.protocol import Known, Policy
from whet.tune.policies.verify import DraftThenVerify

POLICIES: dict[str, Callable[[], Policy]] = {
    "default": lambda: ExploreThenDroplet(Draft(), explored=24),
    "learned": lambda: ExploreThenDroplet(Evolution(CorrectionLearner())),
    "draft": Draft,
    "evolution": lambda: Evolution(CorrectionLearner()),
    "verify": lambda: DraftThenVerify(CorrectionLearner()),
    "bandit": lambda: SketchBandit(Evolution(CorrectionLearner())),
    "droplet": Droplet,
    "annealing": lambda: Annealing(CorrectionLearner()),
    "genetic": Genetic,
    "beam": lambda: Beam(CorrectionLearner()),
    "random": RandomSearch,
    "grid": GridSearch,
}
"""What makes each policy."""

__all__ = ["POLICIES", "Known", "Policy"]
