"""Inputs to try a task's kernels on, and what they must give.

Values are small integers, so that sums and products of them have no rounding error in whatever
order a kernel takes them: every kernel must then agree to the last bit.  Where a task does more
than add and multiply, or its numbers may grow too large, kernels agree within a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from whet.core.dtypes import DType
from whet.core.errors import WhetError
from whet.core.types import Array, Shape
from whet.ir.expr import Axis, Binary, Call, Cast, Const, Expr, Read, Reduce, Select, elements
from whet.ir.tensor import Compute, Placeholder, Tensor, stages, subexpressions
from whet.tasks.products import evaluate_fast
from whet.tasks.task import Task

LARGEST = 3
"""The largest magnitude of an input."""
INEXACT = 0.25
"""What inputs are multiplied by where results are rounded anyway: exponentials of long sums of
whole numbers would be subnormal, and with these some machines are ten times as slow."""

_MANTISSA_BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}


@dataclass(frozen=True, eq=False)
class Example:
    """Arrays for the inputs and outputs of a task, in their order."""

    inputs: Mapping[Tensor, Array]
    outputs: tuple[Array, ...]
    exact: bool
    """True when the outputs are the same bits in whatever order sums are taken."""


def make_example(task: Task, seed: int = 0) -> Example:
    """Inputs drawn with the seed, and the outputs by the task's definition.

    Functions that most of the drawn numbers have no value for (roots and logarithms of negative
    ones, indices outside) get numbers that they have one for.
    """
    exact = is_exact(task)
    scale = 1.0 if exact else INEXACT
    for low in (-LARGEST, 1):
        rng = np.random.default_rng(seed)
        inputs: dict[Tensor, Array] = {
            t: _scaled(_draw(task, t, low, rng), scale) for t in task.inputs
        }
        try:
            outputs = evaluate_fast(task.outputs, inputs)
        except WhetError:  # an index from an input that lies outside
            continue
        if all(np.mean(_finite(y)) > 0.5 for y in outputs if y.size):
            return Example(inputs, outputs, exact)
    zeros: dict[Tensor, Array] = {t: np.zeros(t.shape, t.dtype.numpy) for t in task.inputs}
    return Example(zeros, evaluate_fast(task.outputs, zeros), exact)


def _scaled(array: Array, scale: float) -> Array:
    if scale == 1.0 or array.dtype.kind in "iub":
        return array
    result: Array = (array * scale).astype(array.dtype)
    return result


def _draw(task: Task, t: Placeholder, low: int, rng: np.random.Generator) -> Array:
    """Values for an input; elements that share a place in memory are equal."""
    if t.dtype.kind != "float":
        low = 0
    high = 1 if t.dtype.kind == "bool" else LARGEST
    strides = task.buffers[t].element_strides
    if not t.type.size or not _overlap(t.shape, strides):
        return rng.integers(low, high + 1, t.shape).astype(t.dtype.numpy)
    steps = [abs(s) * (d - 1) for s, d in zip(strides, t.shape)]
    memory = rng.integers(low, high + 1, sum(steps) + 1).astype(t.dtype.numpy)
    start = sum(step for step, s in zip(steps, strides) if s < 0)
    places = start + sum(
        np.arange(d).reshape([-1 if m == n else 1 for m in range(t.rank)]) * s
        for n, (d, s) in enumerate(zip(t.shape, strides))
    )
    return np.broadcast_to(memory[places], t.shape).copy()


def _overlap(shape: Shape, strides: Shape) -> bool:
    """Whether several elements may lie at the same place."""
    reach = 0
    for stride, extent in sorted((abs(s), d) for s, d in zip(strides, shape) if d > 1):
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False


def _finite(array: Array) -> Array:
    return (
        np.isfinite(array.astype(np.float64)) if array.dtype.kind not in "iub" else array == array
    )


# ---------------------------------------------------------------------------- free of rounding
def is_exact(task: Task) -> bool:
    """True when every number on the way is an integer that its type holds exactly."""
    bounds: dict[Tensor, float] = {}
    for tensor in stages(task.outputs):
        if isinstance(tensor, Compute):
            bounds[tensor] = _bound(tensor.body, bounds)
            floats = {e.dtype for e in subexpressions(tensor.body) if e.dtype.is_float}
            if any(bounds[tensor] > _limit(dtype) for dtype in floats):
                return False
        else:
            bounds[tensor] = LARGEST
    return True


def _limit(dtype: DType) -> float:
    return 2.0 ** _MANTISSA_BITS.get(dtype.name, 0)


def _bound(e: Expr, bounds: Mapping[Tensor, float]) -> float:
    """The largest magnitude that e and what is inside it can have; infinity if it may round."""
    if not e.dtype.is_float:
        # Integers and conditions are as exact as the numbers that they are made from.
        return max((_bound(c, bounds) for c in e.children()), default=0.0)
    match e:
        case Const(value=value):
            return abs(float(value)) if float(value).is_integer() else math.inf
        case Read(tensor=tensor):
            return bounds[tensor]
        case Axis():
            return float(e.extent)
        case Binary(op="add" | "sub", left=left, right=right):
            return _bound(left, bounds) + _bound(right, bounds)
        case Binary(op="mul", left=left, right=right):
            a, b = _bound(left, bounds), _bound(right, bounds)
            return max(a, b, a * b)
        case Call(name="min" | "max" | "abs" | "neg", args=args):
            return max(_bound(a, bounds) for a in args)
        case Select(condition=condition, then=then, other=other):
            return max(_bound(x, bounds) for x in (condition, then, other))
        case Cast(value=value) if value.dtype.is_float:
            return _bound(value, bounds)
        case Reduce(kind="sum", axes=axes, value=value):
            return _bound(value, bounds) * elements(axes)
        case Reduce(kind="max" | "min", value=value):
            return _bound(value, bounds)
    return math.inf
