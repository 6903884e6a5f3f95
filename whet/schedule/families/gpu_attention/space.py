"""The candidates of attention on a GPU: every combination of tiles that threads divide evenly."""

from __future__ import annotations

import numpy as np

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ir.threads import WARP
from whet.schedule.families.gpu_attention.match import GpuAttention
from whet.schedule.families.gpu_attention.resources import (
    registers_of_block,
    shared_bytes,
    steps_of,
    threads_of,
    width_of,
)
from whet.schedule.families.gpu_contraction.ffma import WIDE
from whet.schedule.families.gpu_contraction.match import VECTOR
from whet.schedule.families.gpu_contraction.mma import SIDE
from whet.schedule.program.triggers import NEVER, matrix_triggers
from whet.schedule.space.sketch import Population

HOLES = ("bm", "bn", "tm", "tn", "tm2", "tn2", "parts", "stages", "trigger")
ROWS = (16, 32, 64)
KEYS = (32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 208, 224, 256)
TILES = {False: ((2, 4, 8), (2, 4, 8), (1, 2, 4, 8)), True: ((16, 32), (16, 32, 64), (16, 32))}
"""tm, tn and tm2 of threads, and of warps."""
PARTS = {False: (1,), True: (1, 2, 4, 8)}
"""Parts of the keys of a stage: warps that share results add up what they have in the end."""
STAGES = (2, 3, 4, 5, 7)
THREADS = (64, 512)
"""Threads of a block, at least and at most."""
WASTED = 2
"""Of so many keys, or columns of results, one more is computed at most that there is not, where
tiles could be smaller."""
REGISTERS = 255


def attention_holes(form: GpuAttention, target: GpuTarget) -> Population:
    """Every combination of the sizes that is legal and not mostly waste."""
    matrix = form.leaf.is_matrix
    triggers = matrix_triggers(target) if matrix else (NEVER,)
    axes = (ROWS, KEYS, *TILES[matrix], PARTS[matrix], STAGES, triggers)
    bm, bn, tm, tn, tm2, parts, stages, trigger = (
        x.reshape(-1) for x in np.meshgrid(*map(np.array, axes), indexing="ij")
    )
    step = SIDE if matrix else VECTOR
    # Columns of results are divided among the tiles beside each other, in whole vectors or sides.
    beside = np.maximum((bm // tm) * (bn // tn) * tm2 // bm // parts, 1)
    tn2 = -(-form.width // (beside * step)) * step
    every = dict(zip(HOLES, (bm, bn, tm, tn, tm2, tn2, parts, stages, trigger)))
    every = only(every, divides(form, every))
    return only(every, is_legal(form, target, every) & _is_sensible(form, every))


def only(holes: Population, keep: Array) -> Population:
    """The candidates that are kept."""
    return {name: column[keep] for name, column in holes.items()}


def divides(form: GpuAttention, holes: Population) -> Array:
    """Which tiles threads and warps divide evenly."""
    bm, bn, tm, tn, tm2, tn2, parts = (holes[name] for name in HOLES[:7])
    threads = threads_of(form, holes)
    fits = (bm % tm == 0) & (bn % tn == 0) & (bm % tm2 == 0)
    fits &= (threads % WARP == 0) & (threads >= THREADS[0]) & (threads <= THREADS[1])
    fits &= (threads // form.leaf.lanes) % (np.maximum(bm // tm2, 1) * parts) == 0
    fits &= threads >= 2 * bm
    if form.leaf.is_matrix:
        return fits & (bn % (parts * form.leaf.depth(form.values.dtype)) == 0)
    if form.turned_keys:
        fits &= tn % VECTOR == 0
    for across, down in ((bn // tn, bm // tm), (width_of(holes) // tn2, bm // tm2)):
        wide = np.clip(across, 1, WIDE)
        fits &= (across % wide == 0) & (WARP % wide == 0) & (down % (WARP // wide) == 0)
    return fits


def is_legal(form: GpuAttention, target: GpuTarget, holes: Population) -> Array:
    """Which candidates the target can run."""
    threads, steps = threads_of(form, holes), steps_of(form, holes)
    registers = registers_of_block(form, holes)
    fits = shared_bytes(form, holes) <= target.shared_bytes
    fits &= (registers <= REGISTERS) & (registers * threads <= target.registers_per_processor)
    fits &= width_of(holes) >= form.width
    fits &= (holes["stages"] >= 2) & (holes["stages"] <= 2 * steps + 1)
    return np.asarray(fits & (blocks_of(form, holes) < 1 << 31))


def _is_sensible(form: GpuAttention, holes: Population) -> Array:
    """Which candidates are not mostly waste."""
    more = steps_of(form, holes) * holes["bn"] - form.length
    wider = width_of(holes) - form.width
    sensible = (more * WASTED <= form.length) | (holes["bn"] == min(KEYS))
    if form.leaf.is_matrix:
        # Warps for which there are no columns take keys from others, as long as there are some.
        split = 2 * holes["parts"] * form.leaf.depth(form.values.dtype)
        least = (holes["tn2"] == SIDE) & ((holes["bn"] % split != 0) | (wider < SIDE))
        least |= (holes["tn2"] == SIDE) & (holes["parts"] == max(PARTS[True]))
    else:
        least = holes["tn2"] == VECTOR
    return np.asarray(sensible & ((wider * WASTED <= form.width) | least))


def blocks_of(form: GpuAttention, holes: Population) -> Array:
    """Tiles of all rows."""
    return np.asarray(form.batch * -(-form.count // holes["bm"]))
