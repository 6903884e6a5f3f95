"""Guards: reads that count only inside their tensor, select(0 <= i and i < n, x[i], 0)."""

from __future__ import annotations

import math

from whet.ir.expr import Binary, Const, Expr, Read, Select
from whet.ir.tensor import Placeholder, subexpressions


def is_guard(e: Expr) -> bool:
    """True for select(condition, value, 0)."""
    return isinstance(e, Select) and isinstance(e.other, Const) and e.other.value == 0


def conjuncts(e: Expr) -> list[Expr]:
    """The conditions that all must hold for e to hold."""
    if isinstance(e, Binary) and e.op == "and":
        return conjuncts(e.left) + conjuncts(e.right)
    return [e]


def is_bounds_check(e: Expr, read: Read) -> bool:
    """0 <= index or index < extent, for one of the read's own indices."""
    if not isinstance(e, Binary):
        return False
    if e.op == "le" and isinstance(e.left, Const) and e.left.value == 0:
        return e.right in read.indices
    if e.op == "lt" and isinstance(e.right, Const):
        return any(
            e.left is index and int(e.right.value) == extent
            for index, extent in zip(read.indices, read.tensor.shape)
        )
    return False


def zero_annihilates(e: Expr) -> bool:
    """Whether zero times what the expression reads is zero, so that it may be left out.

    Not where constants hold NaN or infinities; what a model computes is taken to be finite.
    """
    for part in subexpressions(e):
        match part:
            case Read(tensor=Placeholder(finite=False)):
                return False
            case Const(value=float(value)) if not math.isfinite(value):
                return False
    return True
