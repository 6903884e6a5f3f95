"""The candidates that the analytic model takes for the cheapest."""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.schedule.families.contraction.match import Contraction, Tiling
from whet.schedule.families.contraction.price import contraction_costs, contraction_holes
from whet.schedule.families.winograd.match import Winograd, WinogradTiling
from whet.schedule.families.winograd.price import winograd_costs, winograd_holes
from whet.schedule.space.sketch import Holes, Population


def cheapest(population: Population, costs: Array) -> tuple[float, Holes]:
    """The least of the costs, and the candidate that has them."""
    best = int(np.argmin(costs))
    return float(costs[best]), {name: int(column[best]) for name, column in population.items()}


def best_tiling(c: Contraction, target: CpuTarget, threads: int) -> tuple[float, Tiling]:
    found = contraction_holes(c, target, threads)
    ns, holes = cheapest(found, contraction_costs(c, target, threads, found))
    return ns, Tiling(**holes)


def best_winograd(
    w: Winograd, target: CpuTarget, threads: int
) -> tuple[float, WinogradTiling] | None:
    found = winograd_holes(w, target, threads)
    if not len(found["m"]):
        return None
    ns, holes = cheapest(found, winograd_costs(w, target, threads, found))
    return ns, WinogradTiling(**holes)
