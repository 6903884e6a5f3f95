"""ONNX reductions, arg-reductions and running sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whet.core.dtypes import f64
from whet.frontend.onnx.mapping import Context, maps, normalized_axis
from whet.graph.build import GraphBuilder
from whet.graph.graph import Value
from whet.ops.arithmetic import Abs, Add, Exp, Log, Mul, Sqrt, Sub
from whet.ops.cumulative import CumProd, CumSum
from whet.ops.logic import IsInf, Where
from whet.ops.movement import Reshape
from whet.ops.reduce import (
    ArgMax,
    ArgMin,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    reduced_shape,
)
from whet.ops.shared.precision import converted, scalar, widened

Axes = tuple[int, ...]
AXES_BECAME_INPUT = {"ReduceSum": 13}
"""Where `axes` is an input since another operator set than 18."""


def _axes(c: Context) -> Axes:
    """The axes to reduce, ascending; they were an attribute before they became an input."""
    rank = c.type(0).rank
    if c.opset >= AXES_BECAME_INPUT.get(c.op_type, 18):
        given = () if c.optional(1) is None else c.const_ints(1)
    else:
        given = tuple(c.attr("axes", ()))
    if not given and not c.attr("noop_with_empty_axes", 0):
        return tuple(range(rank))
    return tuple(sorted({normalized_axis(a, rank) for a in given}))


# A composite reduction is computed in the compute type throughout and rounded once.
def _l1(b: GraphBuilder, x: Value, axes: Axes, keepdims: bool) -> Value:
    return b.one(ReduceSum(axes, keepdims), b.one(Abs(), x))


def _sum_square(b: GraphBuilder, x: Value, axes: Axes, keepdims: bool) -> Value:
    return b.one(ReduceSum(axes, keepdims), b.one(Mul(), x, x))


def _l2(b: GraphBuilder, x: Value, axes: Axes, keepdims: bool) -> Value:
    return b.one(Sqrt(), _sum_square(b, x, axes, keepdims))


def _log_sum(b: GraphBuilder, x: Value, axes: Axes, keepdims: bool) -> Value:
    return b.one(Log(), b.one(ReduceSum(axes, keepdims), x))


def _log_sum_exp(b: GraphBuilder, x: Value, axes: Axes, keepdims: bool) -> Value:
    """log(sum(exp(x - peak))) + peak; an infinite peak is not subtracted, inf - inf is NaN."""
    peak = b.one(ReduceMax(axes, keepdims=True), x)
    peak = b.one(Where(), b.one(IsInf(), peak), scalar(b, 0, x), peak)
    total = b.one(ReduceSum(axes, keepdims), b.one(Exp(), b.one(Sub(), x, peak)))
    shape = reduced_shape(x.tensor_type.shape, axes, keepdims)
    return b.one(Add(), b.one(Log(), total), b.one(Reshape(shape), peak))


COMPOSITE: dict[str, Callable[[GraphBuilder, Value, Axes, bool], Value]] = {
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": _sum_square,
}
SIMPLE = {
    "ReduceSum": ReduceSum,
    "ReduceMean": ReduceMean,
    "ReduceMax": ReduceMax,
    "ReduceMin": ReduceMin,
    "ReduceProd": ReduceProd,
}


@maps(*SIMPLE)
def simple_reduction(c: Context) -> Value:
    return c(SIMPLE[c.op_type](_axes(c), bool(c.attr("keepdims", 1))), c.input(0))


@maps(*COMPOSITE)
def composite_reduction(c: Context) -> Value:
    x, dtype = c.input(0), c.type(0).dtype
    has_roots = c.op_type not in ("ReduceL1", "ReduceSumSquare")
    wide = converted(c.builder, x, f64) if dtype.is_integer and has_roots else widened(c.builder, x)
    result = COMPOSITE[c.op_type](c.builder, wide, _axes(c), bool(c.attr("keepdims", 1)))
    return converted(c.builder, result, dtype)


@maps("ArgMax", "ArgMin")
def arg_reduction(c: Context) -> Value:
    op = ArgMax if c.op_type == "ArgMax" else ArgMin
    axis = normalized_axis(c.attr("axis", 0), c.type(0).rank)
    last = bool(c.attr("select_last_index", 0))
    return c(op(axis, bool(c.attr("keepdims", 1)), last), c.input(0))


@maps("CumSum", "CumProd")
def running(c: Context) -> Value:
    op = CumSum if c.op_type == "CumSum" else CumProd
    axis = normalized_axis(int(np.ravel(c.const(1))[0]), c.type(0).rank)
    return c(op(axis, bool(c.attr("exclusive", 0)), bool(c.attr("reverse", 0))), c.input(0))
