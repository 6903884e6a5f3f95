"""Prices of contractions on GPUs, for a whole population at once.

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

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ir.threads import WARP
from whet.schedule.cost.numbers.gpus import (
    L2_GBS_PER_PROCESSOR,
    MATRIX_PRODUCTS_PER_CYCLE,
    MEASURED_GHZ,
    TRIGGER_NS,
)
from whet.schedule.families.gpu_contraction.match import GpuContraction, Leaf
from whet.schedule.families.gpu_contraction.resources import registers_of, shared_bytes, threads_of
from whet.schedule.families.gpu_contraction.space import blocks_of
from whet.schedule.program.triggers import AT_END
from whet.schedule.space.sketch import Population

BLOCK_LIMIT = 32
"""Blocks that a processor holds at most."""
SYSTEM_BYTES = 1024
"""Shared memory of a block that the system takes."""
SCHEDULERS = 4
"""Parts of a processor, each of which has warps of its own."""
CALM = 4
"""Blocks of a processor from which on the kernel behind is held up when it is launched early."""


@dataclass(frozen=True)
class Law:
    """The constants of the estimate, in nanoseconds.

    They are fitted to 3240 kernels of every leaf for 27 layers of ResNet-50 and BERT-base,
    measured on an H200 with every kernel launched before the one in front of it had ended.  The fit
    weighs the error of logarithms and how far the first eight candidates of a layer are behind the
    best; terms go together, so that no single one is a measurement.  On layers that it had not
    seen, the first candidate was 13 % (ffma) and 17 % (mma) behind the best, the best of the first
    eight 3.6 % and 0.9 %.
    """

    start: float
    """From the launch to the first bytes, once."""
    wave: float
    """The start of blocks, and of those behind others."""
    step: float
    """A barrier in every step."""
    arrival: float
    """The way of a stage into the ring; stages - 1 are under way at once."""
    rate: float
    """Multiply-adds of a processor in a nanosecond, at best."""
    hidden: float
    """Warps of a scheduler that would hide half of the latency of their instructions."""
    reuse: float
    """Multiply-adds that take as long as reading one number from shared memory."""
    near: float
    """Bytes from the second cache into a processor, in a nanosecond."""
    finish: float
    """For 1000 results of a tile whose sums go through shared memory."""
    split: float
    """The barriers of a cluster."""
    rank: float
    """The sums of every block of a cluster."""
    crowd: float
    """For every block of a processor beyond the first few."""


LAWS = {
    "ffma": Law(
        start=2230, wave=270, step=214, arrival=18, rate=306, hidden=1.12, reuse=1.21, near=131,
        finish=64, split=574, rank=100, crowd=25,
    ),
    "mma": Law(
        start=1280, wave=1250, step=83, arrival=300, rate=2990, hidden=0.22, reuse=1.86, near=197,
        finish=24, split=175, rank=255, crowd=144,
    ),
    "tf32": Law(
        start=1590, wave=1850, step=63, arrival=384, rate=4480, hidden=1.15, reuse=0.26, near=283,
        finish=14, split=445, rank=240, crowd=127,
    ),
    "fp32x3": Law(
        start=4090, wave=1540, step=99, arrival=357, rate=732, hidden=0.28, reuse=3.15, near=102,
        finish=13, split=131, rank=146, crowd=0,
    ),
}  # fmt: skip
"""By the name of the leaf."""


@dataclass(frozen=True, eq=False)
class Work:
    """What the estimate asks about candidates beside their holes, a column each."""

    blocks: Array
    """Blocks of the grid, those of clusters counted one by one."""
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


def gpu_costs(form: GpuContraction, target: GpuTarget, holes: Population) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    c, bk = form.contraction, holes["bk"]
    a, b = form.a.dtype.itemsize, form.b.dtype.itemsize
    work = Work(
        blocks_of(form, holes) * holes["splits"],
        threads_of(form.leaf, holes),
        shared_bytes(form, holes),
        registers_of(form.leaf, form.dtype.itemsize, holes),
        -(-form.depth // (bk * holes["splits"])),
        (holes["bm"] * a + holes["bn"] * b) * bk,
        np.full(len(bk), c.batch * c.columns * form.depth * b),
    )
    expected = np.maximum(
        estimate(work, form.leaf, target, holes), roof(work, form.leaf, a, target, holes)
    )
    return expected + TRIGGER_NS * (holes["trigger"] == AT_END)


def roof(work: Work, leaf: Leaf, itemsize: int, target: GpuTarget, holes: Population) -> Array:
    """What the bytes and products of all blocks take at least.

    The law was fitted to layers of batch one, which are far from it, and says nothing of large
    ones: there its rates would be beyond what processors have.
    """
    steps = work.blocks * work.steps
    by_bytes = steps * work.stage_bytes / (L2_GBS_PER_PROCESSOR * target.processors)
    if not leaf.is_matrix:
        return by_bytes
    products = steps * holes["bm"] * holes["bn"] * holes["bk"] * leaf.products
    rate = MATRIX_PRODUCTS_PER_CYCLE * 2 / itemsize * target.clock_ghz * target.processors
    return np.maximum(by_bytes, products / rate)


def estimate(work: Work, leaf: Leaf, target: GpuTarget, holes: Population) -> Array:
    """The time of a kernel that is launched behind another one."""
    law, clock = LAWS[leaf.name], target.clock_ghz / MEASURED_GHZ
    bm, bn, tm, tn, bk = (holes[name] for name in ("bm", "bn", "tm", "tn", "bk"))
    splits = holes["splits"]
    reading = 1 + law.reuse * (tm + tn) / (tm * tn)
    products = bm * bn * bk / (law.rate * clock) * reading
    bytes_ns = work.stage_bytes / (law.near * clock)
    waiting = law.step + law.arrival / (holes["stages"] - 1)
    shared = (splits > 1) | leaf.is_matrix
    finish = np.where(shared, law.finish * bm * bn / 1000, 0.0)

    def wave(present: Array) -> Array:
        """So many blocks that share a processor."""
        warps = present * work.threads / WARP / SCHEDULERS
        busy = present * np.maximum(products * (1 + law.hidden / warps), bytes_ns)
        return law.wave + work.steps * (waiting + busy) + present * finish

    total = in_waves(work, law, target, wave)
    return total + np.where(splits > 1, law.split + law.rank * splits, 0.0)


def in_waves(work: Work, law: Law, target: GpuTarget, wave: Callable[[Array], Array]) -> Array:
    """The time of a kernel, given that of so many of its blocks which share a processor."""
    each = -(-work.blocks // target.processors)
    beside = blocks_beside(work, target)
    waves, rest = each // beside, each % beside
    total = waves * wave(beside) + np.where(rest > 0, wave(np.maximum(rest, 1)), 0.0)
    total = total + law.start + work.far_bytes / target.memory_gbs
    return np.asarray(total + law.crowd * np.maximum(each - CALM, 0))


def blocks_beside(work: Work, target: GpuTarget) -> Array:
    """Blocks that a processor holds at once."""
    by_shared = target.shared_bytes_per_processor // (work.shared + SYSTEM_BYTES)
    by_registers = target.registers_per_processor // (work.registers * work.threads)
    by_threads = target.threads_per_processor // work.threads
    held = np.minimum(np.minimum(by_shared, by_registers), np.minimum(by_threads, BLOCK_LIMIT))
    return np.maximum(held, 1)
