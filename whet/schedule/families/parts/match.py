"""A reduction in parts that another sketch makes, and how they are added up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from whet.core.cpu import CpuTarget
from whet.ir.expr import Axis
from whet.schedule.algorithms.parts import Halves, halves_of
from whet.schedule.families.spatial.match import Spatial, SpatialTiling, find_spatial
from whet.schedule.program.loops import power_of_two_below
from whet.schedule.space.sketch import Sketch
from whet.tasks.task import Task

FINISHING_STEPS = 8
"""Steps of the second loop where it is shared out."""
LANES = 16
VECTORS = 4
"""Of the second loop, where there are results enough."""


@dataclass(frozen=True, eq=False)
class Cut:
    """A reduction in some number of parts."""

    halves: Halves
    form: Any
    """What the inner sketch finds in the first half, or None."""

    @cached_property
    def finish(self) -> Spatial:
        """The second half, which adds up the parts."""
        found = find_spatial(self.halves.whole)
        assert found is not None
        return found

    def tiling(self, shared: int) -> SpatialTiling:
        """The tiling that adds up the parts: by one thread, or by several."""
        s = self.finish
        lanes = min(LANES, power_of_two_below(s.columns))
        nv = max(1, min(VECTORS, s.columns // lanes))
        rows = 1 if s.pixels is None else s.pixels.extent
        panels = -(-s.columns // (nv * lanes))
        if not shared:
            return SpatialTiling(1, nv, lanes, rows, panels)
        if rows > 1:
            return SpatialTiling(1, nv, lanes, -(-rows // FINISHING_STEPS), panels)
        return SpatialTiling(1, nv, lanes, 1, -(-panels // FINISHING_STEPS))


@dataclass(frozen=True, eq=False)
class Parted:
    """A reduction and the sketch that its parts are made by."""

    task: Task
    inner: Sketch[Any, CpuTarget]
    order: tuple[Axis, ...]
    """What is reduced, and what lies furthest apart first."""

    @cached_property
    def known(self) -> dict[int, Cut]:
        """The cuts that were asked for, by the number of parts."""
        return {}

    def cut(self, parts: int) -> Cut:
        if parts not in self.known:
            halves = halves_of(self.task, self.order, parts)
            self.known[parts] = Cut(halves, self.inner.fits(halves.parts))
        return self.known[parts]
