"""GPUs: launches, blocks, and the second-level cache."""

from __future__ import annotations

from typing import Annotated

from whet.schedule.cost.numbers.origin import H200, chosen, given

BYTES_BETWEEN: Annotated[
    float, "bytes per nanosecond", chosen("bench/gpu.py", "2026-11-16", machine=H200)
] = 3000.0
"""Values that go from kernel to kernel through the second-level cache, written and read: both ways
together it gives 6.6 TB/s."""
FLOOR_NS: Annotated[float, "nanoseconds", chosen("bench/gpu.py", "2026-11-16", machine=H200)] = (
    700.0
)
"""A kernel that does next to nothing: its launch, the first load and the last store."""
LATE_NS: Annotated[float, "nanoseconds", chosen("bench/gpu.py", "2026-11-16", machine=H200)] = 50.0
"""What the launch of the next kernel at the end of this one costs more than at its start."""
BLOCK_NS: Annotated[float, "nanoseconds", chosen("bench/gpu.py", "2026-11-16", machine=H200)] = 0.8
"""The start of a block."""
ROUND_NS: Annotated[float, "nanoseconds", chosen("bench/gpu.py", "2026-11-16", machine=H200)] = 80.0
"""Loads that wait for the loads before them: from the second cache at most, often nearer."""
REFILL_NS: Annotated[
    float, "nanoseconds", chosen("bench/gpu_tasks.py", "2026-11-19", machine=H200)
] = 700.0
"""Loads that wait until a thread has registers for them: found with grouped convolutions of up to
72 terms.  Taken for loads from memory that follow each other, too, which was not measured."""
L2_GBS_PER_PROCESSOR: Annotated[
    float, "bytes per nanosecond", chosen("bench/gpu.py", "2026-11-16", machine=H200)
] = 57.0
"""What a processor takes from the second cache: 7.5 TB/s in all."""
L2_SHARE: Annotated[
    float, "of the second cache", chosen("bench/gpu.py", "2026-11-16", machine=H200)
] = 0.8
"""What it holds of one kernel's bytes from the kernel before."""
FELT_BESIDE: Annotated[float, "of the time", chosen("bench/gpu.py", "2026-11-16", machine=H200)] = (
    0.1
)
"""What is felt of the work that goes on beside the longest."""
WINDOW_NS: Annotated[float, "nanoseconds", chosen("bench/gpu.py", "2026-11-16", machine=H200)] = (
    200.0
)
"""What a kernel that reduces anything takes longer than one that does not, to its first result."""
LARGE_CLUSTER: Annotated[
    float, "of the estimate", chosen("bench/gpu_tasks.py", "2026-11-19", machine=H200)
] = 1.08
"""Clusters of more than 8 blocks: of 38 layers with candidates of both kinds among the first, 31
are faster with smaller clusters, by up to 2.2, and the others slower by at most 3 percent."""
FUSED_ATTENTION: Annotated[
    float, "of the estimate", chosen("bench/gpu_tasks.py", "2026-11-19", machine=H200)
] = 1.33
"""What fused attention takes by what the laws of its two products say: 18 kernels in fp32, for 128
and for 197 tokens, took 1.3 times as long."""
SINGLE_COPIES: Annotated[
    float, "of the estimate", chosen("bench/gpu_tasks.py", "2026-11-19", machine=H200)
] = 1.5
"""What a product on threads takes by its law where the elements of its second factor are copied one
by one: 18 kernels for scores of attention took 1.1 to 2 times as long."""
MEASURED_GHZ: Annotated[
    float,
    "cycles per nanosecond",
    given("the clock of the GPU that the laws were fitted on", "2026-11-16"),
] = 1.98
TRIGGER_NS: Annotated[float, "nanoseconds", chosen("bench/gpu.py", "2026-11-16", machine=H200)] = (
    1.0
)
"""What a trigger at the end costs more: no more than decides between equals."""
MATRIX_PRODUCTS_PER_CYCLE: Annotated[
    float,
    "multiply-adds per cycle",
    given(
        "the peak of a processor of sm_80 in f16; half of it for factors of 32 bits", "2026-11-17"
    ),
] = 1024.0
"""What warps have their matrices multiplied at, at best.  Later generations are hardly faster this
way: their peak is that of instructions of several warps together."""
ROW_ISSUE_CYCLES: Annotated[
    float,
    "cycles",
    chosen(
        "bench/gpu.py",
        "2026-11-17",
        "not measured: what instructions take by their "
        "description, elements of a row not waiting for each other",
        machine=H200,
    ),
] = 2.0
"""An instruction of a warp that has its scheduler for itself, on rows in shared memory."""
