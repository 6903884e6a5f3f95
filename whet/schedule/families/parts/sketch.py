"""The sketches of reductions in parts, each of which another sketch makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.algorithms.parts import reduced_order
from whet.schedule.families.contraction.sketch import CONTRACTION
from whet.schedule.families.dots.sketch import DOTS
from whet.schedule.families.parts.lower import lower_parts
from whet.schedule.families.parts.match import Parted
from whet.schedule.families.parts.nests import part_nests
from whet.schedule.families.parts.price import part_costs, part_holes
from whet.schedule.families.rows.sketch import ROWS
from whet.schedule.families.spatial.sketch import SPATIAL
from whet.schedule.families.sweeps.sketch import SWEEPS
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.sketch import Population, Sketch
from whet.schedule.space.statements import Statement
from whet.tasks.task import Task


class InParts(Sketch[Parted, CpuTarget]):
    """The sketch of reductions in parts, each of which another sketch makes."""

    numeric: Numeric = "exact"
    structure = ("parts",)

    def __init__(self, inner: Sketch[Any, CpuTarget]) -> None:
        self.inner = inner
        self.name = f"parts of {inner.name}"

    def fits(self, task: Task) -> Parted | None:
        order = reduced_order(task)
        return None if order is None else Parted(task, self.inner, order)

    def space(self, form: Parted, target: CpuTarget, threads: int) -> Population:
        return part_holes(form, target, threads)

    def costs(self, form: Parted, target: CpuTarget, threads: int, population: Population) -> Array:
        return part_costs(form, target, threads, population)

    def nests(
        self, form: Parted, target: CpuTarget, threads: int, population: Population
    ) -> tuple[Statement, ...]:
        return part_nests(form, target, threads, population)

    def lower(self, form: Parted, holes: Mapping[str, int], name: str) -> Kernel:
        return lower_parts(form, holes, name)


INNER: tuple[Sketch[Any, CpuTarget], ...] = (CONTRACTION, SPATIAL, ROWS, DOTS, SWEEPS)
PARTS = tuple(map(InParts, INNER))
