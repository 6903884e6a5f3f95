"""Prices of attention with a running maximum, for a whole population at once.

As for attention whose rows are there at once (`gpu_attention.price`), but the stages of a row are
gone through for every tile of keys, and results are scaled for each.
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
from whet.schedule.families.gpu_attention.price import products_ns
from whet.schedule.families.gpu_attention.resources import threads_of, width_of
from whet.schedule.families.gpu_attention.space import blocks_of
from whet.schedule.families.gpu_contraction.estimate import SCHEDULERS, Work, in_waves
from whet.schedule.families.gpu_contraction.law import LAWS
from whet.schedule.families.gpu_reduce.price import BARRIER_NS, meeting_ns
from whet.schedule.families.gpu_rows.price import row_operations
from whet.schedule.families.gpu_running.match import RunningAttention
from whet.schedule.families.gpu_running.space import (
    registers_of_running,
    shared_bytes,
    steps_of,
)
from whet.schedule.program.triggers import AT_END, NEVER
from whet.schedule.space.sketch import Population

MEETINGS = 2
"""Reductions of a row in every tile: its maximum and its sum."""


def running_costs(form: RunningAttention, target: GpuTarget, holes: Population) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    a = form.attention
    law, clock = LAWS[a.leaf.name], target.clock_ghz / MEASURED_GHZ
    bm, bn, steps, width = holes["bm"], holes["bn"], steps_of(form, holes), width_of(holes)
    threads = threads_of(a, holes)
    scores = products_ns(a, holes["tm"], holes["tn"], bm * bn * a.padded_depth)
    results = products_ns(a, holes["tm2"], holes["tn2"], bm * bn * width)
    keys = bn * a.padded_depth * a.keys.dtype.itemsize
    values = bn * width * a.values.dtype.itemsize
    queries = bm * a.padded_depth * a.queries.dtype.itemsize
    near = law.near * clock
    waiting = law.step + law.arrival / (2 * holes["stages"] - 2)
    finish = law.finish * bm * width / 1000 if a.leaf.is_matrix else 0.0
    once, _ = row_operations(a.rows)
    elements = bn * bm // threads
    scaled = holes["tm2"] * holes["tn2"] // a.leaf.lanes

    def wave(present: Array) -> Array:
        """So many blocks that share a processor."""
        warps = present * threads / WARP
        felt = (1 + law.hidden / (warps / SCHEDULERS)) / clock
        busy = np.maximum(scores * felt, keys / near) + np.maximum(results * felt, values / near)
        issued = np.maximum(np.ceil(warps / SCHEDULERS), ROW_ISSUE_CYCLES)
        rows = issued * (elements * once + scaled) / target.clock_ghz
        rows = rows + BARRIER_NS["block"] + MEETINGS * meeting_ns(threads // bm, target)
        each = 2 * waiting + present * busy + rows
        return np.asarray(law.wave + steps * each + present * (queries / near + finish))

    work = Work(
        blocks=blocks_of(a, holes),
        cluster=np.ones(len(bm), np.int64),
        threads=threads,
        shared=shared_bytes(form, holes),
        registers=registers_of_running(form, holes),
        steps=2 * steps,
        stage_bytes=np.maximum(keys, values),
        far_bytes=np.full(len(bm), float(a.task.constant_bytes)),
        result_bytes=np.full(len(bm), sum(t.type.nbytes for t in a.task.outputs)),
        early=target.has_dependent_launch & (holes["trigger"] != NEVER),
    )
    late = TRIGGER_NS * (holes["trigger"] == AT_END)
    return np.asarray(FUSED_ATTENTION * in_waves(work, law, target, wave) + late)
