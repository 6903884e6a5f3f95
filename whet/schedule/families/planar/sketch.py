"""The sketch of windows along contiguous rows, read where they lie."""

from __future__ import annotations

from whet.schedule.families.family import Family
from whet.schedule.families.planar.lower import lower_planar
from whet.schedule.families.planar.match import PlanarTiling, find_planar
from whet.schedule.families.planar.nests import planar_nests
from whet.schedule.families.planar.price import planar_costs, planar_holes

PLANAR = Family(
    "planar", find_planar, PlanarTiling, planar_holes, planar_costs, lower_planar, planar_nests
)
