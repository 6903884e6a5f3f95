"""The sketches of contractions: one operand in panels, both turned, columns divided or folded."""

from __future__ import annotations

from whet.schedule.families.contraction.divided import divided_holes, find_divided
from whet.schedule.families.contraction.folded import find_folded, folded_holes, folded_nests
from whet.schedule.families.contraction.lower import lower_contraction
from whet.schedule.families.contraction.match import Tiling, find_contraction, find_turned
from whet.schedule.families.contraction.nests import contraction_nests
from whet.schedule.families.contraction.price import contraction_holes, direct_costs, turned_holes
from whet.schedule.families.family import Family

CONTRACTION = Family(
    "contraction",
    find_contraction,
    Tiling,
    contraction_holes,
    direct_costs,
    lower_contraction,
    contraction_nests,
)
TURNED = Family(
    "turned", find_turned, Tiling, turned_holes, direct_costs, lower_contraction, contraction_nests
)
DIVIDED = Family(
    "divided",
    find_divided,
    Tiling,
    divided_holes,
    direct_costs,
    lower_contraction,
    contraction_nests,
)
FOLDED = Family(
    "folded", find_folded, Tiling, folded_holes, direct_costs, lower_contraction, folded_nests
)
