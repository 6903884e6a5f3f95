"""The sketch of short windows by transformed tiles."""

from __future__ import annotations

from whet.schedule.families.family import Family
from whet.schedule.families.winograd.lower import lower_winograd
from whet.schedule.families.winograd.match import WinogradTiling, find_winograd
from whet.schedule.families.winograd.nests import winograd_nests
from whet.schedule.families.winograd.price import winograd_costs, winograd_holes

WINOGRAD = Family(
    "winograd",
    find_winograd,
    WinogradTiling,
    winograd_holes,
    winograd_costs,
    lower_winograd,
    winograd_nests,
    "real",
)
