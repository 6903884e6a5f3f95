"""The loop nests of slabs, for a whole population at once."""

from __future__ import annotations

from whet.core.cpu import CpuTarget
from whet.schedule.families.contraction.nests import contraction_nests
from whet.schedule.families.slabs.match import Slabs
from whet.schedule.space.sketch import Population
from whet.schedule.space.statements import Statement


def slab_nests(
    s: Slabs, target: CpuTarget, threads: int, holes: Population
) -> tuple[Statement, ...]:
    """The statements of all candidates: those of the contraction, since all copy alike."""
    return contraction_nests(s.contraction, target, 1, holes, s.images)
