"""The sketch of copies between layouts."""

from __future__ import annotations

from whet.schedule.families.family import Family
from whet.schedule.families.transposed.lower import lower_transposed
from whet.schedule.families.transposed.match import TransposedTiling, find_transposed
from whet.schedule.families.transposed.nests import transposed_nests
from whet.schedule.families.transposed.price import transposed_costs, transposed_holes

TRANSPOSED = Family(
    "transposed",
    find_transposed,
    TransposedTiling,
    transposed_holes,
    transposed_costs,
    lower_transposed,
    transposed_nests,
)
