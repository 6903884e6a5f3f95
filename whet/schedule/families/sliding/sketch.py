"""The sketch of windows over vectors, read where they lie."""

from __future__ import annotations

from whet.schedule.families.family import Family
from whet.schedule.families.sliding.lower import lower_sliding
from whet.schedule.families.sliding.match import SlidingTiling, find_sliding
from whet.schedule.families.sliding.nests import sliding_nests
from whet.schedule.families.sliding.price import sliding_costs, sliding_holes

SLIDING = Family(
    "sliding",
    find_sliding,
    SlidingTiling,
    sliding_holes,
    sliding_costs,
    lower_sliding,
    sliding_nests,
)
