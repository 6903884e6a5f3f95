"""Small local rewrites: the table behind `simplify`.

A rule is a function of one operator application that gives the values to use instead, or None
where it does not apply; its docstring shows before -> after.  Every rule removes a node or
replaces it by a cheaper one, so applying rules ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Node, Result, Value
from whet.ops.arithmetic import Mul, Reciprocal
from whet.ops.base import Numeric
from whet.ops.movement import Concat, Expand, Reshape, Slice, Transpose

Inputs = tuple[Value, ...]
Rewrite = Callable[[GraphBuilder, Any, Inputs], Value | Inputs | None]
"""(builder, operator, inputs) to the values that replace the results; the operator is one of
those that the rule is registered for, so its attributes are known."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rewrite, with what it preserves: `exact` keeps all bits, `real` the real numbers."""

    name: str
    numeric: Numeric
    rewrite: Rewrite


RULES: dict[str, tuple[Rule, ...]] = {}
"""Operator name to the rules that may apply to it, in the order in which they are tried."""


def rule(*operators: str, numeric: Numeric = "exact") -> Callable[[Rewrite], Rewrite]:
    """Decorator: registers a rewrite for these operators."""

    def register(rewrite: Rewrite) -> Rewrite:
        for name in operators:
            RULES[name] = (*RULES.get(name, ()), Rule(rewrite.__name__, numeric, rewrite))
        return rewrite

    return register


def producer(value: Value, name: str) -> Node | None:
    """The node that made the value, if it is of the named operator."""
    return value.node if isinstance(value, Result) and value.node.op.name == name else None


def is_filled_with(value: Value, number: float) -> bool:
    """Whether the value is a constant whose elements are there and all equal the number."""
    if not isinstance(value, Constant) or not value.is_made or not value.array.size:
        return False
    # Most constants are weights, which the first element rules out.
    return bool(value.array.flat[0] == number and np.all(value.array == number))


def _unless_widened(kept: Value, *others: Value) -> Value | None:
    """The value, unless broadcasting with the others would have made it larger."""
    shape = np.broadcast_shapes(*(v.tensor_type.shape for v in (kept, *others)))
    return kept if shape == kept.tensor_type.shape else None


# ------------------------------------------------------------------------------- data movement
@rule("transpose")
def transpose_of_transpose(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """transpose(transpose(x, perm=p), perm=q)  ->  transpose(x, perm=p[q])"""
    inner = producer(inputs[0], "transpose")
    if inner is None or not isinstance(inner.op, Transpose):
        return None
    return b.one(Transpose(tuple(inner.op.perm[q] for q in op.perm)), inner.inputs[0])


@rule("transpose")
def transpose_in_order(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """transpose(x, perm=[0, 1, 2])  ->  x, and reshape(x) where only axes of extent 1 move"""
    shape = inputs[0].tensor_type.shape
    moved = [p for p in op.perm if shape[p] != 1]
    if moved != sorted(moved):
        return None
    return b.one(Reshape(tuple(shape[p] for p in op.perm)), inputs[0])


@rule("reshape")
def reshape_of_reshape(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """reshape(reshape(x, shape=s), shape=t)  ->  reshape(x, shape=t)"""
    inner = producer(inputs[0], "reshape")
    return None if inner is None else b.one(op, inner.inputs[0])


@rule("expand")
def expand_of_expand(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """expand(expand(x, shape=s), shape=t)  ->  expand(x, shape=t)"""
    inner = producer(inputs[0], "expand")
    return None if inner is None else b.one(op, inner.inputs[0])


@rule("slice")
def slice_of_slice(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """slice(slice(x, 2:10:2), 1:3:1)  ->  slice(x, 4:8:2)"""
    inner = producer(inputs[0], "slice")
    if inner is None or not isinstance(inner.op, Slice):
        return None
    kept = [a[r.start : _stop(r) : r.step] for a, r in zip(inner.op.ranges(), op.ranges())]
    starts, stops, steps = zip(*map(_tight, kept))
    return b.one(Slice(starts, stops, steps), inner.inputs[0])


@rule("gather")
def gather_of_range(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """gather(x, [2, 4, 6], axis=0)  ->  slice(x, 2:7:2), reshaped where the index has no axis"""
    x, index = inputs
    shape = x.tensor_type.shape
    if not isinstance(index, Constant) or index.array.ndim > 1 or not index.array.size:
        return None
    at = [int(i) + (shape[op.axis] if i < 0 else 0) for i in np.ravel(index.array)]
    step = at[1] - at[0] if len(at) > 1 else 1
    kept = range(at[0], at[-1] + (1 if step > 0 else -1), step or 1)
    if list(kept) != at or not 0 <= min(at) <= max(at) < shape[op.axis]:
        return None
    ranges = [kept if axis == op.axis else range(d) for axis, d in enumerate(shape)]
    starts, stops, steps = zip(*map(_tight, ranges))
    result = op.infer(x.tensor_type, index.tensor_type)
    return b.one(Reshape(result.shape), b.one(Slice(starts, stops, steps), x))


def _tight(kept: range) -> tuple[int, int, int]:
    """Start, stop and step, the same for all ranges with the same elements."""
    if len(kept) <= 1:
        start = kept[0] if kept else 0
        return start, start + len(kept), 1
    return kept[0], kept[-1] + (1 if kept.step > 0 else -1), kept.step


def _stop(kept: range) -> int | None:
    """The stop of a range as an index, where a negative number would count from the end."""
    return None if kept.stop < 0 else kept.stop


@rule("reshape", "expand", "slice", "pad", "tile", "max_pool", "avg_pool", "concat", "split",
      "cast", "enlarge", "regroup")  # fmt: skip
def nothing_to_do(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """reshape(x: f32[2, 3], shape=[2, 3])  ->  x

    And likewise: expand to the same shape, slice of everything, pad by nothing, tile once,
    pool with a window of one element, concat and split of one part, cast to the same type, filters
    enlarged to their own size or regrouped into as many groups.
    """
    if op.name == "concat" and len(inputs) > 1:
        return None
    if op.name == "slice" and any(step != 1 for step in op.steps):
        return None
    if op.name in ("max_pool", "avg_pool") and (max(op.kernel) > 1 or max(op.pads) > 0):
        return None
    results = op.infer_types(tuple(v.tensor_type for v in inputs))
    return inputs[0] if results == (inputs[0].type,) else None


@rule("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")
def reduce_single_elements(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """reduce_sum(x: f32[4, 1], axes=[1])  ->  reshape(x, shape=[4])"""
    x = inputs[0].tensor_type
    if any(x.shape[axis] != 1 for axis in op.axes):
        return None
    return b.one(Reshape(op.infer(x).shape), inputs[0])


@rule("concat")
def concat_of_concat(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """concat(concat(x, y, axis=a), z, axis=a)  ->  concat(x, y, z, axis=a)"""
    parts: list[Value] = []
    for value in inputs:
        inner = producer(value, "concat")
        parts += inner.inputs if inner is not None and inner.op == op else (value,)
    return b.one(op, *parts) if len(parts) > len(inputs) else None


@rule("concat")
def concat_of_split(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """concat(split(x, axis=a), axis=a)  ->  x, when all parts are there in order"""
    inner = producer(inputs[0], "split")
    if inner is None or inner.op.attributes()["axis"] != op.axis or inner.results != inputs:
        return None
    return inner.inputs[0]


@rule("concat")
def concat_without_empty_parts(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """concat(x, y: f32[0, 3], axis=0)  ->  concat(x, axis=0)"""
    parts = [v for v in inputs if v.tensor_type.size]
    return b.one(Concat(op.axis), *parts) if parts and len(parts) < len(inputs) else None


# ---------------------------------------------------------------------------------- arithmetic
@rule("add", numeric="real")
def add_zero(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """add(x, 0)  ->  x   (real: -0.0 + 0.0 is 0.0)"""
    for x, other in (inputs, inputs[::-1]):
        if is_filled_with(other, 0):
            return _unless_widened(x, other)
    return None


@rule("mul")
def mul_one(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """mul(x, 1)  ->  x"""
    for x, other in (inputs, inputs[::-1]):
        if is_filled_with(other, 1):
            return _unless_widened(x, other)
    return None


@rule("sub", numeric="real")
def sub_zero(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """sub(x, 0)  ->  x"""
    x, other = inputs
    return _unless_widened(x, other) if is_filled_with(other, 0) else None


@rule("div", "pow")
def div_one(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """div(x, 1)  ->  x, pow(x, 1)  ->  x"""
    x, other = inputs
    return _unless_widened(x, other) if is_filled_with(other, 1) else None


@rule("pow")
def pow_of_known(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """pow(x, 2)  ->  mul(x, x), pow(x, -1)  ->  reciprocal(x)"""
    x, exponent = inputs
    if not x.type.dtype.is_float or _unless_widened(x, exponent) is None:
        return None
    if is_filled_with(exponent, 2):
        return b.one(Mul(), x, x)
    return b.one(Reciprocal(), x) if is_filled_with(exponent, -1) else None


@rule("minimum", "maximum", "logical_and", "logical_or", "bit_and", "bit_or")
def same_operands(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """maximum(x, x)  ->  x"""
    return inputs[0] if inputs[0] is inputs[1] else None


@rule("neg", "logical_not", "bit_not")
def undone(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """neg(neg(x))  ->  x"""
    inner = producer(inputs[0], op.name)
    return None if inner is None else inner.inputs[0]


@rule("relu", "abs", "floor", "ceil", "round", "sign")
def done_twice(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """relu(relu(x))  ->  relu(x)"""
    return inputs[0] if producer(inputs[0], op.name) else None


@rule("cast")
def cast_there_and_back(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """cast(cast(x: f32, to=f64), to=f32)  ->  x, when the type between loses nothing"""
    inner = producer(inputs[0], "cast")
    if inner is None or inner.inputs[0].type.dtype != op.to:
        return None
    start, between = op.to, inputs[0].type.dtype
    widens = start.kind == between.kind and between.bits > start.bits
    lossless = (widens and not start.is_storage_only) or start.kind == "bool"
    return inner.inputs[0] if lossless else None


@rule("where")
def where_known(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """where(true, x, y)  ->  x, and where(c, x, x)  ->  x, expanded to the result's shape"""
    condition, x, y = inputs
    if x is y or is_filled_with(condition, True):
        chosen = x
    elif is_filled_with(condition, False):
        chosen = y
    else:
        return None
    shape = op.infer_types(tuple(v.tensor_type for v in inputs))[0].shape
    return b.one(Expand(shape), chosen)


@rule("add", "sub", "mul", "div", "minimum", "maximum", "where")
def broadcast_twice(b: GraphBuilder, op: Any, inputs: Inputs) -> Value | None:
    """add(x: f32[2, 3], expand(y, shape=[2, 3]))  ->  add(x, y)"""
    narrow = tuple(
        inner.inputs[0] if (inner := producer(v, "expand")) is not None else v for v in inputs
    )
    if narrow == inputs:
        return None
    types = [tuple(v.tensor_type for v in values) for values in (inputs, narrow)]
    return b.one(op, *narrow) if op.infer(*types[0]) == op.infer(*types[1]) else None
