"""Whether a NaN in a row reaches everything that comes of the row by itself.

    m = max(s[k] for k)      e[j] = exp(s[j] - m)      t = sum(e[k] for k)      y[j] = e[j] / t

If some s[j] is NaN then e[j] is, so t is, so all of y is, whatever number m is.  A maximum that
need not tell of a NaN is one instruction for each vector, one that must is three.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.ir.expr import Binary, Call, Expr, Read, Reduce
from whet.ir.tensor import Compute, Tensor, subexpressions

_ARITHMETIC = frozenset({"add", "sub", "mul", "div"})
_FUNCTIONS = frozenset({"exp", "log", "neg", "abs", "sqrt", "tanh", "erf", "sigmoid"})


def may_miss_nan(stage: Compute, stages: Sequence[Compute], row_rank: int) -> bool:
    """Whether a stage is an extreme of a line whose NaNs reach all of the last stage anyway."""
    reduce = stage.body
    if not (isinstance(reduce, Reduce) and reduce.kind in ("max", "min")):
        return False
    if not (isinstance(reduce.value, Read) and reduce.dtype.is_float):
        return False
    # A NaN of the line is in the same place of these, and in all places of those.
    here: set[Tensor] = {reduce.value.tensor}
    everywhere: set[Tensor] = set()
    for other in stages:
        if other is stage:
            continue
        felt = _felt(other.body)
        summed = any(isinstance(e, Reduce) for e in subexpressions(other.body))
        is_line = any(a.extent > 1 for a in other.axes[row_rank:])
        if felt & everywhere or (summed and not is_line and felt & here):
            everywhere.add(other)
        elif is_line and felt & here:
            here.add(other)
    return stages[-1] in everywhere


def _felt(e: Expr) -> set[Tensor]:
    """The tensors of which a NaN, where the expression reads it, makes the expression NaN."""
    match e:
        case Read(tensor=tensor):
            return {tensor}
        case Binary(op=op, left=left, right=right) if op in _ARITHMETIC and e.dtype.is_float:
            return _felt(left) | _felt(right)
        case Call(name=name, args=(x,)) if name in _FUNCTIONS and e.dtype.is_float:
            return _felt(x)
        case Reduce(kind="sum" | "prod", value=value):
            return _felt(value)
    return set()
