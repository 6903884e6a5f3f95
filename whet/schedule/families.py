"""The sketches that come with whet, all in one list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from whet.core.target import Target
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule import (
    attention,
    attention_lowering,
    attention_model,
    attention_nest,
    contraction,
    contraction_lowering,
    contraction_nest,
    dots,
    model,
    planar,
    planar_model,
    planar_nest,
    rows,
    rows_model,
    rows_nest,
    slabs,
    slabs_model,
    sliding,
    sliding_model,
    sliding_nest,
    spatial,
    spatial_model,
    spatial_nest,
    staged,
    staged_model,
    staged_nest,
    sweeps,
    transposed,
    transposed_nest,
    winograd,
    winograd_lowering,
    winograd_model,
    winograd_nest,
)
from whet.schedule.derive.sketch import Derived
from whet.schedule.kernel import Kernel
from whet.schedule.nests import Statement
from whet.schedule.parts import InParts
from whet.schedule.sketch import SKETCHES, Population, add_sketch
from whet.tasks.task import Task

F = TypeVar("F")


@dataclass(frozen=True)
class Family(Generic[F]):
    """A sketch made of functions; the fields of `tiling` are its holes."""

    name: str
    find: Callable[[Task], F | None]
    tiling: Callable[..., Any]
    holes: Callable[[F, Target, int], Population]
    price: Callable[[F, Target, int, Population], Array]
    build: Callable[[F, Any, str], Kernel]
    loops: Callable[[F, Target, int, Population], tuple[Statement, ...]]
    numeric: Numeric = "exact"

    def fits(self, task: Task) -> F | None:
        return self.find(task)

    def space(self, form: F, target: Target, threads: int) -> Population:
        return self.holes(form, target, threads)

    def costs(self, form: F, target: Target, threads: int, population: Population) -> Array:
        return self.price(form, target, threads, population)

    def nests(
        self, form: F, target: Target, threads: int, population: Population
    ) -> tuple[Statement, ...]:
        return self.loops(form, target, threads, population)

    def lower(self, form: F, holes: Mapping[str, int], name: str) -> Kernel:
        return self.build(form, self.tiling(**holes), name)


add_sketch(
    Family(
        "contraction",
        contraction.find_contraction,
        contraction.Tiling,
        model.contraction_holes,
        winograd_model.direct_costs,
        contraction_lowering.lower_contraction,
        contraction_nest.contraction_nests,
    )
)
add_sketch(
    Family(
        "turned",
        contraction.find_turned,
        contraction.Tiling,
        model.turned_holes,
        winograd_model.direct_costs,
        contraction_lowering.lower_contraction,
        contraction_nest.contraction_nests,
    )
)
add_sketch(
    Family(
        "slabs",
        slabs.find_slabs,
        contraction.Tiling,
        slabs_model.slab_holes,
        slabs_model.slab_costs,
        slabs.lower_slabs,
        slabs_model.slab_nests,
    )
)
add_sketch(
    Family(
        "winograd",
        winograd.find_winograd,
        winograd.WinogradTiling,
        winograd_model.winograd_holes,
        winograd_model.winograd_costs,
        winograd_lowering.lower_winograd,
        winograd_nest.winograd_nests,
        "real",
    )
)
add_sketch(
    Family(
        "spatial",
        spatial.find_spatial,
        spatial.SpatialTiling,
        spatial_model.spatial_holes,
        spatial_model.spatial_costs,
        spatial.lower_spatial,
        spatial_nest.spatial_nests,
    )
)
add_sketch(
    Family(
        "groups",
        spatial.find_whole_groups,
        spatial.SpatialTiling,
        spatial_model.spatial_holes,
        spatial_model.spatial_costs,
        spatial.lower_spatial,
        spatial_nest.spatial_nests,
    )
)
add_sketch(
    Family(
        "across",
        spatial.find_across,
        spatial.SpatialTiling,
        spatial_model.spatial_holes,
        spatial_model.spatial_costs,
        spatial.lower_spatial,
        spatial_nest.spatial_nests,
    )
)
add_sketch(
    Family(
        "staged",
        staged.find_staged,
        staged.StagedTiling,
        staged_model.staged_holes,
        staged_model.staged_costs,
        staged.lower_staged,
        staged_nest.staged_nests,
    )
)
add_sketch(
    Family(
        "sliding",
        sliding.find_sliding,
        sliding.SlidingTiling,
        sliding_model.sliding_holes,
        sliding_model.sliding_costs,
        sliding.lower_sliding,
        sliding_nest.sliding_nests,
    )
)
add_sketch(
    Family(
        "planar",
        planar.find_planar,
        planar.PlanarTiling,
        planar_model.planar_holes,
        planar_model.planar_costs,
        planar.lower_planar,
        planar_nest.planar_nests,
    )
)
add_sketch(
    Family(
        "rows",
        rows.find_rows,
        rows.RowTiling,
        rows_model.row_holes,
        rows_model.row_costs,
        rows.lower_rows,
        rows_nest.row_nests,
    )
)
add_sketch(
    Family(
        "transposed",
        transposed.find_transposed,
        transposed.TransposedTiling,
        transposed.transposed_holes,
        transposed.transposed_costs,
        transposed.lower_transposed,
        transposed_nest.transposed_nests,
    )
)
add_sketch(
    Family(
        "attention",
        attention.find_attention,
        attention.AttentionTiling,
        attention_model.attention_holes,
        attention_model.attention_costs,
        attention_lowering.lower_attention,
        attention_nest.attention_nests,
    )
)
add_sketch(
    Family(
        "dots",
        dots.find_dots,
        dots.DotTiling,
        dots.dot_holes,
        dots.dot_costs,
        dots.lower_dots,
        dots.dot_nests,
    )
)
add_sketch(
    Family(
        "sweeps",
        sweeps.find_sweeps,
        sweeps.SweepTiling,
        sweeps.sweep_holes,
        sweeps.sweep_costs,
        sweeps.lower_sweeps,
        sweeps.sweep_nests,
    )
)
for inner in ("contraction", "spatial", "rows", "dots", "sweeps"):
    add_sketch(InParts(SKETCHES[inner]))
add_sketch(Derived())
