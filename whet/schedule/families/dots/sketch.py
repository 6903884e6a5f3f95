"""The sketch of inner products."""

from __future__ import annotations

from whet.schedule.families.dots.match import (
    DotTiling,
    dot_costs,
    dot_holes,
    dot_nests,
    find_dots,
    lower_dots,
)
from whet.schedule.families.family import Family

DOTS = Family("dots", find_dots, DotTiling, dot_holes, dot_costs, lower_dots, dot_nests)
