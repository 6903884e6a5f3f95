"""Search policies by name, behind one protocol: one file each."""

from __future__ import annotations

from collections.abc import Callable

from whet.tune.policies.chance import GridSearch, RandomSearch
from whet.tune.policies.compose import ExploreThenDroplet
from whet.tune.policies.draft import Draft
from whet.tune.policies.droplet import Droplet
from whet.tune.policies.protocol import Known, Policy

POLICIES: dict[str, Callable[[], Policy]] = {
    "default": ExploreThenDroplet,
    "draft": Draft,
    "random": RandomSearch,
    "grid": GridSearch,
}
"""What makes each policy."""

__all__ = ["POLICIES", "Droplet", "Known", "Policy"]
