"""The sketch of windows over a copy with a border."""

from __future__ import annotations

from whet.schedule.families.family import Family
from whet.schedule.families.staged.lower import lower_staged
from whet.schedule.families.staged.match import StagedTiling, find_staged
from whet.schedule.families.staged.nests import staged_nests
from whet.schedule.families.staged.price import staged_costs, staged_holes

STAGED = Family(
    "staged", find_staged, StagedTiling, staged_holes, staged_costs, lower_staged, staged_nests
)
