"""The sketch of reductions over outer axes."""

from __future__ import annotations

from whet.schedule.families.family import Family
from whet.schedule.families.sweeps.lower import lower_sweeps
from whet.schedule.families.sweeps.match import SweepTiling, find_sweeps
from whet.schedule.families.sweeps.nests import sweep_nests
from whet.schedule.families.sweeps.price import sweep_costs, sweep_holes

SWEEPS = Family(
    "sweeps", find_sweeps, SweepTiling, sweep_holes, sweep_costs, lower_sweeps, sweep_nests
)
