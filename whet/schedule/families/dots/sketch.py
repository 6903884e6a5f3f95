"""The sketch of inner products."""

from __future__ import annotations

from whet.schedule.families.dots.lower import lower_dots
from whet.schedule.families.dots.match import DotTiling, find_dots
from whet.schedule.families.dots.nests import dot_nests
from whet.schedule.families.dots.price import dot_costs, dot_holes
from whet.schedule.families.family import Family

DOTS = Family("dots", find_dots, DotTiling, dot_holes, dot_costs, lower_dots, dot_nests)
