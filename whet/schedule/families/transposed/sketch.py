"""The sketch of copies between layouts."""

from __future__ import annotations

from whet.schedule.families.family import Family
from whet.schedule.families.transposed.match import (
    TransposedTiling,
    find_transposed,
    lower_transposed,
    transposed_costs,
    transposed_holes,
)
from whet.schedule.families.transposed.nests import transposed_nests

TRANSPOSED = Family(
    "transposed",
    find_transposed,
    TransposedTiling,
    transposed_holes,
    transposed_costs,
    lower_transposed,
    transposed_nests,
)
