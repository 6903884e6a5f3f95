"""What no contraction on a GPU beats: all of its bytes and products at full speed.

The law was fitted to layers of batch one, which are far from it, and says little of large ones.
"""

from __future__ import annotations

import numpy as np

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.schedule.cost.numbers.gpus import MATRIX_PRODUCTS_PER_CYCLE
from whet.schedule.families.gpu_contraction.estimate import Work
from whet.schedule.families.gpu_contraction.match import Leaf
from whet.schedule.families.gpu_spatial.rates import near_gbs
from whet.schedule.space.sketch import Population


def roof(work: Work, leaf: Leaf, itemsize: int, target: GpuTarget, holes: Population) -> Array:
    """Nanoseconds of all steps of all blocks, with factors of so many bytes."""
    steps = work.blocks * work.steps
    by_bytes = steps * work.stage_bytes / near_gbs(target)
    if not leaf.is_matrix:
        return by_bytes
    products = steps * holes["bm"] * holes["bn"] * holes["bk"] * leaf.products
    rate = MATRIX_PRODUCTS_PER_CYCLE * 2 / itemsize * target.clock_ghz * target.processors
    return np.maximum(by_bytes, products / rate)
