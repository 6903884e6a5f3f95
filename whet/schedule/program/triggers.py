"""The point at which a kernel allows the next one to be launched: values of the hole `trigger`.

A kernel that is launched early loads its constants while the one before it still runs, but takes
room from it.  Measured inside networks at batch 1, with `AT_START`, `AT_END` and `NEVER` (H200,
2026-11-16): kernels whose threads multiply and add, and those that wait for memory, lose by it
(ResNet-50 620, 589, 534 us; MobileNet-V2 192, 180, 170), those on tensor cores gain (ResNet-50 in
tf32 416, 429, 439; BERT in tf32 773, 824, 857).  Kernels that follow themselves, as when they are
timed one by one, show that only in part, so the choice is made here; a search that times whole
networks may make another for a single kernel, because all values are right for any of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from whet.core.gpu import GpuTarget
from whet.core.target import Target

HOLE = "trigger"
AT_START, AT_END, NEVER = 0, 1, 2
"""At the start, when the sums are complete, or only by ending."""


def matrix_triggers(target: GpuTarget) -> tuple[int, ...]:
    """The values for kernels on tensor cores."""
    return (AT_START, AT_END) if target.has_dependent_launch else (NEVER,)


def other_triggers(holes: Mapping[str, int], target: Target) -> tuple[dict[str, int], ...]:
    """The same candidate with every other value of the hole; none where there is no such hole, or
    kernels are not launched early."""
    values = (AT_START, AT_END, NEVER)
    early = isinstance(target, GpuTarget) and target.has_dependent_launch
    if not early or holes.get(HOLE) not in values:
        return ()
    return tuple({**holes, HOLE: value} for value in values if value != holes[HOLE])
