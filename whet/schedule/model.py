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

from whet.core.dtypes import DType
from whet.core.target import Target
from whet.core.types import Array
from whet.ir.affine import affine
from whet.ir.expr import Read, Select
from whet.ir.program import SCRATCH_LIMIT_BYTES
from whet.ir.tensor import subexpressions
from whet.schedule.contraction import AHEAD, BESIDE, IN_PLACE, Contraction, Tiling
from whet.schedule.outside import parts_needed, worth_skipping
from whet.schedule.rates import rates_of
from whet.schedule.work import STEP_NS, fork_join_ns, lane_step

NARROW = 1.5
"""Slow-down of vectors that fill only a part of a register, as grouped convolutions show it."""

HALF = 1.06
"""The same where whole vectors would do, but leave more lanes idle."""

SCATTER_CYCLES = 1.5
"""To store one lane of a vector by itself."""

MOST_TILES_THAT_ASK = 64
"""Weights come from far away, and while several tiles use a panel the next one can arrive.  With
more tiles than this the wait for a panel is too small a part to be worth the hints."""

PAGE_BYTES = 4096
GATHERED = 2.5
"""Cycles to pick an element under a condition, for windows that step over their image."""

LONGEST_SUM = 128
"""Terms of a running sum, at most: a question of precision, not of speed.

The error of a sum of random terms grows like the square root of what it runs over.  From here on
adding it to the total costs nothing that can be measured, and sums of thousands of terms are as
precise as those of libraries that cut them for the sake of their caches.
"""


def longest_sum(depth: int, dtype: DType) -> int:
    """Terms of a running sum: all of them where addition is exact or there are few."""
    return LONGEST_SUM if dtype.is_float and depth > LONGEST_SUM else 0


def sum_blocks(depth: int, holes: dict[str, Array]) -> Array:
    """How many times a running sum is added to the total."""
    terms = holes["terms"]
    return np.where(terms > 0, np.ceil(depth / np.maximum(terms, 1)), 0)


def lanes_for(columns: int, bits: int, target: Target) -> int:
    """Lanes of a vector that suits a row of this length."""
    full = max(1, target.vector_bits // bits)
    while full > columns and full > 1:
        full //= 2
    return full


def contraction_costs(
    c: Contraction, target: Target, threads: int, holes: dict[str, Array]
) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    mr, nv, lanes = holes["mr"], holes["nv"], holes["lanes"]
    tpb, ppc = holes["tiles_per_block"], holes["panels_per_chunk"]
    width = nv * lanes
    tiles, panels = -(-c.rows // mr), -(-c.columns // width)
    blocks, chunks = -(-tiles // tpb), -(-panels // ppc)
    vector_bits = lanes * c.reduce.dtype.bits
    rates = rates_of(target)
    passes = rates.passes(lanes, c.reduce.dtype.bits)
    fma = mr * nv * passes / rates.operations
    loads = (mr + nv * rates.load_passes(lanes, c.reduce.dtype.bits)) / rates.loads
    # Broadcasts feed operations straight from memory where the set has that form.
    chains = rates.latency * np.ones_like(fma)
    cycle = np.maximum(np.maximum(fma, loads), chains)
    depth = c.depth * parts_needed(c.edges, c.m_axes, mr, holes.get("skip", 0 * mr))
    per_tile = cycle * depth + 12 + mr * nv * passes * (2 + sum_blocks(c.depth, holes) / 2)
    if c.is_turned:
        per_tile = per_tile + SCATTER_CYCLES * mr * width
    work = c.batch * blocks * tpb * chunks * ppc * per_tile
    # The panel is read once per tile: from L1 when it fits, else from further out.  The machine
    # foresees it, and most of the time that it takes does not show.
    panel_bytes = c.depth * width * 4
    level1, level2 = target.l1d_bytes, max(target.l2_bytes, 1)
    panel_cost = np.where(panel_bytes <= level1 // 2, 0.0, np.where(
        panel_bytes <= level2 // 2, panel_bytes / (2.0 * rates.l2_bytes),
        panel_bytes / (1.75 * rates.l3_bytes)))  # fmt: skip
    spill = panel_cost * tiles * panels * c.batch * 0.25
    block_bytes = mr * tpb * c.depth * 4
    a_bytes = c.rows * c.depth * 4
    a_cost = np.where(block_bytes <= level2 // 2, a_bytes * np.maximum(1, chunks) / rates.l2_bytes,
                      a_bytes * panels / rates.l3_bytes) * c.batch / 1.5  # fmt: skip
    work = work * _conflict_factor(c, mr, target)
    narrow = HALF if c.columns * c.reduce.dtype.bits >= target.vector_bits else NARROW
    work = work * np.where(vector_bits < target.vector_bits, narrow, 1.0)
    if not c.b_is_constant:
        lines = np.ceil(width * c.b.dtype.itemsize / 64)
        work = work + c.batch * _arrival_cycles(
            c, panels, lines, tiles, blocks, holes["pack_b"], target.l2_bytes
        )
    steps = c.batch * blocks * chunks
    share = np.ceil(steps / threads) / (steps / threads)
    ns = ((work + spill + a_cost * 0.25) * share / threads) / rates.clock
    return ns + steps * STEP_NS / threads + fork_join_ns(steps, threads, target)


def _arrival_cycles(
    c: Contraction,
    panels: Array,
    lines: Array,
    tiles: Array,
    blocks: Array,
    pack_b: Array,
    l2_bytes: int,
) -> Array:
    """What it takes to read b, or to bring it into panels.

    Where b is contiguous, a step of the loop reads a few lines of one row, mostly in another page
    than the step before.  Copied ahead, b goes out to where it came from and back again; copied
    beside, it arrives once per block of rows; read in place, once per tile, though the next times
    from nearby.
    """
    elements = c.depth * c.columns
    if c.b_is_contiguous:
        far = distance(_reduced_step(c) * c.b.dtype.itemsize)
        visits = far * panels * c.depth
        arrival = visits * visit_cycles(lines)
    else:
        each = GATHERED if _is_gathered(c) else 0.45
        visits, arrival = 0.0 * panels, each * elements * np.ones(len(panels))
    # A single tile has little to do while it waits for what comes from far away.
    hidden = np.where((tiles == 1) & (c.batch * elements * c.b.dtype.itemsize > l2_bytes), 0.8, 0.5)
    in_place = hidden * arrival + np.where(tiles > 1, 2.5 * tiles * visits, 0.0)
    copied = np.where(pack_b == BESIDE, blocks * arrival, arrival + 0.6 * elements)
    result: Array = np.where(pack_b == IN_PLACE, in_place, copied)
    return result


def distance(step: int) -> float:
    """What it costs to go so many bytes further, against going to another page."""
    return 1.0 if step >= PAGE_BYTES else 0.3


def visit_cycles(lines: Array) -> Array:
    """To read a few lines in another page than those before."""
    return 12 + 5 * lines


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


def _conflict_factor(c: Contraction, mr: Array, target: Target) -> Array:
    """Slow-down when the rows of a tile fall into the same few sets of the first cache."""
    crowd = crowding(abs(row_step(c)) * c.reduce.dtype.itemsize, mr, target)
    # A few too many do not hurt, because new lines replace those that are used up; twice as many
    # as there are ways take a bit more than twice as long.
    return 1.0 + 1.2 * np.maximum(0.0, crowd - 1.0) ** 3


def crowding(step: int, rows: Array, target: Target) -> Array:
    """Lines of so many rows, `step` bytes apart, that share a set of the first cache, against
    those that it holds.

    Lines whose addresses agree modulo the size of one way share a set; a tile that needs more
    of them than a set has ways evicts its own rows before they are used up.
    """
    way = 4096
    if step == 0:
        return np.zeros(len(rows))
    places = way // math.gcd(step, way) if step % way else 1
    ways = max(1, target.l1d_bytes // way)
    crowd: Array = np.ceil(rows / places) / ways
    return crowd


def row_step(c: Contraction) -> int:
    """Elements between neighbouring rows of the broadcast operand."""
    if not c.m_axes:
        return 0
    for e in subexpressions(c.a):
        if isinstance(e, Read) and len(e.indices) == 1:
            return affine(e.indices[0]).coefficient(c.m_axes[-1])
    return 0


def contraction_holes(c: Contraction, target: Target, threads: int) -> dict[str, Array]:
    """Every combination of tile sizes that the register rule allows."""
    lanes = lanes_for(c.columns, c.reduce.dtype.bits, target)
    full = max(1, target.vector_bits // c.reduce.dtype.bits)
    if lanes < c.columns < full:
        lanes *= 2  # one vector with idle lanes instead of two that overlap
    registers = target.vector_registers
    terms = longest_sum(c.depth, c.reduce.dtype)
    rows: list[tuple[int, ...]] = []
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
            for tpb in _spread(tiles):
                copies = _ways_to_copy(c, tpb, nv * lanes, target)
                ask = int(c.b_is_constant and 1 < tpb <= MOST_TILES_THAT_ASK)
                rows += [
                    (mr, nv, lanes, tpb, ppc, pb, ask, terms, skips[mr])
                    for ppc in _spread(panels)
                    for pb in copies
                ]
    table = np.array(rows, dtype=np.int64).T
    sizes = ("mr", "nv", "lanes", "tiles_per_block", "panels_per_chunk")
    names = (*sizes, "pack_b", "prefetch", "terms", "skip")
    return dict(zip(names, table))


def turned_holes(c: Contraction, target: Target, threads: int) -> dict[str, Array]:
    """The same with lanes along another axis, where the contiguous one leaves more of them idle."""
    found = contraction_holes(c, target, threads)
    contiguous = c.stage.vector
    assert contiguous is not None
    full = max(1, target.vector_bits // c.reduce.dtype.bits)
    pays = _lane_use(c.columns, full) > 1.05 * _lane_use(contiguous.extent, full)
    return found if pays else {name: column[:0] for name, column in found.items()}


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


def _ways_to_copy(c: Contraction, tiles: int, width: int, target: Target) -> list[int]:
    """What may happen to b; a panel of its own is kept in half of the second cache."""
    if c.b_is_constant:
        return [IN_PLACE]
    panel_bytes = c.depth * width * c.b.dtype.itemsize
    fits = panel_bytes <= min(SCRATCH_LIMIT_BYTES, max(target.l2_bytes, target.l1d_bytes) // 2)
    if not c.b_is_contiguous:
        return [AHEAD, BESIDE] if fits else [AHEAD]
    return [IN_PLACE, AHEAD, BESIDE] if fits and tiles > 1 else [IN_PLACE, AHEAD]


@lru_cache(maxsize=1024)
def _spread(count: int) -> list[int]:
    """Block sizes to consider: all divisors, and powers of two."""
    small = [n for n in range(1, math.isqrt(count) + 1) if count % n == 0]
    found = {*small, *(count // n for n in small)}
    found |= {min(1 << n, count) for n in range(10)}
    return sorted(found)


def best_tiling(c: Contraction, target: Target, threads: int) -> tuple[float, Tiling]:
    """The cheapest tiling and its estimated nanoseconds."""
    holes = contraction_holes(c, target, threads)
    costs = contraction_costs(c, target, threads, holes)
    best = int(np.argmin(costs))
    return float(costs[best]), Tiling(**{name: int(column[best]) for name, column in holes.items()})
