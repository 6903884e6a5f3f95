"""Prices of contractions on GPUs, for a whole population at once: the law, corrected by what was
learned from measured kernels."""

from __future__ import annotations

import numpy as np

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.schedule.cost.numbers.gpus import SINGLE_COPIES, TRIGGER_NS
from whet.schedule.families.gpu_contraction.correction import corrected
from whet.schedule.families.gpu_contraction.estimate import Work, estimate
from whet.schedule.families.gpu_contraction.law import LAWS
from whet.schedule.families.gpu_contraction.match import GpuContraction
from whet.schedule.families.gpu_contraction.place import place_of, run_of
from whet.schedule.families.gpu_contraction.resources import registers_of, shared_bytes, threads_of
from whet.schedule.families.gpu_contraction.roof import roof
from whet.schedule.families.gpu_contraction.space import blocks_of
from whet.schedule.program.triggers import AT_END, NEVER
from whet.schedule.space.sketch import Population


def gpu_costs(form: GpuContraction, target: GpuTarget, holes: Population) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    law, work = LAWS[form.leaf.name], work_of(form, target, holes)
    total = estimate(work, law, form.leaf, target, holes)
    total = corrected(total, form, work, law, target, holes)
    total = total * (SINGLE_COPIES if copied_singly(form) else 1.0)
    total = np.maximum(total, roof(work, form.leaf, form.a.dtype.itemsize, target, holes))
    return total + TRIGGER_NS * (holes["trigger"] == AT_END)


def copied_singly(form: GpuContraction) -> bool:
    """Whether neighbours in the ring of the second factor are apart in memory."""
    if form.b_is_constant or form.leaf.is_matrix:
        return False
    place = place_of(form.b, form.task)
    return place is not None and run_of(place, form.contraction.vector) == 1


def work_of(form: GpuContraction, target: GpuTarget, holes: Population) -> Work:
    """What the candidates of a task do."""
    c, bk, splits = form.contraction, holes["bk"], holes["splits"]
    a, b = form.a.dtype.itemsize, form.b.dtype.itemsize
    weights = c.batch * c.columns * form.depth * b
    results = sum(t.type.nbytes for t in form.task.outputs)
    return Work(
        blocks=blocks_of(form, holes) * splits,
        cluster=splits,
        threads=threads_of(form.leaf, holes),
        shared=shared_bytes(form, holes),
        registers=registers_of(form.leaf, form.dtype.itemsize, holes),
        steps=-(-form.depth // (bk * splits)),
        stage_bytes=(holes["bm"] * a + holes["bn"] * b) * bk,
        far_bytes=np.full(len(bk), weights),
        result_bytes=np.full(len(bk), results),
        early=target.has_dependent_launch & (holes["trigger"] != NEVER),
    )
