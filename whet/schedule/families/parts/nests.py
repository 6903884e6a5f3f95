"""The loop nests of reductions in parts, for a whole population at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whet.core.cpu import CpuTarget
from whet.schedule.families.parts.match import Parted
from whet.schedule.families.parts.price import by_cut, finishing, inside
from whet.schedule.families.spatial.nests import spatial_nests
from whet.schedule.space.sketch import Population
from whet.schedule.space.statements import Statement


def part_nests(
    form: Parted, target: CpuTarget, threads: int, population: Population
) -> tuple[Statement, ...]:
    """The statements of the inner sketch, then those that add up the parts."""
    found: list[Statement] = []
    for parts, shared, rows in by_cut(population):
        cut = form.cut(parts)
        first = form.inner.nests(cut.form, target, threads, inside(population, rows))
        finish = {n: np.repeat(c, len(rows)) for n, c in finishing(cut, shared).items()}
        after = spatial_nests(cut.finish, target, threads, finish)
        found += [replace(s, rows=rows[s.rows]) for s in (*first, *after)]
    return tuple(found)
