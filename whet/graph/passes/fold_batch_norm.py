"""Scales and shifts into the weights before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.types import Array, Shape
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Graph, Node, Result, Value, make_constant
from whet.graph.rewrite import rebuild
from whet.ops.arithmetic import Add
from whet.ops.base import Op
from whet.ops.movement import Reshape, Transpose


def fold_batch_norm(graph: Graph) -> Graph:
    """The graph with constant scales and shifts after a product folded into its weights.

        batch_norm(conv(x, w), s, b, m, v)    ->    add(conv(x, w * k), b - m * k)
                                                    where k = s / sqrt(v + epsilon)

    Cases: (1) `batch_norm` with constant parameters; (2) its parts, as other exporters write
    them: `mul`, `div`, `add` and `sub` with a constant that varies along the channels only,
    in any number and order; (3) the product is a `conv`, `conv_transpose` or `matmul` with
    constant weights, followed at most by an `add` of a constant (its bias); (4) between the product
    and the constant lie a `reshape` or `transpose`, as where attention scales its heads:

        mul(transpose(reshape(matmul(x, w))), k)    ->    transpose(reshape(matmul(x, w * k)))

    Kept as it is: a product that something else reads too (folding would compute it twice),
    and constants that vary along another axis.  True over the reals; the new weights are
    computed in f64 and rounded once.
    """
    outputs = set(graph.outputs)
    exclusive: set[Value] = set()
    """Rebuilt values with one reader, which may therefore be replaced in place."""

    def step(b: GraphBuilder, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        with np.errstate(all="ignore"):  # weights may hold NaN, variances may be negative
            affine = _affine(node.op.name, node.op, inputs)
            folded = _fold(b, affine, exclusive) if affine is not None else None
        results = b.results(node.op, *inputs) if folded is None else (folded,)
        for old, new in zip(node.results, results, strict=True):
            if len(graph.users.get(old, ())) == 1 and old not in outputs:
                exclusive.add(new)
            else:
                exclusive.discard(new)
        return results

    return rebuild(graph, step)


@dataclass(frozen=True, slots=True)
class _Affine:
    """source * scale + shift, with arrays that broadcast against the source."""

    source: Value
    scale: Array | None
    shift: Array | None


def _affine(name: str, op: Any, inputs: tuple[Value, ...]) -> _Affine | None:
    """The application as a scale and a shift of its first non-constant input."""
    if name == "batch_norm":
        return _affine_of_batch_norm(op.epsilon, inputs)
    if name not in ("add", "sub", "mul", "div") or not inputs[0].type.dtype.is_float:
        return None
    x, other = inputs
    if isinstance(x, Constant) and name in ("add", "mul"):
        x, other = other, x
    if not isinstance(other, Constant) or isinstance(x, Constant):
        return None
    number = other.array.astype(np.float64)
    match name:
        case "add":
            return _Affine(x, None, number)
        case "sub":
            return _Affine(x, None, -number)
        case "mul":
            return _Affine(x, number, None)
    return _Affine(x, 1.0 / number, None) if np.all(number != 0) else None


def _affine_of_batch_norm(epsilon: float, inputs: tuple[Value, ...]) -> _Affine | None:
    x, *parameters = inputs
    arrays = [v.array.astype(np.float64) for v in parameters if isinstance(v, Constant)]
    if len(arrays) != 4:
        return None
    scale, bias, mean, variance = (a.reshape(-1, *(1,) * (x.tensor_type.rank - 2)) for a in arrays)
    factor = scale / np.sqrt(variance + epsilon)
    return _Affine(x, factor, bias - mean * factor)


def _fold(b: GraphBuilder, affine: _Affine, exclusive: set[Value]) -> Value | None:
    """The affine map with its scale inside the weights of the product below it."""
    moved: list[Op] = []
    while affine.source in exclusive and (node := _movement(affine.source)) is not None:
        if _widens(affine):
            return None
        moved.append(node.op)
        affine = _before(node, affine)
    folded = _fold_product(b, affine, exclusive)
    if folded is None:
        return None
    for op in reversed(moved):
        exclusive.add(folded)  # what moves it is all that reads it
        folded = b.one(op, folded)
    return folded


def _widens(affine: _Affine) -> bool:
    """Whether the result is larger than the source, because the constants are."""
    shape = affine.source.tensor_type.shape
    arrays = [a for a in (affine.scale, affine.shift) if a is not None]
    return np.broadcast_shapes(shape, *(a.shape for a in arrays)) != shape


def _movement(value: Value) -> Node | None:
    """The node that only put all elements of its input elsewhere, if the value is its result."""
    if isinstance(value, Result) and isinstance(value.node.op, Reshape | Transpose):
        return value.node
    return None


def _before(node: Node, affine: _Affine) -> _Affine:
    """The same map of what the elements were before they moved."""
    (source,) = node.inputs
    shape, result = source.tensor_type.shape, node.results[0].tensor_type.shape

    def back(array: Array | None) -> Array | None:
        if array is None or array.size == 1:
            return None if array is None else array.reshape(())
        there = np.broadcast_to(array, result)
        if isinstance(node.op, Transpose):
            return _narrowed(there.transpose(np.argsort(node.op.perm)))
        return _narrowed(there.reshape(shape))

    return _Affine(source, back(affine.scale), back(affine.shift))


def _narrowed(array: Array) -> Array:
    """The array with extent 1 along the axes on which it does not depend."""
    for axis in range(array.ndim if array.size else 0):
        first = array.take([0], axis)
        if np.array_equal(np.broadcast_to(first, array.shape), array):
            array = first
    return array


def _fold_product(b: GraphBuilder, affine: _Affine, exclusive: set[Value]) -> Value | None:
    """The affine map of a product, or of one with a bias, as a product with a bias."""
    product, bias = affine.source, None
    if product not in exclusive:
        return None
    below = _affine(*_application(product))
    if below is not None and below.scale is None:
        product, bias = below.source, below.shift
    scale, shift = affine.scale, affine.shift
    if product not in exclusive or not isinstance(product, Result):
        return None
    if _widens(_Affine(product, scale, shift)):
        return None
    if scale is not None:
        weights = _scaled_weights(product.node, scale)
        if weights is None:
            return None
        (product,) = b.results(product.node.op, product.node.inputs[0], weights)
        exclusive.add(product)
        bias = None if bias is None else bias * scale
    elif _output_axis(product.node) is None or bias is None:
        return None
    total = bias if shift is None else shift if bias is None else bias + shift
    if total is None:
        return product
    return b.one(Add(), product, b.constant(total.astype(product.tensor_type.dtype.numpy)))


def _application(value: Value) -> tuple[str, Any, tuple[Value, ...]]:
    if isinstance(value, Result):
        return value.node.op.name, value.node.op, value.node.inputs
    return "", None, ()


def _output_axis(node: Node) -> int | None:
    """The axis of a product's result along which its constant weights vary."""
    if len(node.inputs) != 2 or not isinstance(node.inputs[1], Constant):
        return None
    return {"conv": 1, "conv_transpose": 1, "matmul": node.results[0].tensor_type.rank - 1}.get(
        node.op.name
    )


def _scaled_weights(node: Node, scale: Array) -> Constant | None:
    """The weights of the product that give its result times the scale; None if none do."""
    axis = _output_axis(node)
    if axis is None:
        return None
    type = node.results[0].tensor_type
    along = _along(scale, axis, type.shape)
    weights = node.inputs[1]
    if along is None or not isinstance(weights, Constant):
        return None
    w = weights.array
    if node.op.name == "matmul":
        scaled = w.astype(np.float64) * along
    elif node.op.name == "conv":
        scaled = w * along.reshape(-1, *(1,) * (w.ndim - 1))
    else:  # [channels in, channels out of one group, ...]
        groups = node.op.attributes().get("groups", 1)
        split = w.reshape(groups, -1, *w.shape[1:])
        factor = along.reshape(groups, 1, w.shape[1], *(1,) * (w.ndim - 2))
        scaled = (split * factor).reshape(w.shape)
    return make_constant(scaled.astype(w.dtype))


def _along(scale: Array, axis: int, shape: Shape) -> Array | None:
    """The scale as one number per position of the axis; None if it varies along others."""
    aligned = scale.reshape((1,) * (len(shape) - scale.ndim) + scale.shape)
    if any(d != 1 for n, d in enumerate(aligned.shape) if n != axis):
        return None
    return np.broadcast_to(aligned.reshape(-1), (shape[axis],))
