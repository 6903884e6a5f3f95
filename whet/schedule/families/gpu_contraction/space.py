"""The candidates of a contraction on a GPU: tiles that paid in measurements, times all the rest.

Sizes are those that were best for some layer of ResNet-50 and BERT on an H200 (18,000 kernels).
Products that are larger than all of those may have larger tiles of warps.
"""

from __future__ import annotations

import numpy as np

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ir.threads import WARP
from whet.schedule.families.gpu_contraction.ffma import WIDE
from whet.schedule.families.gpu_contraction.match import VECTOR, GpuContraction
from whet.schedule.families.gpu_contraction.mma import SIDE
from whet.schedule.families.gpu_contraction.resources import registers_of, shared_bytes, threads_of
from whet.schedule.program.triggers import NEVER, matrix_triggers
from whet.schedule.space.sketch import Population

HOLES = ("bm", "bn", "tm", "tn", "bk", "stages", "splits", "trigger")
THREAD_TILES = (
    (16, 32, 2, 4), (16, 64, 2, 4), (32, 32, 4, 4), (32, 64, 4, 4), (32, 64, 4, 8),
    (32, 128, 4, 8), (32, 128, 8, 8), (56, 64, 7, 4), (56, 64, 7, 8), (56, 128, 7, 8),
    (64, 32, 4, 4), (64, 32, 8, 4), (64, 64, 4, 4), (64, 64, 4, 8), (64, 64, 8, 4),
    (64, 64, 8, 8), (64, 128, 8, 8), (112, 64, 7, 8), (128, 32, 8, 4), (128, 64, 8, 4),
    (128, 64, 8, 8), (128, 128, 8, 8),
)  # fmt: skip
"""bm, bn, tm, tn; those of seven rows divide images of 56, 28 and 14 without rest."""
WARP_TILES = (
    (16, 32, 16, 16), (16, 64, 16, 16), (16, 64, 16, 32), (16, 128, 16, 32), (32, 32, 16, 16),
    (32, 32, 32, 16), (32, 64, 16, 16), (32, 64, 16, 32), (32, 64, 32, 16), (32, 128, 16, 32),
    (32, 128, 32, 32), (64, 32, 16, 32), (64, 32, 32, 16), (64, 32, 32, 32), (64, 64, 16, 32),
    (64, 64, 32, 16), (64, 64, 32, 32), (64, 128, 32, 32), (64, 128, 32, 64), (128, 32, 32, 16),
    (128, 32, 32, 32), (128, 64, 32, 32), (128, 64, 64, 32), (128, 128, 64, 32),
)  # fmt: skip
LARGE_WARP_TILES = ((128, 128, 64, 64), (256, 64, 64, 32), (256, 64, 64, 64), (256, 128, 64, 64))
"""Tiles that read fewer numbers for every product, and leave a processor few warps."""
LARGE = 600_000_000
"""Multiply-adds from which these are offered: twice those of the largest product measured."""
STAGE_BYTES = {False: (64, 128), True: (64, 128, 256)}
"""Bytes of a row along the depth, for threads and for warps."""
STAGES = {False: (2, 3, 4), True: (2, 3, 4, 6)}
SPLITS = (1, 2, 3, 4, 6, 8, 16)
CROWD = {False: 6, True: 3}
"""Blocks for every processor beyond which no sum is split, for threads and for warps."""
LEAST_ROWS, LEAST_COLUMNS = 32, 64
"""Tiles no larger than these may be mostly outside."""
SHORT_BYTES = 64
"""Rows of a stage that pay for warps only if the depth has no more."""


def gpu_holes(form: GpuContraction, target: GpuTarget) -> Population:
    """Every legal combination of the sizes."""
    matrix = form.leaf.is_matrix
    size = form.a.dtype.itemsize if matrix else 4  # factors of threads are at least that wide
    tiles = tiles_of(form)
    axes = (
        np.arange(len(tiles)),
        np.array([n // size for n in STAGE_BYTES[matrix]]),
        np.array(STAGES[matrix]),
        np.array([s for s in SPLITS if s <= target.cluster_limit]),
        np.array(matrix_triggers(target) if matrix else (NEVER,)),
    )
    number, *rest = (x.reshape(-1) for x in np.meshgrid(*axes, indexing="ij"))
    columns = [*np.array(tiles)[number].T, *rest]
    every = dict(zip(HOLES, (c.astype(np.int64) for c in columns)))
    every = _with_stages_in_use(form, every)
    keep = is_legal(form, target, every) & is_sensible(form, target, every)
    return {name: column[keep] for name, column in every.items()}


def tiles_of(form: GpuContraction) -> tuple[tuple[int, int, int, int], ...]:
    """The tiles that are tried."""
    if not form.leaf.is_matrix:
        return THREAD_TILES
    c = form.contraction
    is_large = c.batch * c.rows * c.columns * form.depth >= LARGE
    return WARP_TILES + (LARGE_WARP_TILES if is_large else ())


def _with_stages_in_use(form: GpuContraction, holes: Population) -> Population:
    """Candidates whose copies are all under way at once where the depth has fewer stages.

    6 stages for 4 steps  ->  5, so that no step waits for a copy that could have begun before
    """
    steps = -(-form.depth // (holes["bk"] * holes["splits"]))
    stages = np.minimum(holes["stages"], steps + 1)
    rows = np.stack([stages if name == "stages" else holes[name] for name in HOLES])
    _, first = np.unique(rows, axis=1, return_index=True)
    return dict(zip(HOLES, rows[:, np.sort(first)]))


def is_legal(form: GpuContraction, target: GpuTarget, holes: Population) -> Array:
    """Which candidates the target can run, each block of a cluster having terms to add."""
    bm, bn, tm, tn, bk = (holes[n] for n in HOLES[:5])
    stages, splits = holes["stages"], holes["splits"]
    threads = threads_of(form.leaf, holes)
    steps = -(-form.depth // (bk * splits))
    fits = (threads % WARP == 0) & (threads >= WARP) & (threads <= 1024)
    fits &= shared_bytes(form, holes) <= target.shared_bytes
    registers = registers_of(form.leaf, form.dtype.itemsize, holes)
    fits &= (registers <= 255) & (registers * threads <= target.registers_per_processor)
    fits &= (splits <= target.cluster_limit) & (steps * (splits - 1) * bk < form.depth)
    fits &= (stages >= 2) & (stages <= steps + 1)
    fits &= blocks_of(form, holes) * splits < 1 << 31
    fits &= (bm % tm == 0) & (bn % tn == 0)
    if form.leaf.is_matrix:
        k = form.leaf.depth(form.a.dtype)
        return fits & (tm % SIDE == 0) & (tn % SIDE == 0) & (bk % k == 0)
    across, down = bn // tn, bm // tm
    wide = np.minimum(across, WIDE)
    fits &= (across % wide == 0) & (WARP % wide == 0) & (down % (WARP // wide) == 0)
    return fits & (tn % VECTOR == 0) & (bk % VECTOR == 0)


def is_sensible(form: GpuContraction, target: GpuTarget, holes: Population) -> Array:
    """Which candidates are worth a price.

    Tiles are not mostly outside, sums are split only where that makes more blocks busy, and of
    stages that tensor cores would wait for there are only few.  The best of what was measured is
    left out for 4 of 54 layers, where what is left is 0.4 to 3.7 % behind.
    """
    c, matrix = form.contraction, form.leaf.is_matrix
    bm, bn, bk, splits = (holes[name] for name in ("bm", "bn", "bk", "splits"))
    sensible = (bm <= LEAST_ROWS) | (bm < 2 * c.rows)
    sensible &= (bn <= LEAST_COLUMNS) | (bn < 2 * c.columns)
    crowded = blocks_of(form, holes) * splits > CROWD[matrix] * target.processors
    sensible &= (splits == 1) | ~crowded
    if not matrix:
        return sensible & ((bm >= LEAST_ROWS) | (c.rows <= bm))
    steps = -(-form.depth // (bk * splits))
    nbytes = bk * form.a.dtype.itemsize
    few = (holes["stages"] > 2) | (steps <= 2)
    return sensible & few & ((nbytes > SHORT_BYTES) | (form.depth <= bk * 2))


def blocks_of(form: GpuContraction, holes: Population) -> Array:
    """Tiles of all results."""
    c = form.contraction
    return c.batch * -(-c.rows // holes["bm"]) * -(-c.columns // holes["bn"])
