"""Prices of contractions, for a whole population at once.

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
from whet.ir.program import SCRATCH_LIMIT_BYTES
from whet.schedule.cost.arrival import (
    Panels,
    Share,
    filled_bytes,
    from_far,
    from_second_cache,
    lines_in_flight,
    with_weights,
)
from whet.schedule.cost.lanes import lanes_for, longest_sum, prefetches_per_step, sum_blocks
from whet.schedule.cost.numbers.overheads import (
    REGISTER_TILE_CYCLES,
    SCATTER_CYCLES,
)
from whet.schedule.cost.numbers.threads import STEP_NS
from whet.schedule.cost.numbers.vectors import HALF, NARROW, TURNING_PAYS
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import fork_join_ns, overlapped
from whet.schedule.families.contraction.halo import parts_needed, worth_skipping
from whet.schedule.families.contraction.match import AHEAD, BESIDE, IN_PLACE, Contraction
from whet.schedule.families.contraction.operands import arrival_cycles, crowded_cycles, row_elements
from whet.schedule.space.sketch import population

HOLES = ("mr", "nv", "lanes", "tiles_per_block", "panels_per_chunk", "pack_b", "prefetch", "terms",
         "skip")  # fmt: skip


def direct_costs(c: Contraction, target: CpuTarget, threads: int, holes: dict[str, Array]) -> Array:
    """The costs of a contraction together with the arrival of its weights."""
    costs, panels = _costs_and_panels(c, target, threads, holes)
    nbytes = c.batch * c.depth * c.columns * c.reduce.dtype.itemsize
    return with_weights(costs, nbytes, target, threads, panels) if c.b_is_constant else costs


def contraction_costs(
    c: Contraction, target: CpuTarget, threads: int, holes: dict[str, Array]
) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    return _costs_and_panels(c, target, threads, holes)[0]


def _costs_and_panels(
    c: Contraction, target: CpuTarget, threads: int, holes: dict[str, Array]
) -> tuple[Array, Panels]:
    """The costs, and the way of the tiles through panels, which they depend on."""
    mr, nv, lanes = holes["mr"], holes["nv"], holes["lanes"]
    tpb, ppc = holes["tiles_per_block"], holes["panels_per_chunk"]
    bits, size = c.reduce.dtype.bits, c.reduce.dtype.itemsize
    width = nv * lanes
    rates = rates_of(target)
    passes = rates.passes(lanes, bits)
    hints = prefetches_per_step(holes.get("prefetch", 0 * mr), tpb, width * size)
    cycle = rates.tile_step(mr, nv, lanes, bits)
    cycle = overlapped(cycle, crowded_cycles(c, mr, target), target.constant("l2_felt"))
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
    panel_bytes, row_bytes = c.depth * width * size, row_elements(c) * mr * size
    near, whole = panel_bytes + row_bytes, c.depth * c.columns * size
    filled = filled_bytes(panel_bytes, whole, tpb, hints > 0, target)
    tile = from_second_cache(tile, near, near, target, filled)
    share = contraction_share(c, threads, holes)
    steps = share.steps
    busy = share.rounds * tpb * ppc * tile
    if not c.b_is_constant:
        tiles, panels = -(-c.rows // mr), -(-c.columns // width)
        blocks = -(-tiles // tpb)
        places = (panels, width * c.b.dtype.itemsize, tiles, blocks, holes["pack_b"])
        busy = busy + c.batch * arrival_cycles(c, *places, target, threads) / threads
    ways = Panels(tpb, holes.get("prefetch", 0 * mr) > 0, share.times,
                  lines_in_flight(mr, nv, width * size, target))  # fmt: skip
    cycles = from_far(busy, share.far_bytes(target), ways, target, threads)
    handed = steps * STEP_NS / threads + fork_join_ns(steps, threads, target)
    return cycles / rates.clock + handed, ways


def contraction_share(c: Contraction, threads: int, holes: dict[str, Array]) -> Share:
    """The blocks and chunks of a contraction, dealt out to threads."""
    mr, width = holes["mr"], holes["nv"] * holes["lanes"]
    tpb, ppc = holes["tiles_per_block"], holes["panels_per_chunk"]
    tiles, panels = -(-c.rows // mr), -(-c.columns // width)
    blocks, chunks = -(-tiles // tpb), -(-panels // ppc)
    size = c.reduce.dtype.itemsize
    chunk_bytes, block_bytes = ppc * c.depth * width * size, tpb * row_elements(c) * mr * size
    steps = c.batch * blocks * chunks
    return Share(steps, chunks, chunk_bytes, block_bytes, ppc, c.b_is_constant, threads)


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
    """Ways to deal out tiles and panels, to copy, and to ask for panels ahead of time."""
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
    """Ways to copy b; a panel of its own is kept in half of the second cache."""
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
