"""Attention whose rows need not be there at once: exponentials by a maximum that may still grow.

    m[l] = max(s[l, :]);  e[l, k] = exp(s[l, k] - m[l]);  d[l] = sum(e[l, :])
    y[l] = sum(e[l, k] * g(d[l]) * v[k] for k)

A block goes over keys tile by tile.  When the maximum of a row grows from m to n, all that was
summed up is made smaller by exp(m - n), because exp(s - n) = exp(s - m) * exp(m - n); and g(d) is a
factor of the whole sum, so that it waits for the end.  (Online softmax: Milakov and Gimelshein,
2018; FlashAttention: Dao et al., 2022.)

    for each tile of keys:
      scores = queries * keys
      n = max(m, max(scores));  f = exp(m - n);  weights = exp(scores - n)
      d = d * f + sum(weights);  m = n
      results = results * f + weights * values
    results * g(d)

Nothing asks for a softmax: this is found in the stages of a row, whatever the score is computed
from and whatever follows the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.core.dtypes import f32
from whet.ir.expr import Binary, Call, Cast, Expr, Read, Reduce, call, const
from whet.ir.tensor import subexpressions
from whet.schedule.families.gpu_attention.match import GpuAttention, find_gpu_attention
from whet.schedule.families.gpu_contraction.match import Leaf
from whet.schedule.families.gpu_rows.match import RowStage
from whet.schedule.program.access import map_expr
from whet.tasks.task import Task

EXPONENTIALS = ("exp", "exp_near")


@dataclass(frozen=True, eq=False)
class RunningAttention:
    """Attention, and the parts of its rows."""

    attention: GpuAttention
    exponent: Expr
    """What exponentials are taken of, over the sum of a score and the axes of rows."""
    exponential: str
    """The function: precise, or near."""
    power: Expr
    """What stands for an exponential in `stored`."""
    stored: Expr
    """A weight without its factor, as the second product takes it."""
    divisor: Expr
    """What stands for the sum of a row's exponentials in `factor`."""
    factor: Expr

    def exp(self, x: Expr) -> Expr:
        return call(self.exponential, x)


def find_running_attention(task: Task, leaf: Leaf) -> RunningAttention | None:
    """The task's attention, if a running maximum gives its results."""
    attention = find_gpu_attention(task, leaf)
    if attention is None:
        return None
    stages = attention.rows.stages
    if [s.is_line for s in stages] != [True, False, True, False, True]:
        return None
    score, top, power, divisor, weight = stages
    of_score, of_top, of_power, of_divisor, _ = (Read(s.mark, ()) for s in stages)
    exponent = _reduced(top, "max")
    exponential = _exponential(power, exponent, of_top)
    if exponent is None or exponential is None or _reduced(divisor, "sum") != of_power:
        return None
    found = _weighted(weight.body, of_power)
    if found is None:
        return None
    product, factor = found
    known = map_expr(exponent, lambda e: score.body if e == of_score else None)
    if known.dtype is not f32 or {of_score, of_top, of_power} & set(subexpressions(factor)):
        return None
    stored = map_expr(weight.body, lambda e: of_power if e is product else None)
    return RunningAttention(attention, known, exponential, of_power, stored, of_divisor, factor)


def _reduced(stage: RowStage, kind: str) -> Expr | None:
    """What a stage reduces, if it is nothing but a reduction of this kind."""
    body = stage.body
    return body.value if isinstance(body, Reduce) and body.kind == kind else None


def _exponential(stage: RowStage, exponent: Expr | None, top: Expr) -> str | None:
    """The function, if the stage is that of the exponent's distance from the maximum."""
    match stage.body:
        case Call(name=name, args=(Binary(op="sub", left=left, right=right),)):
            if name in EXPONENTIALS and left == exponent and right == top:
                return name
    return None


def _weighted(body: Expr, power: Expr) -> tuple[Expr, Expr] | None:
    """The product of an exponential within a weight, and its factor; None if it is none, or
    something else is done to it than to store it in another type.

    f16(e * (1 / d))  ->  e * (1 / d), 1 / d
    """
    while isinstance(body, Cast) or (isinstance(body, Call) and body.name == "tf32"):
        body = body.value if isinstance(body, Cast) else body.args[0]
    match body:
        case Binary(op="mul", left=left, right=right):
            if left == power:
                return body, right
            if right == power:
                return body, left
        case Binary(op="div", left=left, right=right) if left == power:
            return body, const(1.0, right.dtype) / right
    return None
