"""The sketch of reductions over outer axes."""

from __future__ import annotations

from whet.schedule.families.family import Family
from whet.schedule.families.sweeps.match import (
    SweepTiling,
    find_sweeps,
    lower_sweeps,
    sweep_costs,
    sweep_holes,
    sweep_nests,
)

SWEEPS = Family(
    "sweeps", find_sweeps, SweepTiling, sweep_holes, sweep_costs, lower_sweeps, sweep_nests
)
