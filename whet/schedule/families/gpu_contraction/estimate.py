"""The law of contractions on GPUs, for a whole population at once.

At batch one a layer is a matter of latency: a kernel takes the time until its first stage has
come, that of its steps one after the other, and that of adding up the parts of split sums.  A step
is bound by multiply-adds or by bytes from the second cache, whichever are slower for the blocks
that share a processor, and waits for stages on their way; blocks that do not fit beside each other
come in waves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from whet.core.gpu import PORTABLE_CLUSTER, GpuTarget
from whet.core.types import Array
from whet.ir.threads import WARP
from whet.schedule.cost.numbers.gpus import LARGE_CLUSTER, MEASURED_GHZ
from whet.schedule.families.gpu_contraction.law import MEASURED_RESULTS, Law
from whet.schedule.families.gpu_contraction.match import Leaf
from whet.schedule.families.gpu_contraction.placement import blocks_beside, busiest
from whet.schedule.space.sketch import Population

SCHEDULERS = 4
"""Parts of a processor, each of which has warps of its own."""
CALM = 4
"""Blocks of a processor beyond which each takes time of its own."""


@dataclass(frozen=True, eq=False)
class Work:
    """What the law asks about candidates beside their holes, a column each."""

    blocks: Array
    """Blocks of the grid, those of clusters counted one by one."""
    cluster: Array
    """Blocks of a cluster."""
    threads: Array
    shared: Array
    """Bytes of shared memory of a block."""
    registers: Array
    """Registers of a thread."""
    steps: Array
    stage_bytes: Array
    """Bytes that a block brings in one step."""
    far_bytes: Array
    """Bytes that come from memory, once."""
    result_bytes: Array
    """Bytes that all blocks write."""
    early: Array
    """Whether the kernel is launched before the one in front of it has ended, and lets the next one
    in before it ends itself."""


@dataclass(frozen=True, eq=False)
class Step:
    """One step of one block, in nanoseconds."""

    products: Array
    """Multiply-adds and the reads of their factors, with as many warps as one could wish for."""
    bytes: Array
    """The copies of a stage."""
    waiting: Array
    """The barrier, and stages that are still on their way."""

    def busy(self, law: Law, threads: Array, present: Array) -> Array:
        """The time of a block's share in a step, of so many blocks on a processor."""
        warps = present * threads / WARP / SCHEDULERS
        return np.maximum(self.products * (1 + law.hidden / warps), self.bytes)


def step_of(work: Work, law: Law, target: GpuTarget, holes: Population) -> Step:
    clock = target.clock_ghz / MEASURED_GHZ
    bm, bn, tm, tn, bk = (holes[name] for name in ("bm", "bn", "tm", "tn", "bk"))
    reading = 1 + law.reuse * (tm + tn) / (tm * tn)
    return Step(
        bm * bn * bk / (law.rate * clock) * reading,
        work.stage_bytes / (law.near * clock),
        law.step + law.arrival / (holes["stages"] - 1),
    )


def estimate(work: Work, law: Law, leaf: Leaf, target: GpuTarget, holes: Population) -> Array:
    """Nanoseconds of a kernel that is launched behind another one."""
    step = step_of(work, law, target, holes)
    splits = holes["splits"]
    shared = (splits > 1) | leaf.is_matrix
    finish = np.where(shared, law.finish * holes["bm"] * holes["bn"] / 1000, 0.0)

    def wave(present: Array) -> Array:
        """So many blocks that share a processor."""
        busy = present * step.busy(law, work.threads, present)
        return law.wave + work.steps * (step.waiting + busy) + present * finish

    total = in_waves(work, law, target, wave)
    total = total * np.where(splits > PORTABLE_CLUSTER, LARGE_CLUSTER, 1.0)
    return total + np.where(splits > 1, law.split + law.rank * splits, 0.0)


def stores_ns(nbytes: Array, law: Law, target: GpuTarget) -> Array:
    """Nanoseconds of writing results: those of as many as were measured by the law, all others as
    fast as memory takes them."""
    known = np.minimum(nbytes, MEASURED_RESULTS)
    return np.asarray(
        known / (law.store * target.clock_ghz / MEASURED_GHZ) + (nbytes - known) / target.memory_gbs
    )


def in_waves(work: Work, law: Law, target: GpuTarget, wave: Callable[[Array], Array]) -> Array:
    """The time of a kernel, given that of so many of its blocks which share a processor.

    A kernel that is launched early comes where its predecessor leaves room, which is not where it
    would be spread evenly: `Law.spread`.
    """
    each = busiest(work.blocks, work.cluster, target)
    beside = blocks_beside(work, target)
    waves, rest = each // beside, each % beside
    room = np.minimum(beside, 2 * each) - each
    alone = each + law.spread * work.early * np.maximum(room, 0)
    last = wave(np.where(waves > 0, np.maximum(rest, 1), alone))
    total = waves * wave(beside) + np.where(rest > 0, last, 0.0)
    total = total + law.start + law.late * ~work.early
    total = total + work.far_bytes / target.memory_gbs
    total = total + stores_ns(work.result_bytes, law, target)
    return np.asarray(total + law.crowd * np.maximum(each - CALM, 0))
