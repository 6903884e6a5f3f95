"""Tasks in double precision: the yardstick for the error of kernels.

y[i] = f16(sum(f32(x[i, k]) * f32(w[k])))   ->   y[i] = sum(x[i, k] * w[k]), all of it in f64
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from whet.core.dtypes import f64
from whet.core.precision import STRICT
from whet.core.types import Array
from whet.ir.affine import rebuild
from whet.ir.expr import Binary, Call, Cast, Const, Expr, Read, Reduce, Reinterpret, cast
from whet.ir.functions import INFIX
from whet.ir.tensor import Compute, Placeholder, Tensor, stages, subexpressions
from whet.tasks.products import evaluate_fast

TOLERANCES = {"f64": 1e-12, "f32": 1e-5, "tf32": 2e-3, "f16": 2e-3, "bf16": 1.6e-2}
"""Errors relative to the norm of all results that rounding explains, by what is rounded to: a type,
or the precision that factors of products have."""
_JUMPING = frozenset({"sign", "floor", "ceil", "round", "trunc", "truncdiv", "truncmod"})
_JUMPING_INFIX = frozenset({"mod", "floordiv"})


class _Jumps(Exception):  # noqa: N818 - no error: there is no yardstick
    """A result that jumps where its arguments hardly change."""


def tolerance_of(outputs: Sequence[Tensor], precision: str = STRICT) -> float:
    """The error that the coarsest type on the way to the outputs explains, or the precision of
    products: that some round their factors is said by kernels, and not by tasks."""
    roundings = {t.dtype.name for t in stages(outputs) if t.dtype.is_float}
    for stage in stages(outputs):
        if isinstance(stage, Compute):
            roundings |= {e.dtype.name for e in subexpressions(stage.body) if e.dtype.is_float}
    explained = max((TOLERANCES.get(name, 1.0) for name in roundings), default=0.0)
    return max(explained, TOLERANCES.get(precision, 0.0)) if roundings else explained


def evaluate_precisely(
    outputs: Sequence[Tensor], inputs: Mapping[Tensor, Array]
) -> tuple[Array, ...] | None:
    """The outputs with all that is rounded carried in f64.

    None where a rounding error may change a result by any amount: at comparisons of what was
    rounded, its integer part, or its bits.
    """
    made: dict[Tensor, Tensor] = {}
    arrays: dict[Tensor, Array] = {}
    try:
        for t in stages(outputs):
            if isinstance(t, Compute):
                made[t] = Compute(t.name, t.axes, _widened(t.body, made))
            else:
                wide = t.dtype.is_float
                made[t] = Placeholder(t.name, t.shape, f64 if wide else t.dtype)
                arrays[made[t]] = inputs[t].astype(np.float64) if wide else inputs[t]
    except _Jumps:
        return None
    return evaluate_fast([made[t] for t in outputs], arrays)


def _widened(body: Expr, tensors: Mapping[Tensor, Tensor]) -> Expr:
    memo: dict[Expr, Expr] = {}

    def visit(e: Expr) -> Expr:
        if e not in memo:
            memo[e] = change(e)
        return memo[e]

    def change(e: Expr) -> Expr:
        if _jumps(e):
            raise _Jumps
        match e:
            case Const(value=value) if e.dtype.is_float:
                return Const(value, f64)
            case Read(tensor=tensor, indices=indices):
                return Read(tensors[tensor], tuple(map(visit, indices)))
            case Cast(value=value) if e.dtype.is_float:
                inner = visit(value)
                return inner if inner.dtype == f64 else cast(inner, f64)
        return rebuild(e, map(visit, e.children()))

    return visit(body)


def _jumps(e: Expr) -> bool:
    if not any(child.dtype.is_float for child in e.children()):
        return isinstance(e, Reinterpret) and e.dtype.is_float
    match e:
        case Binary(op=op):
            return INFIX[op].gives_bool or op in _JUMPING_INFIX
        case Call(name=name):
            return name in _JUMPING
        case Cast():
            return not e.dtype.is_float
        case Reduce(kind=kind):
            return kind.startswith("arg")
    return isinstance(e, Reinterpret)
