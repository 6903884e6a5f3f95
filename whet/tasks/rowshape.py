"""When stages share rows: the structure behind fused softmax and normalizations."""

from __future__ import annotations

from collections.abc import Sequence

from whet.ir.expr import Read, Reduce, elements
from whet.ir.tensor import Compute, subexpressions

ROW_LIMIT = 1 << 16
"""Elements of a row that is worth keeping in cache between stages."""


def common_rows(found: Sequence[Compute]) -> int | None:
    """The largest number of leading axes that are rows of all stages, or None.

    Every stage has these axes, reads the others only at its own row, and a stage that reduces
    gives one number per row.
    """
    for rank in range(min(len(s.axes) for s in found), -1, -1):
        if all(_fits(stage, found[-1], rank) for stage in found):
            return rank
    return None


def _fits(stage: Compute, last: Compute, rank: int) -> bool:
    if stage.shape[:rank] != last.shape[:rank]:
        return False
    inside = elements(stage.axes[rank:])
    terms = list(subexpressions(stage.body))
    if any(isinstance(e, Reduce) for e in terms):
        if inside != 1:
            return False
    elif inside > ROW_LIMIT:
        return False
    return all(
        index is axis or axis.extent == 1
        for e in terms
        if isinstance(e, Read) and isinstance(e.tensor, Compute)
        for index, axis in zip(e.indices[:rank], stage.axes[:rank])
    )
