"""Numbers of single precision kept in half precision."""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import DType, bf16, f16, f32
from whet.core.errors import OperatorError
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Graph, Input, Node, Value
from whet.graph.rewrite import bodies, rebuild
from whet.ops.base import Op
from whet.ops.casting import Cast
from whet.ops.shared.elementwise import Elementwise

WIDE = frozenset({
    "cosh", "cumprod", "cumsum", "exp", "log", "pow", "reciprocal", "reduce_mean", "reduce_prod",
    "reduce_sum", "sinh", "sqrt", "tan",
})  # fmt: skip
"""Operators whose results may be far larger or smaller than what networks hand from layer to
layer: a variance less than 6e-8 would be zero in f16."""
EXACT = frozenset({
    "batch_norm", "bitcast", "deform_conv", "dequantize_linear", "det", "dft", "grid_sample",
    "max_roi_pool", "non_max_suppression", "quantize_linear", "roi_align",
})  # fmt: skip
"""Operators that take positions, variances, scales or bits, which do not stand rounding."""

LARGEST = {f16: 65504.0, bf16: 2.0**128 - 2.0**120}
"""The largest finite numbers."""


def half_precision(graph: Graph, half: DType) -> Graph:
    """The graph with its f32 values in f16 or bf16, all but those of its inputs and outputs.

        y: f32 = relu(conv(x, w))      ->   y = f32(relu(conv(f16(x), w in f16)))
        mean(pow(x, 2)) + 1e-12        ->   mean(pow(f32(x), 2)) + 1e-12, in f32

    Operators compute in f32 inside and round their result once, whatever they are given.  Cases:
    (1) `WIDE` operators, and products of a value with itself: f32, and so is what element-wise
    operators make of their results alone; (2) element-wise operators of such a value and another
    one: computed in f32, the result rounded; (3) `EXACT` operators and those with bodies: f32, the
    result rounded; (4) operators that do not take half precision, or run on the host: f32; (5) all
    others: half precision.  Constants are converted here; of those that f16 cannot hold, it takes
    the nearest finite one, because a mask of 0 times -inf would be NaN.
    """

    def step(b: GraphBuilder, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        if _takes_half(node, inputs, half):
            return b.results(node.op, *(_converted(b, v, f32, half) for v in inputs))
        results = b.results(node.op, *(_converted(b, v, half, f32) for v in inputs))
        if _stays_wide(node, inputs):
            return results
        return tuple(_converted(b, v, f32, half) for v in results)

    changed = rebuild(graph, step)
    b = GraphBuilder()
    outputs = tuple(
        _converted(b, new, half, old.type.dtype) for new, old in zip(changed.outputs, graph.outputs)
    )
    return Graph(graph.inputs, outputs, graph.output_names, changed.names)


def _takes_half(node: Node, inputs: tuple[Value, ...], half: DType) -> bool:
    """Whether an operator is computed on values in half precision."""
    op = node.op
    if op.name in WIDE | EXACT or isinstance(op, Cast) or _squares(op, node) or bodies(op):
        return False
    if op.host or not op.deterministic:
        return False
    if isinstance(op, Elementwise) and any(map(_is_wide, inputs)):
        return False
    types = tuple(_in_half(v.tensor_type, half) for v in node.inputs)
    try:
        found = op.infer_types(types)
    except OperatorError:
        return False
    return found == tuple(
        _in_half(v.type, half) if isinstance(v.type, TensorType) else v.type for v in node.results
    )


def _stays_wide(node: Node, inputs: tuple[Value, ...]) -> bool:
    """Whether the results of an operator that is computed in f32 stay there."""
    op = node.op
    if op.name in WIDE or isinstance(op, Cast) or _squares(op, node) or op.host:
        return True
    if not isinstance(op, Elementwise):
        return False
    return all(_is_wide(v) or isinstance(v, Constant) for v in inputs if v.type.dtype.is_float)


def _squares(op: Op, node: Node) -> bool:
    return op.name == "mul" and node.inputs[0] is node.inputs[1]


def _is_wide(value: Value) -> bool:
    """Whether a value is kept in f32, and is neither given nor known."""
    return value.type.dtype is f32 and not isinstance(value, Input | Constant)


def _in_half(t: TensorType, half: DType) -> TensorType:
    return t.with_dtype(half) if t.dtype is f32 else t


def _converted(b: GraphBuilder, value: Value, source: DType, dtype: DType) -> Value:
    """A value of the source type in another one; any other as it is."""
    if value.type.dtype != source or source == dtype:
        return value
    if isinstance(value, Constant):
        return b.constant(_nearest(value.array, dtype))
    return b.one(Cast(dtype), value)


def _nearest(array: Array, dtype: DType) -> Array:
    """The nearest numbers of a type, infinite only where they were."""
    largest = LARGEST.get(dtype, np.inf)
    clipped = np.where(np.isinf(array), array, np.clip(array, -largest, largest))
    return clipped.astype(dtype.numpy)
