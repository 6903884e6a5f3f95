"""The analytic model: what a schedule should cost, for a whole population at once.

Times are in nanoseconds for one core of the target.  A register tile is bound by its
multiply-adds, its loads or its dependency chains, whichever is slowest; blocks add the traffic
that they cause in each cache; ragged edges and uneven shares of the cores add what they waste.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import affine
from whet.ir.expr import Read, Select
from whet.ir.program import SCRATCH_LIMIT_BYTES
from whet.ir.tensor import subexpressions
from whet.schedule.cost.arrival import (
    Panels,
    Share,
    filled_bytes,
    from_far,
    from_second_cache,
    lines_in_flight,
    with_weights,
)
from whet.schedule.cost.locality import crowding, distance, reachable, visit_cycles
from whet.schedule.cost.numbers.caches import AGAIN_CYCLES, L2_KEPT, UNCROWDED
from whet.schedule.cost.numbers.overheads import (
    AHEAD_CYCLES,
    ALONE_FELT,
    GATHER_CYCLES,
    IN_PLACE_FELT,
    PACKED_CYCLES,
    REGISTER_TILE_CYCLES,
    SCATTER_CYCLES,
)
from whet.schedule.cost.numbers.threads import STEP_NS
from whet.schedule.cost.numbers.vectors import HALF, NARROW, TURNING_PAYS
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.tiles import lanes_for, longest_sum, prefetches_per_step, sum_blocks
from whet.schedule.cost.work import fork_join_ns, lane_step, overlapped
from whet.schedule.families.contraction.halo import parts_needed, worth_skipping
from whet.schedule.families.contraction.match import AHEAD, BESIDE, IN_PLACE, Contraction
from whet.schedule.space.sketch import population

HOLES = ("mr", "nv", "lanes", "tiles_per_block", "panels_per_chunk", "pack_b", "prefetch", "terms",
         "skip")  # fmt: skip


def direct_costs(c: Contraction, target: CpuTarget, threads: int, holes: dict[str, Array]) -> Array:
    """The costs of a contraction together with the arrival of its weights."""
    costs = contraction_costs(c, target, threads, holes)
    nbytes = c.batch * c.depth * c.columns * c.reduce.dtype.itemsize
    if not c.b_is_constant:
        return costs
    return with_weights(
        costs, nbytes, target, threads, contraction_panels(c, target, threads, holes)
    )


def contraction_costs(
    c: Contraction, target: CpuTarget, threads: int, holes: dict[str, Array]
) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    mr, nv, lanes = holes["mr"], holes["nv"], holes["lanes"]
    tpb, ppc = holes["tiles_per_block"], holes["panels_per_chunk"]
    bits, size = c.reduce.dtype.bits, c.reduce.dtype.itemsize
    width = nv * lanes
    tiles, panels = -(-c.rows // mr), -(-c.columns // width)
    blocks = -(-tiles // tpb)
    rates = rates_of(target)
    passes = rates.passes(lanes, bits)
    hints = prefetches_per_step(holes.get("prefetch", 0 * mr), tpb, width * size)
    cycle = rates.tile_step(mr, nv, lanes, bits)
    cycle = overlapped(cycle, _crowded_cycles(c, mr, target), target.constant("l2_felt"))
    cycle = cycle + hints * target.constant("hint_ns") * rates.clock
    depth = c.depth * parts_needed(c.edges, c.m_axes, mr, holes.get("skip", 0 * mr))
    tile = (
        cycle * depth
        + REGISTER_TILE_CYCLES
        + mr * nv * passes * (2 + sum_blocks(c.depth, holes) / 2)
    )
    if c.is_turned:
        tile = tile + SCATTER_CYCLES * mr * width
    narrow = HALF if c.columns * bits >= target.vector_bits else NARROW
    tile = tile * np.where(lanes * bits < target.vector_bits, narrow, 1.0)
    # A panel is read once per tile, and so are the tile's rows, from L1 when both fit.
    panel_bytes, row_bytes = c.depth * width * size, _row_elements(c) * mr * size
    near, whole = panel_bytes + row_bytes, c.depth * c.columns * size
    filled = filled_bytes(panel_bytes, whole, tpb, hints > 0, target)
    tile = from_second_cache(tile, near, near, target, filled)
    share = contraction_share(c, threads, holes)
    steps = share.steps
    busy = share.rounds * tpb * ppc * tile
    if not c.b_is_constant:
        places = (panels, width * c.b.dtype.itemsize, tiles, blocks, holes["pack_b"])
        busy = busy + c.batch * _arrival_cycles(c, *places, target, threads) / threads
    ways = contraction_panels(c, target, threads, holes)
    cycles = from_far(busy, share.far_bytes(target), ways, target, threads)
    handed = steps * STEP_NS / threads + fork_join_ns(steps, threads, target)
    return cycles / rates.clock + handed


def contraction_share(c: Contraction, threads: int, holes: dict[str, Array]) -> Share:
    """How the blocks and chunks of a contraction are dealt out to threads."""
    mr, width = holes["mr"], holes["nv"] * holes["lanes"]
    tpb, ppc = holes["tiles_per_block"], holes["panels_per_chunk"]
    tiles, panels = -(-c.rows // mr), -(-c.columns // width)
    blocks, chunks = -(-tiles // tpb), -(-panels // ppc)
    size = c.reduce.dtype.itemsize
    chunk_bytes, block_bytes = ppc * c.depth * width * size, tpb * _row_elements(c) * mr * size
    steps = c.batch * blocks * chunks
    return Share(steps, chunks, chunk_bytes, block_bytes, ppc, c.b_is_constant, threads)


def contraction_panels(
    c: Contraction, target: CpuTarget, threads: int, holes: dict[str, Array]
) -> Panels:
    """How the tiles of a contraction go through its panels."""
    mr, nv, tpb = holes["mr"], holes["nv"], holes["tiles_per_block"]
    prefetched = holes.get("prefetch", 0 * mr) > 0
    row_bytes = nv * holes["lanes"] * c.reduce.dtype.itemsize
    times = contraction_share(c, threads, holes).times
    return Panels(tpb, prefetched, times, lines_in_flight(mr, nv, row_bytes, target))


def _row_elements(c: Contraction) -> float:
    """Elements that a row of the left factor adds to those before: windows overlap."""
    found = [e.tensor.type.size for e in subexpressions(c.a) if isinstance(e, Read)]
    return min(float(c.depth), sum(found) / max(1, c.rows))


def _arrival_cycles(
    c: Contraction,
    panels: Array,
    row_bytes: Array,
    tiles: Array,
    blocks: Array,
    pack_b: Array,
    target: CpuTarget,
    threads: int,
) -> Array:
    """What it takes to read b, or to bring it into panels.

    Where b is contiguous, a step of the loop reads a few lines of one row, mostly in another page
    than the step before.  Copied ahead, b goes out to where it came from and back again; copied
    beside, it arrives once per block of rows; read in place, once per tile, though the next times
    from nearby, if a cache has room for rows that lie so far apart.
    """
    elements = c.depth * c.columns
    apart = target.constant("apart_ns") * rates_of(target).clock
    steps, again = panels * c.depth, np.zeros(len(panels))
    if c.b_is_contiguous:
        step = _reduced_step(c) * c.b.dtype.itemsize
        near = distance(step)
        is_far = (threads > 1) | (
            c.batch * elements * c.b.dtype.itemsize > L2_KEPT * target.l2_bytes
        )
        lines = np.ceil(row_bytes / target.line_bytes)
        arrival = steps * (near * visit_cycles(lines) + np.where(is_far, apart, 0.0))
        room = L2_KEPT * target.l2_bytes * reachable(step, row_bytes, target.line_bytes)
        lost = apart + lines * target.line_bytes / rates_of(target).l3_bytes
        again = steps * np.where(c.depth * row_bytes <= room, near * AGAIN_CYCLES, lost)
    else:
        each = GATHER_CYCLES if _is_gathered(c) else PACKED_CYCLES
        arrival = each * elements * np.ones(len(panels))
    # A single tile has little to do while it waits for what comes from far away.
    alone = (tiles == 1) & (c.batch * elements * c.b.dtype.itemsize > target.l2_bytes)
    in_place = np.where(alone, ALONE_FELT, IN_PLACE_FELT) * arrival + np.where(
        tiles > 1, tiles * again, 0.0
    )
    copied = np.where(pack_b == BESIDE, blocks * arrival, arrival + AHEAD_CYCLES * elements)
    result: Array = np.where(pack_b == IN_PLACE, in_place, copied)
    return result


def _is_gathered(c: Contraction) -> bool:
    """True when lanes of b are picked one by one, because they stand under a condition and are
    no neighbours."""
    if not isinstance(c.b, Select):
        return False
    reads = [e for e in subexpressions(c.b) if isinstance(e, Read)]
    return any(lane_step(e, c.vector) not in (0, 1) for e in reads)


def _reduced_step(c: Contraction) -> int:
    """Elements between what neighbouring steps of the loop read of b."""
    reads = [e for e in subexpressions(c.b) if isinstance(e, Read) and len(e.indices) == 1]
    form = affine(reads[0].indices[0])
    return min(abs(form.coefficient(k)) for k in c.reduce.axes)


def _crowded_cycles(c: Contraction, mr: Array, target: CpuTarget) -> Array:
    """Cycles that the rows of a tile take in a step of its innermost loop because they push each
    other out of the first cache, and come back from the second."""
    crowd = crowding(abs(row_step(c)) * c.reduce.dtype.itemsize, mr, target)
    lost = np.clip((crowd - UNCROWDED) / (2 * (1 - UNCROWDED)), 0.0, 1.0)
    result: Array = lost * mr * target.line_bytes / rates_of(target).l2_bytes
    return result


def row_step(c: Contraction) -> int:
    """Elements between neighbouring rows of the broadcast operand."""
    if not c.m_axes:
        return 0
    for e in subexpressions(c.a):
        if isinstance(e, Read) and len(e.indices) == 1:
            return affine(e.indices[0]).coefficient(c.m_axes[-1])
    return 0


def contraction_holes(c: Contraction, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Every combination of tile sizes that the register rule allows."""
    lanes = lanes_for(c.columns, c.reduce.dtype.bits, target)
    full = max(1, target.vector_bits // c.reduce.dtype.bits)
    if lanes < c.columns < full:
        lanes *= 2  # one vector with idle lanes instead of two that overlap
    registers = target.vector_registers
    terms = longest_sum(c.depth, c.reduce.dtype)
    tables: list[Array] = []
    sizes: list[tuple[int, ...]] = []
    widths = _lane_counts(c.columns, lanes, full)
    most = min(c.rows, 16)
    skips = worth_skipping(c.edges, c.m_axes, most)
    for mr, lanes in product(range(1, most + 1), widths):
        for nv in range(1, 9 if lanes < full else 7):
            # The last vector of a panel may overlap the one before it, but is not idle.
            idle = nv * lanes - c.columns
            if mr * nv + nv + 1 > registers or (nv > 1 and idle >= lanes):
                continue
            tiles, panels = -(-c.rows // mr), -(-c.columns // (nv * lanes))
            one, several = (_ways_to_copy(c, n, nv * lanes, target) for n in (1, 2))
            tables.append(_shares(tiles, panels, one, several, c.b_is_constant))
            sizes.append((mr, nv, lanes, terms, skips[mr]))
    each = np.repeat(np.array(sizes, np.int64), [t.shape[1] for t in tables], axis=0).T
    shares = np.concatenate(tables, axis=1)
    return dict(zip(HOLES, (*each[:3], *shares, *each[3:])))


@lru_cache(maxsize=4096)
def _shares(
    tiles: int, panels: int, one: tuple[int, ...], several: tuple[int, ...], is_constant: bool
) -> Array:
    """How tiles and panels may be dealt out, what is copied, and whether panels are asked for."""
    rows = [
        (tpb, ppc, pb, ask)
        for tpb in _spread(tiles)
        for ppc in _spread(panels)
        for pb in (one if tpb == 1 else several)
        # A panel that a single tile uses streams in by itself.
        for ask in ((0, 1) if is_constant and tpb > 1 else (0,))
    ]
    return np.array(rows, np.int64).T


def turned_holes(c: Contraction, target: CpuTarget, threads: int) -> dict[str, Array]:
    """The same with lanes along another axis, where the contiguous one leaves more of them idle."""
    contiguous = c.stage.vector
    assert contiguous is not None
    full = max(1, target.vector_bits // c.reduce.dtype.bits)
    if _lane_use(c.columns, full) > TURNING_PAYS * _lane_use(contiguous.extent, full):
        return contraction_holes(c, target, threads)
    return population(HOLES, [])


def _lane_use(columns: int, full: int) -> float:
    """Which part of the lanes is used, at best."""
    half = max(1, full // 2)
    return columns / (-(-columns // half) * half)


def _lane_counts(columns: int, lanes: int, full: int) -> list[int]:
    """Whole vectors, and half ones where columns would leave many lanes of the last one idle.

    33 columns are 3 vectors of 16 lanes, or 5 of 8 lanes, which take as long as 2.5 of the others.
    """
    half = full // 2
    whole, narrow = (-(-columns // n) * n for n in (full, max(1, half)))
    pays = lanes == full and half >= 4 and 16 * narrow <= 15 * whole
    return [lanes, half] if pays else [lanes]


def _ways_to_copy(c: Contraction, tiles: int, width: int, target: CpuTarget) -> tuple[int, ...]:
    """What may happen to b; a panel of its own is kept in half of the second cache."""
    if c.b_is_constant:
        return (IN_PLACE,)
    panel_bytes = c.depth * width * c.b.dtype.itemsize
    fits = panel_bytes <= min(SCRATCH_LIMIT_BYTES, max(target.l2_bytes, target.l1d_bytes) // 2)
    if not c.b_is_contiguous:
        return (AHEAD, BESIDE) if fits else (AHEAD,)
    return (IN_PLACE, AHEAD, BESIDE) if fits and tiles > 1 else (IN_PLACE, AHEAD)


@lru_cache(maxsize=1024)
def _spread(count: int) -> list[int]:
    """Block sizes to consider: all divisors, and powers of two."""
    small = [n for n in range(1, math.isqrt(count) + 1) if count % n == 0]
    found = {*small, *(count // n for n in small)}
    found |= {min(1 << n, count) for n in range(10)}
    return sorted(found)
