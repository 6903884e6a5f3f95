"""The sketches that come with whet, in the order in which tasks are offered to them."""

from __future__ import annotations

from typing import Any

from whet.schedule.derive.sketch import Derived
from whet.schedule.families.attention.sketch import ATTENTION
from whet.schedule.families.contraction.sketch import CONTRACTION, DIVIDED, FOLDED, TURNED
from whet.schedule.families.dots.sketch import DOTS
from whet.schedule.families.gpu_arg.sketch import GpuArgSketch
from whet.schedule.families.gpu_attention.sketch import GPU_ATTENTION
from whet.schedule.families.gpu_contraction.sketch import (
    GPU_FFMA,
    GPU_FP32X3,
    GPU_MMA,
    GPU_TF32,
)
from whet.schedule.families.gpu_reduce.sketch import GpuReduceSketch
from whet.schedule.families.gpu_rows.sketch import GpuRowsSketch
from whet.schedule.families.gpu_running.sketch import GPU_RUNNING_ATTENTION
from whet.schedule.families.gpu_spatial.sketch import GpuSpatialSketch
from whet.schedule.families.gpu_turned.sketch import GpuTurnedSketch
from whet.schedule.families.parts.sketch import PARTS
from whet.schedule.families.planar.sketch import PLANAR
from whet.schedule.families.rows.sketch import ROWS
from whet.schedule.families.slabs.sketch import SLABS
from whet.schedule.families.sliding.sketch import SLIDING
from whet.schedule.families.spatial.sketch import ACROSS, GROUPS, SPATIAL
from whet.schedule.families.staged.sketch import STAGED
from whet.schedule.families.sweeps.sketch import SWEEPS
from whet.schedule.families.transposed.sketch import TRANSPOSED
from whet.schedule.families.winograd.sketch import WINOGRAD
from whet.schedule.space.sketch import Sketch

OWN_SKETCHES: tuple[Sketch[Any, Any], ...] = (
    CONTRACTION, TURNED, DIVIDED, FOLDED, SLABS, WINOGRAD, SPATIAL, GROUPS, ACROSS, STAGED, SLIDING,
    PLANAR, ROWS, TRANSPOSED, ATTENTION, DOTS, SWEEPS, *PARTS, Derived(),
    GPU_MMA, GPU_TF32, GPU_FP32X3, GPU_FFMA, *GPU_ATTENTION, *GPU_RUNNING_ATTENTION,
    GpuRowsSketch(), GpuReduceSketch(), GpuArgSketch(), GpuSpatialSketch(), GpuTurnedSketch(),
)  # fmt: skip
"""Of equal prices the first one wins."""
