"""The spatial sketch of GPUs: element-wise stages, data movement, gathers, pools, stencils,
depthwise and grouped convolutions, reductions and arg-reductions of every kind.

    position = b * threads + thread         one tile of rows x width outputs
    known = constants                       as many as registers hold
    await inputs
    acc[rows, width] = identity
    for k...: acc[i, v] = combine(acc[i, v], value)           (unrolled when short)
    if position < tiles: y[...] = epilogue(acc)

`width` neighbours lie along the axis in which the output is contiguous, so that threads move whole
vectors; `rows` positions lie along the axis on which neighbours share most of what they read.
Neighbouring threads have neighbouring tiles, and constants are stored with that axis last.  The
last tile of an axis moves back to its edge.

Any task of one stage fits: a tile of one output always exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from whet.ir.affine import free_symbols
from whet.ir.expr import Axis, Read, Reduce, elements
from whet.ir.tensor import subexpressions
from whet.schedule.families.spatial.match import Spatial, find_spatial
from whet.schedule.program.accumulate import loop_kinds
from whet.schedule.program.triggers import NEVER
from whet.tasks.task import Task

TERMS_WRITTEN_OUT = 72
"""Terms of a reduction that are written out at most: a loop waits for memory in every round."""


@dataclass(frozen=True)
class GpuSpatialTiling:
    """The holes: outputs of a thread along both axes of its tile, threads of a block, and when the
    next kernel may be launched."""

    rows: int
    width: int
    threads: int
    trigger: int = NEVER


def find_gpu_spatial(task: Task) -> Spatial | None:
    """The task as tiles of outputs, or None if it has several stages.

    `pixels` is the innermost axis along which some operand of a reduction stays the same; where
    there is none, the one beside the vectors.
    """
    found = find_spatial(task)
    if found is None:
        return None
    stage = found.stage
    others = [a for a in stage.axes if a is not found.vector]
    read = [e for r in stage.reduces for e in subexpressions(r.value) if isinstance(e, Read)]
    sharing = [a for a in others if any(a not in free_symbols(e) for e in read)]
    pixels = sharing[-1] if sharing else found.pixels
    return replace(found, pixels=pixels, outer=tuple(a for a in others if a is not pixels))


def written_out(reduce: Reduce) -> tuple[Axis, ...]:
    """The inner axes of a reduction, whose terms are written out."""
    kinds = loop_kinds(reduce.axes, TERMS_WRITTEN_OUT)
    return tuple(axis for axis, kind in zip(reduce.axes, kinds) if kind == "unroll")


def tile_counts(s: Spatial, tile: Mapping[Axis, int]) -> tuple[Axis, ...]:
    """An axis of tile numbers for every axis of the output, in the order of memory."""
    return tuple(Axis(a.name, -(-a.extent // tile.get(a, 1))) for a in s.stage.axes)


def tile_of(s: Spatial, rows: int, width: int) -> dict[Axis, int]:
    """The extents of a tile along the axes that it is not one element wide on."""
    sizes = ((s.pixels, rows), (s.vector, width))
    return {axis: size for axis, size in sizes if axis is not None}


def tiles(s: Spatial, rows: int, width: int) -> int:
    """The number of tiles."""
    return elements(tile_counts(s, tile_of(s, rows, width)))
