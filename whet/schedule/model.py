"""The analytic model: what a schedule should cost, for a whole population at once.

Times are in nanoseconds for one core of the target.  A register tile is bound by its
multiply-adds, its loads or its dependency chains, whichever is slowest; blocks add the traffic
that they cause in each cache; ragged edges and uneven shares of the cores add what they waste.
"""

from __future__ import annotations

import math

import numpy as np

from whet.core.target import Target
from whet.core.types import Array
from whet.ir.affine import affine
from whet.ir.expr import Read
from whet.ir.tensor import subexpressions
from whet.schedule.contraction import Contraction, Tiling
from whet.schedule.rates import rates_of
from whet.schedule.work import STEP_NS, fork_join_ns

NARROW = 1.5
"""Slow-down of vectors that fill only a part of a register, as grouped convolutions show it."""

MOST_TILES_THAT_ASK = 64
"""Weights come from far away, and while several tiles use a panel the next one can arrive.  With
more tiles than this the wait for a panel is too small a part to be worth the hints."""


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
    per_tile = cycle * c.depth + 12 + mr * nv * passes * 2
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
    work = work * np.where(vector_bits < target.vector_bits, NARROW, 1.0)
    if not c.b_is_constant:
        copied = holes["pack_b"] if c.b_is_contiguous else np.ones_like(mr)
        # Read in place, every step of the loop touches another line and soon another page.
        work = np.where(copied, work + c.batch * c.depth * c.columns * 0.5, work * 1.3)
    steps = c.batch * blocks * chunks
    share = np.ceil(steps / threads) / (steps / threads)
    ns = ((work + spill + a_cost * 0.25) * share / threads) / rates.clock
    return ns + steps * STEP_NS / threads + fork_join_ns(steps, threads, target)


def _conflict_factor(c: Contraction, mr: Array, target: Target) -> Array:
    """Slow-down when the rows of a tile fall into the same few sets of the first cache.

    Lines whose addresses agree modulo the size of one way share a set; a tile that needs more
    of them than a set has ways evicts its own rows before they are used up.
    """
    way = 4096
    step = abs(row_step(c)) * c.reduce.dtype.itemsize
    if step == 0:
        return np.ones(len(mr))
    places = way // math.gcd(step, way) if step % way else 1
    crowd = np.ceil(mr / places)
    ways = max(1, target.l1d_bytes // way)
    # A few too many do not hurt, because new lines replace those that are used up; twice as many
    # as there are ways take a bit more than twice as long.
    return 1.0 + 1.2 * np.maximum(0.0, crowd / ways - 1.0) ** 3


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
    copies = (0, 1) if c.b_is_contiguous and not c.b_is_constant else (0,)
    rows: list[tuple[int, ...]] = []
    for mr in range(1, min(c.rows, 16) + 1):
        for nv in range(1, 7):
            if mr * nv + nv + 1 > registers or (nv > 1 and nv * lanes > c.columns):
                continue
            tiles, panels = -(-c.rows // mr), -(-c.columns // (nv * lanes))
            for tpb in _spread(tiles):
                ask = int(c.b_is_constant and 1 < tpb <= MOST_TILES_THAT_ASK)
                rows += [
                    (mr, nv, lanes, tpb, ppc, pb, ask) for ppc in _spread(panels) for pb in copies
                ]
    table = np.array(rows, dtype=np.int64).T
    names = ("mr", "nv", "lanes", "tiles_per_block", "panels_per_chunk", "pack_b", "prefetch")
    return dict(zip(names, table))


def _spread(count: int) -> list[int]:
    """Block sizes to consider: all divisors, and powers of two."""
    found = {n for n in range(1, count + 1) if count % n == 0}
    found |= {min(1 << n, count) for n in range(10)}
    return sorted(found)


def best_tiling(c: Contraction, target: Target, threads: int) -> tuple[float, Tiling]:
    """The cheapest tiling and its estimated nanoseconds."""
    holes = contraction_holes(c, target, threads)
    costs = contraction_costs(c, target, threads, holes)
    best = int(np.argmin(costs))
    return float(costs[best]), Tiling(**{name: int(column[best]) for name, column in holes.items()})
