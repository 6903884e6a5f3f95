"""Prices of attention on GPUs, for a whole population at once.

A block takes as long as the kernels of its two products would, whose laws are those of
contractions (`gpu_contraction.estimate`), but it starts once, and waits for its first bytes once;
between them the threads of a row go through its stages.
"""

from __future__ import annotations

import numpy as np

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ir.threads import WARP
from whet.schedule.cost.numbers.gpus import (
    FUSED_ATTENTION,
    MEASURED_GHZ,
    ROW_ISSUE_CYCLES,
    TRIGGER_NS,
)
from whet.schedule.families.gpu_attention.match import GpuAttention
from whet.schedule.families.gpu_attention.resources import (
    lanes_of,
    registers_of_block,
    share_of,
    shared_bytes,
    steps_of,
    threads_of,
    width_of,
)
from whet.schedule.families.gpu_attention.space import blocks_of
from whet.schedule.families.gpu_contraction.estimate import SCHEDULERS, Work, in_waves
from whet.schedule.families.gpu_contraction.law import LAWS
from whet.schedule.families.gpu_reduce.price import BARRIER_NS, meeting_ns
from whet.schedule.families.gpu_rows.loads import KEPT_LIMIT
from whet.schedule.families.gpu_rows.price import row_operations
from whet.schedule.program.triggers import AT_END, NEVER
from whet.schedule.space.sketch import Population

BANK_BYTES = 128
"""What shared memory gives in a cycle: sums of each further part are read when all are there."""


def attention_costs(form: GpuAttention, target: GpuTarget, holes: Population) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    law, clock = LAWS[form.leaf.name], target.clock_ghz / MEASURED_GHZ
    bm, bn, steps, width = holes["bm"], holes["bn"], steps_of(form, holes), width_of(holes)
    threads = threads_of(form, holes)
    scores = products_ns(form, holes["tm"], holes["tn"], bm * bn * form.padded_depth)
    results = products_ns(form, holes["tm2"], holes["tn2"], bm * bn * width)
    keys = bn * form.padded_depth * form.keys.dtype.itemsize
    values = bn * width * form.values.dtype.itemsize
    queries = bm * form.padded_depth * form.queries.dtype.itemsize
    near = law.near * clock
    waiting = law.step + law.arrival / (holes["stages"] - 1)
    finish = law.finish * bm * width / 1000 if form.leaf.is_matrix else 0.0
    more = (holes["parts"] - 1) * bm * width * form.second.reduce.dtype.itemsize
    finish = finish + more / BANK_BYTES / target.clock_ghz

    def wave(present: Array) -> Array:
        """So many blocks that share a processor."""
        warps = present * threads / WARP
        felt = (1 + law.hidden / (warps / SCHEDULERS)) / clock
        busy = np.maximum(scores * felt, keys / near) + np.maximum(results * felt, values / near)
        rows = _rows(form, target, holes, warps)
        total = law.wave + steps * (2 * waiting + present * busy) + rows
        return np.asarray(total + present * (queries / near + finish))

    written = sum(t.type.nbytes for t in form.task.outputs)
    work = Work(
        blocks=blocks_of(form, holes),
        cluster=np.ones(len(bm), np.int64),
        threads=threads,
        shared=shared_bytes(form, holes),
        registers=registers_of_block(form, holes),
        steps=2 * steps,
        stage_bytes=np.maximum(keys, values),
        far_bytes=np.full(len(bm), float(form.task.constant_bytes)),
        result_bytes=np.full(len(bm), written),
        early=target.has_dependent_launch & (holes["trigger"] != NEVER),
    )
    late = TRIGGER_NS * (holes["trigger"] == AT_END)
    return np.asarray(FUSED_ATTENTION * in_waves(work, law, target, wave) + late)


def products_ns(form: GpuAttention, tm: Array, tn: Array, products: Array) -> Array:
    """Nanoseconds of so many multiply-adds, and of reading their factors."""
    law = LAWS[form.leaf.name]
    return np.asarray(products / law.rate * (1 + law.reuse * (tm + tn) / (tm * tn)))


def _rows(form: GpuAttention, target: GpuTarget, holes: Population, warps: Array) -> Array:
    """Nanoseconds from the sums of rows to their weights, for so many warps of a processor."""
    share, lanes = share_of(form, holes), lanes_of(form, holes)
    once, again = row_operations(form.rows)
    instructions = share * np.where(share <= KEPT_LIMIT, once, again)
    cycles = np.maximum(np.ceil(warps / SCHEDULERS), ROW_ISSUE_CYCLES) * instructions
    reduces = sum(len(stage.reduces) for stage in form.rows.stages)
    barriers = BARRIER_NS["block"] + reduces * meeting_ns(lanes, target)
    return np.asarray(cycles / target.clock_ghz + barriers)
