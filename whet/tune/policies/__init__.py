"""Search policies by name, behind one protocol: one file each."""

from __future__ import annotations

from collections.abc import Callable

from whet.core.errors import UsageError, check
from whet.core.gpu import GpuTarget
from whet.tune.models.learners import DEFAULT_LEARNER, find_learner
from whet.tune.models.protocol import Learner
from whet.tune.policies.annealing import Annealing
from whet.tune.policies.bandit import SketchBandit
from whet.tune.policies.beam import Beam
from whet.tune.policies.chance import GridSearch, RandomSearch
from whet.tune.policies.compose import ExploreThenDroplet
from whet.tune.policies.draft import Draft
from whet.tune.policies.droplet import Droplet
from whet.tune.policies.evolution import Evolution
from whet.tune.policies.genetic import Genetic
from whet.tune.policies.machines import ByMachine
from whet.tune.policies.protocol import Known, Policy
from whet.tune.policies.ranked import Ranked
from whet.tune.policies.verify import DraftThenVerify

COMPILED = 8
"""The model's favourites that are built before any neighbour of theirs, where that is dear."""


def _ranked() -> Policy:
    return ExploreThenDroplet(Ranked(), explored=COMPILED)


POLICIES: dict[str, Callable[[], Policy]] = {
    "default": lambda: ByMachine(
        ExploreThenDroplet(Draft(), explored=24), {GpuTarget.kind: _ranked()}
    ),
    "draft": Draft,
    "droplet": Droplet,
    "ranked": _ranked,
    "genetic": Genetic,
    "random": RandomSearch,
    "grid": GridSearch,
}
"""Makers of the policies that go by trials and the analytic model."""

LEARNING: dict[str, Callable[[Learner], Policy]] = {
    "learned": lambda learner: ExploreThenDroplet(Evolution(learner)),
    "evolution": Evolution,
    "verify": DraftThenVerify,
    "bandit": lambda learner: SketchBandit(Evolution(learner)),
    "annealing": Annealing,
    "beam": Beam,
}
"""Makers of the policies that go by a learned model."""


def policy_names() -> list[str]:
    return [*POLICIES, *LEARNING]


def find_policy(name: str, model: str | None = None) -> Callable[[], Policy]:
    """The maker of the policy of that name; `model` is the name of its learner, if it has one."""
    check(name in POLICIES or name in LEARNING, "WH1002", f"there is no policy '{name}'",
          hint=", ".join(policy_names()), kind=UsageError)  # fmt: skip
    if name in LEARNING:
        make, learner = LEARNING[name], find_learner(model or DEFAULT_LEARNER)
        return lambda: make(learner)
    check(model is None, "WH1002", f"the policy '{name}' has no learned cost model to choose",
          hint=f"policies that learn are {', '.join(LEARNING)}", kind=UsageError)  # fmt: skip
    return POLICIES[name]


__all__ = ["LEARNING", "POLICIES", "Known", "Policy", "find_policy", "policy_names"]
