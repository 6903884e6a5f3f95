"""What the law gets wrong, as far as measured kernels tell: factors on its estimates.

Trees that were taught by the kernels that the law was fitted to say the logarithm of measured by
estimated time from the columns below, none of which needs a compiler.  They ship as text, a file
for every leaf (`corrections`), written by `bench/gpu_law.py`.

Trees know nothing about what was never measured.  They are asked about single products with sums of
single precision whose rows, columns and depth, and whose multiply-adds, are within a factor of two
of those of measured layers, on GPUs of the same generation; all else is left to the law.  No factor
is further from one than the limit in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from whet.core.errors import check, fail
from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ir.threads import WARP
from whet.schedule.cost.trees import Trees, read_trees
from whet.schedule.families.gpu_contraction.estimate import SCHEDULERS, Work, step_of
from whet.schedule.families.gpu_contraction.law import Law
from whet.schedule.families.gpu_contraction.match import GpuContraction
from whet.schedule.families.gpu_contraction.placement import blocks_beside, busiest
from whet.schedule.space.sketch import Population

GENERATION = 90
"""That of the GPU whose kernels taught the trees."""
MARGIN = 2
"""How much smaller or larger than all that was measured a product may be."""


@dataclass(frozen=True, eq=False)
class Correction:
    """Trees, and where they hold."""

    trees: Trees
    least: Array
    most: Array
    """The smallest and largest rows, columns, depth and multiply-adds of measured layers."""
    limit: float
    """The largest logarithm of a factor."""

    def knows(self, rows: int, columns: int, depth: int) -> bool:
        """Whether such a product is like one that was measured."""
        sizes = np.array([rows, columns, depth, rows * columns * depth], np.float64)
        inside = (sizes * MARGIN >= self.least) & (sizes <= self.most * MARGIN)
        return bool(inside.all())

    def factors(self, matrix: Array) -> Array:
        return np.exp(np.clip(self.trees.predict(matrix), -self.limit, self.limit))


@cache
def shipped_correction(leaf: str) -> Correction:
    """The correction of a leaf, read once."""
    folder = resources.files("whet.schedule.families.gpu_contraction")
    return read_correction(folder.joinpath("corrections", f"{leaf}.txt").read_text())


def read_correction(text: str) -> Correction:
    """A correction as text: `least`, `most`, `limit`, `columns`, and a line for every tree.

    least 49 64 64 3211264
    most 12544 3072 4608 301989888
    limit 0.25
    columns each stages
    tree each<=1.5 -0.02 stages<=2.5 0.07 0.01
    """
    lines = [line.partition(" ") for line in text.splitlines()]
    given = {key: rest.split() for key, _, rest in lines if key != "tree"}
    complete = given.keys() == {"least", "most", "limit", "columns"}
    check(complete, "WH2122", "a correction has other lines than it should")
    least, most, limit = (_numbers(given[name]) for name in ("least", "most", "limit"))
    fits = (len(least), len(most), len(limit)) == (4, 4, 1)
    check(fits, "WH2122", "a correction has more or fewer numbers than it should")
    trees = read_trees(given["columns"], [rest for key, _, rest in lines if key == "tree"])
    return Correction(trees, least, most, float(limit[0]))


def _numbers(words: list[str]) -> Array:
    try:
        return np.array([float(word) for word in words])
    except ValueError:
        fail("WH2122", "a correction has something else where a number should be")


def corrected(
    total: Array, form: GpuContraction, work: Work, law: Law, target: GpuTarget, holes: Population
) -> Array:
    """The law's estimates of a task's candidates, corrected where trees know about such tasks."""
    c, correction = form.contraction, shipped_correction(form.leaf.name)
    measured = target.generation == GENERATION and c.batch == 1 and form.dtype.itemsize == 4
    if not measured or not correction.knows(c.rows, c.columns, form.depth):
        return total
    columns = columns_of(total, work, law, target, holes, np.asarray(c.rows))
    matrix = np.stack([columns[name] for name in correction.trees.columns], axis=1)
    return total * correction.factors(matrix)


def columns_of(
    total: Array, work: Work, law: Law, target: GpuTarget, holes: Population, rows: Array
) -> dict[str, Array]:
    """What trees may ask about candidates that the law expects to take so long."""
    bm, bn, tm, tn = (holes[name] for name in ("bm", "bn", "tm", "tn"))
    stages, splits, steps = holes["stages"], holes["splits"], work.steps
    each, beside = busiest(work.blocks, work.cluster, target), blocks_beside(work, target)
    waves, present = -(-each // beside), np.minimum(each, beside)
    step = step_of(work, law, target, holes)
    busy = step.busy(law, work.threads, present)
    found = {
        "tile": np.log2(bm * bn),
        "tile_shape": np.log2(bm / bn),
        "inner": np.log2(tm * tn),
        "inner_shape": np.log2(tm / tn),
        "row_bytes": work.stage_bytes / (bm + bn),
        "stages": stages,
        "splits": splits,
        "blocks": np.log2(work.blocks),
        "each": each,
        "beside": beside,
        "full": each / beside,
        "last": (each - (waves - 1) * beside) / beside,
        "even": work.blocks / (each * target.processors),
        "room": np.minimum(beside, 2 * each) / each,
        "steps": np.log2(steps),
        "ring": (stages - 1) / steps,
        "shared": work.shared / 1024,
        "warps": present * work.threads / (WARP * SCHEDULERS),
        "under_way": np.log2((stages - 1) * work.stage_bytes * present),
        "bound": np.log2(busy / step.bytes),
        "starting": (law.start + law.wave * waves) / total,
        "waiting": steps * waves * step.waiting / total,
        "working": steps * each * busy / total,
        "outside": -(-rows // bm) * bm / rows,
        "early": work.early,
    }
    return {name: np.asarray(column, np.float64) for name, column in found.items()}
