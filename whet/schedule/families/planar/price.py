"""Prices of windows over rows in place, for a whole population at once.

A tile is bound by its multiply-adds, by its loads, most of which straddle two lines, or by its
dependency chains; all tiles together by what memory delivers and takes.
"""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.expr import Binary, elements
from whet.schedule.cost.arrival import with_weights
from whet.schedule.cost.lanes import lanes_for
from whet.schedule.cost.numbers.caches import IN_FLIGHT
from whet.schedule.cost.numbers.overheads import PLANE_CYCLES, WINDOW_TILE_CYCLES
from whet.schedule.cost.numbers.vectors import PLANAR_REGISTERS, STORE_SLOTS, STRADDLING_ROW
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import (
    halvings,
    lane_step,
    operations,
    overlapped,
    reads,
    shared_out,
    streamed_cycles,
    traffic_cycles,
)
from whet.schedule.families.planar.match import Planar

LONGEST_PLANAR_CODE = 720
"""Operations on vectors in the text of a kernel: compiling takes time."""
NAMES = ("px", "nv", "lanes", "planes_per_step", "stream")


def planar_holes(form: Planar, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Tiles that fit the registers, and shares of the planes from all of them down to one."""
    s, bits = form.staged, max(8, form.stage.target.dtype.bits)
    full, fitting = max(1, target.vector_bits // bits), lanes_for(s.width, bits, target)
    # One vector with idle lanes instead of two that overlap, unless it would read other tensors
    # behind their end.
    widths = {fitting, max(1, fitting // 2)} | (set() if _reads_beside(form) else {2 * fitting})
    # What the last cache cannot hold is not found there again.
    moved = sum(t.type.nbytes for t in (*s.task.inputs, *s.task.outputs))
    large = 0 < target.l3_bytes < 2 * moved and form.stage.target.dtype.bits >= 8
    planes = elements(s.outer)
    shares = halvings(planes) if threads > 1 else [planes]
    found: list[tuple[int, ...]] = []
    for lanes in sorted(w for w in widths if w <= full):
        for px in (1, 2, 3, 4, 5, 6, 7, 8):
            for nv in (1, 2):
                crowded = px * nv + PLANAR_REGISTERS > target.vector_registers // 2
                if px > s.height or (crowded and px * nv > 1):
                    continue
                if (nv > 1 and nv * lanes > s.width) or (
                    px * nv > 1 and _code_length(form, px, nv, lanes) > LONGEST_PLANAR_CODE
                ):
                    continue
                streams = (0, 1) if large and s.width >= lanes > 1 else (0,)
                found += [(px, nv, lanes, n, stream) for n in shares for stream in streams]
    columns = dict(zip(NAMES, np.array(found, dtype=np.int64).reshape(-1, len(NAMES)).T))
    if not large:
        del columns["stream"]
    return columns


def _reads_beside(form: Planar) -> bool:
    """Whether anything but the image is read along the lanes."""
    found = [*reads(form.stage.body), *reads(form.reduce.value)]
    return any(r is not form.image and lane_step(r, form.staged.columns.axis) != 0 for r in found)


def _code_length(form: Planar, px: int, nv: int, lanes: int) -> int:
    """Operations on vectors in the text of the kernel."""
    s, variants = form.staged, 1
    for slide, size, extent in ((s.rows, px, s.image_height),
                                (s.columns, nv * lanes, s.image_width)):  # fmt: skip
        if slide is not None:
            variants *= min(len(slide.starts(size)), sum(slide.ends(size, extent)) + 1)
    return variants * px * nv * elements(form.reduce.axes)


def planar_costs(form: Planar, target: CpuTarget, threads: int, holes: dict[str, Array]) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    s, planes = form.staged, elements(form.staged.outer)
    steps = -(-planes // holes["planes_per_step"])
    shape = np.stack([holes[n] for n in NAMES[:3]])
    shapes, place = np.unique(shape, axis=1, return_inverse=True)
    per_plane = np.array([_plane_cycles(form, target, *map(int, x)) for x in shapes.T])
    moving = [t for t in (*s.task.inputs, *s.task.outputs) if t not in s.task.constants]
    stream = holes.get("stream", np.zeros_like(steps))
    traffic = np.where(stream, streamed_cycles(moving, target), traffic_cycles(moving, target))
    cycles = steps * holes["planes_per_step"] * per_plane[place.reshape(-1)]
    cycles = overlapped(cycles, traffic)
    weights = sum(t.type.nbytes for t in s.task.constants)
    return with_weights(shared_out(cycles, steps, threads, target), weights, target, threads)


def _plane_cycles(form: Planar, target: CpuTarget, px: int, nv: int, lanes: int) -> float:
    s, rates, bits = form.staged, rates_of(target), max(8, form.stage.target.dtype.bits)
    tiles = -(-s.height // px) * -(-s.width // (nv * lanes))
    passes = float(rates.passes(np.asarray(lanes), bits))
    load_passes = float(rates.load_passes(np.asarray(lanes), bits))
    reduce, body = form.reduce, form.stage.body
    terms = elements(reduce.axes)
    down = elements([a for a in reduce.axes if a in s.rows_reduced])
    reach = 1 if s.rows is None else (px - 1) * s.rows.step + s.rows.high - s.rows.low + 1
    # Rows that no tap of another row touches are not read; even and odd columns share their loads.
    vectors = nv * min(px * down, reach) * terms // down
    parted = s.columns.step - 1
    straddling = 1 + (STRADDLING_ROW - 1) * min(1.0, lanes * bits / 512)
    loads = vectors * (1 + parted / 3) * load_passes * straddling
    beside = [r for r in reads(body) if lane_step(r, s.columns.axis) != 0]
    loads += px * nv * load_passes * (STORE_SLOTS + len(beside))
    # Vectors that even and odd columns share wait in registers until both are done.
    alive = terms + nv * (px + 2 * parted * min(px * down, reach))
    loads += 2 * load_passes * max(0, alive + PLANAR_REGISTERS - target.vector_registers)
    product = isinstance(reduce.value, Binary) and reduce.value.op == "mul"
    per_term = operations(reduce.value) + (0.0 if product and reduce.kind == "sum" else 1.0)
    work = px * nv * passes * (terms * per_term + operations(body)) + vectors * passes * parted
    issue = max(work / rates.operations, loads / rates.loads)
    issue += px * rates.masked_store * (nv * lanes > s.width)
    # The next tile starts while the chains of this one end.
    chain = rates.latency * terms / max(1.0, IN_FLIGHT / (work + loads))
    return tiles * (max(issue, chain) + WINDOW_TILE_CYCLES) + PLANE_CYCLES
