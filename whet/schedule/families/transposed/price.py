"""Prices of copies between layouts, for a whole population at once."""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.expr import elements
from whet.schedule.cost.numbers.overheads import SQUARE_TILE_CYCLES, TRANSPOSE_CYCLES
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import shared_out, traffic_cycles
from whet.schedule.families.transposed.match import Transposed


def transposed_holes(t: Transposed, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Tiles that fill half a vector or all of it, where both axes are long enough."""
    bits = max(8, t.stage.target.dtype.bits)
    full = max(1, target.vector_bits // bits)
    room = min(t.source.extent, t.target.extent)
    rows = []
    for size in (full, full // 2):
        # All rows of the tile are alive at once, and the shuffles need a few more.
        if 2 <= size <= room and size <= target.vector_registers // 2:
            blocks = -(-t.source.extent // size)
            rows += [(size, n) for n in {1, max(1, blocks // 4), blocks}]
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 2).T
    return dict(zip(("size", "blocks_per_step"), columns))


def transposed_costs(
    t: Transposed, target: CpuTarget, threads: int, holes: dict[str, Array]
) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    size, per_step = holes["size"], holes["blocks_per_step"]
    blocks, across = -(-t.source.extent // size), -(-t.target.extent // size)
    steps = elements(t.outer) * -(-blocks // per_step)
    tiles = steps * per_step * across
    bits = max(8, t.stage.target.dtype.bits)
    # Rows of a whole line cost less than their operations: 16 x 16 take 0.8 times as long as four
    # of 8 x 8 where those of 512 bits take two passes.
    passes = np.sqrt(rates_of(target).passes(size, bits))
    per_tile = passes * size * (2.0 + TRANSPOSE_CYCLES * np.log2(size)) + SQUARE_TILE_CYCLES
    moving = (*t.task.inputs, *t.task.outputs)
    cycles = np.maximum(tiles * per_tile, traffic_cycles(moving, target))
    return shared_out(cycles, steps, threads, target)
