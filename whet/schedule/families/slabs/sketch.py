"""The sketch of contractions that convert what they read and write."""

from __future__ import annotations

from whet.schedule.families.contraction.match import Tiling
from whet.schedule.families.family import Family
from whet.schedule.families.slabs.lower import lower_slabs
from whet.schedule.families.slabs.match import find_slabs
from whet.schedule.families.slabs.nests import slab_nests
from whet.schedule.families.slabs.price import slab_costs, slab_holes

SLABS = Family("slabs", find_slabs, Tiling, slab_holes, slab_costs, lower_slabs, slab_nests)
