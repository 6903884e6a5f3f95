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
from whet.ir.expr import Read, Reduce
from whet.ir.tensor import subexpressions
from whet.schedule.contraction import Contraction, Tiling
from whet.schedule.rows import Rows, RowTiling
from whet.schedule.spatial import Spatial, SpatialTiling

GHZ = 3.3
FMA_PER_CYCLE_256 = 2.0
LOADS_PER_CYCLE = 2.0
FMA_LATENCY = 4.0


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
    passes = np.maximum(1, vector_bits / 256)  # a 512-bit operation takes two 256-bit slots
    fma = mr * nv * passes / FMA_PER_CYCLE_256
    loads = (mr + nv * passes) / LOADS_PER_CYCLE
    # Broadcasts feed operations straight from memory where the set has that form.
    chains = FMA_LATENCY * np.ones_like(fma)
    cycle = np.maximum(np.maximum(fma, loads), chains)
    per_tile = cycle * c.depth + 12 + mr * nv * passes * 2
    work = c.batch * blocks * tpb * chunks * ppc * per_tile
    # The panel is read once per tile: from L1 when it fits, else from further out.
    panel_bytes = c.depth * width * 4
    level1, level2 = target.l1d_bytes, max(target.l2_bytes, 1)
    panel_cost = np.where(panel_bytes <= level1 // 2, 0.0, np.where(
        panel_bytes <= level2 // 2, panel_bytes / 64.0, panel_bytes / 28.0))  # fmt: skip
    spill = panel_cost * tiles * panels * c.batch * 0.25
    block_bytes = mr * tpb * c.depth * 4
    a_bytes = c.rows * c.depth * 4
    a_cost = np.where(block_bytes <= level2 // 2, a_bytes * np.maximum(1, chunks) / 48.0,
                      a_bytes * panels / 24.0) * c.batch  # fmt: skip
    work = work * _conflict_factor(c, mr, target)
    if not c.b_is_constant:
        copied = holes["pack_b"] if c.b_is_contiguous else np.ones_like(mr)
        # Read in place, every step of the loop touches another line and soon another page.
        work = np.where(copied, work + c.batch * c.depth * c.columns * 0.5, work * 1.3)
    steps = c.batch * blocks * chunks
    share = np.ceil(steps / threads) / (steps / threads)
    return ((work + spill + a_cost * 0.25) * share / threads) / GHZ + steps * 40.0 / threads


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
    return np.where(crowd > ways - 2, 1.0 + (crowd - ways + 2), 1.0)


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
                rows += [(mr, nv, lanes, tpb, ppc, pb) for ppc in _spread(panels) for pb in copies]
    table = np.array(rows, dtype=np.int64).T
    names = ("mr", "nv", "lanes", "tiles_per_block", "panels_per_chunk", "pack_b")
    return dict(zip(names, table))


def groups_are_narrow(c: Contraction, target: Target) -> bool:
    """True for a short grouped contraction that fills only a part of a vector.

    Its terms are few enough to write out, and the groups beside it can fill the other lanes.
    """
    full = max(1, target.vector_bits // c.reduce.dtype.bits)
    return c.batch > 1 and 4 * c.columns <= full and c.depth <= 96 and c.b_is_constant


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


# ------------------------------------------------------------------------- spatial and row sketches
def prefers_spatial(s: Spatial) -> bool:
    """True unless lanes along the output's axis would gather what lies contiguous along rows.

    Constants have no say, since they are stored to fit.
    """
    weights = {s.task.buffers[t].name for t in s.task.constants if t in s.task.buffers}
    reads = [
        affine(e.indices[0])
        for e in subexpressions(s.stage.body)
        if isinstance(e, Read) and len(e.indices) == 1 and e.tensor.name not in weights
    ]
    reduced = [a for r in s.stage.reduces for a in r.axes]
    along = any(form.coefficient(a) == 1 for form in reads for a in reduced)
    if not along:
        return True
    return s.vector is not None and any(form.coefficient(s.vector) == 1 for form in reads)


def spatial_tiling(s: Spatial, target: Target, threads: int) -> SpatialTiling:
    """Tile sizes for a spatial stage."""
    bits = max(8, s.stage.target.dtype.bits)
    lanes = lanes_for(s.columns, bits, target)
    rows = 1 if s.pixels is None else s.pixels.extent
    outer = math.prod(a.extent for a in s.outer)
    windows = sum(math.prod(a.extent for a in r.axes) for r in s.stage.reduces)
    if windows:
        nv = 1 if windows <= 32 else min(4, max(1, s.columns // lanes))
        px = min(rows, 4 if windows <= 32 else 1)
    elif _transposes(s):
        # Square tiles: every line of memory that lanes gather from serves several pixels.
        nv, px = 1, min(rows, lanes)
    else:
        nv, px = max(1, min(4, s.columns // lanes)), 1
    tiles, panels = -(-rows // px), -(-s.columns // (nv * lanes))
    # Work per parallel step: enough to hide the hand-over, little enough to share.
    work = max(1, windows) * px * nv * lanes
    want = max(4 * threads, 1) if threads > 1 else 1
    tiles_per_step, panels_per_step = tiles, panels
    while outer * -(-tiles // tiles_per_step) * -(-panels // panels_per_step) < want:
        if tiles_per_step > 1 and work * tiles_per_step * panels_per_step > 4096:
            tiles_per_step = -(-tiles_per_step // 2)
        elif panels_per_step > 1 and work * tiles_per_step * panels_per_step > 4096:
            panels_per_step = -(-panels_per_step // 2)
        else:
            break
    return SpatialTiling(px, nv, lanes, tiles_per_step, panels_per_step)


def _transposes(s: Spatial) -> bool:
    """True when lanes gather from memory that is contiguous along the pixels instead."""
    if s.vector is None or s.pixels is None:
        return False
    reads = [e for e in subexpressions(s.stage.body) if isinstance(e, Read) and len(e.indices) == 1]
    forms = [affine(r.indices[0]) for r in reads]
    return any(f.coefficient(s.vector) > 1 and f.coefficient(s.pixels) == 1 for f in forms)


def row_tiling(r: Rows, target: Target, threads: int) -> RowTiling:
    """Sizes for a row task."""
    lanes = max(1, target.vector_bits // 32)
    count = math.prod(r.row_shape)
    longest = max(
        [math.prod(a.extent for a in e.axes) for st in r.stages for e in subexpressions(st.body)
         if isinstance(e, Reduce)] + [1])  # fmt: skip
    per_step = max(1, min(count // max(1, 4 * threads), 4096 // max(1, longest)))
    return RowTiling(lanes, 4, max(1, per_step))
