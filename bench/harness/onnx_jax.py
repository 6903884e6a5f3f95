"""ONNX models as jitted JAX functions: the operators of the networks benchmarked here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from harness.onnx_nodes import Function, Make, Node, read_steps
from whet.cli.peers.runtimes import Run
from whet.core.types import Array


def jitted(path: str, inputs: Mapping[str, Array]) -> Run:
    """The model on these inputs; weights are arguments, as JAX programs hold them."""
    steps = read_steps(path, TABLE)
    weights = jax.device_put({n: _narrow(a) for n, a in steps.constants.items()})
    given = jax.device_put([_narrow(inputs[n]) for n in steps.inputs])

    @jax.jit
    def call(weights: dict[str, Any], given: list[Any]) -> Any:
        return steps.run({**weights, **dict(zip(steps.inputs, given))})

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        return [np.asarray(r) for r in jax.block_until_ready(call(weights, given))]

    return run


def _narrow(array: Array) -> Array:
    """JAX has no 64-bit integers unless asked."""
    return array.clip(-(2**31), 2**31 - 1).astype(np.int32) if array.dtype == np.int64 else array


def _spatial(rank: int) -> str:
    return "DHW"[-rank:]


def _convolution(node: Node) -> Function:
    rank = node.weight_rank() - 2
    s, at = _spatial(rank), node.attributes
    names = ("NC" + s, "OI" + s, "NC" + s)
    strides, groups = list(at.get("strides", [1] * rank)), int(at.get("group", 1))
    dilations, pads = list(at.get("dilations", [1] * rank)), list(zip(*node.pads(rank)))

    def run(x: Any, w: Any, b: Any = None) -> Any:
        y = lax.conv_general_dilated(
            x, w, strides, pads, rhs_dilation=dilations, dimension_numbers=names,
            feature_group_count=groups)  # fmt: skip
        return y if b is None else y + b.reshape(-1, *[1] * rank)

    return run


def _transposed_convolution(node: Node) -> Function:
    rank = node.weight_rank() - 2
    s = _spatial(rank)
    names = ("NC" + s, "IO" + s, "NC" + s)
    strides = list(node.attributes.get("strides", [1] * rank))
    kernel = node.constants[node.inputs[1]].shape[2:]
    pads = [(k - 1 - b, k - 1 - e) for k, b, e in zip(kernel, *node.pads(rank))]
    axes = tuple(range(2, 2 + rank))

    def run(x: Any, w: Any, b: Any = None) -> Any:
        y = lax.conv_general_dilated(
            x, jnp.flip(w, axes), [1] * rank, pads, lhs_dilation=strides, dimension_numbers=names
        )
        return y if b is None else y + b.reshape(-1, *[1] * rank)

    return run


def _pool(node: Node, start: float, combine: Callable[..., Any]) -> Function:
    """Windows combined; with ceil_mode, the end is padded until the last window fits."""
    kernel = list(node.attributes["kernel_shape"])
    rank = len(kernel)
    strides = list(node.attributes.get("strides", [1] * rank))
    ceil = bool(node.attributes.get("ceil_mode", 0))

    def run(x: Any) -> Any:
        pads = [(0, 0), (0, 0)]
        for size, k, s, b, e in zip(x.shape[2:], kernel, strides, *node.pads(rank)):
            pads.append((b, e + (-(size + b + e - k) % s if ceil else 0)))
        return lax.reduce_window(x, start, combine, (1, 1, *kernel), (1, 1, *strides), pads)

    return run


def _average_pool(node: Node) -> Function:
    total = _pool(node, 0.0, lax.add)
    if node.attributes.get("count_include_pad", 0):
        count = float(np.prod(node.attributes["kernel_shape"]))
        return lambda x: total(x) / count
    return lambda x: total(x) / total(jnp.ones((1, 1, *x.shape[2:]), x.dtype))


def _layer_norm(node: Node) -> Function:
    axis, epsilon = node.attributes.get("axis", -1), node.attributes.get("epsilon", 1e-5)

    def run(x: Any, w: Any, b: Any = None) -> Any:
        axes = tuple(range(axis % x.ndim, x.ndim))
        centred = x - x.mean(axes, keepdims=True)
        y = centred * lax.rsqrt((centred**2).mean(axes, keepdims=True) + epsilon) * w
        return y if b is None else y + b

    return run


def _batch_norm(node: Node) -> Function:
    epsilon = node.attributes.get("epsilon", 1e-5)

    def run(x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
        def along(v: Any) -> Any:
            return v.reshape(-1, *[1] * (x.ndim - 2))

        return (x - along(mean)) * along(scale * lax.rsqrt(variance + epsilon)) + along(bias)

    return run


def _gemm(node: Node) -> Function:
    at = node.attributes
    first, second = at.get("transA", 0), at.get("transB", 0)
    alpha, beta = at.get("alpha", 1.0), at.get("beta", 1.0)
    return lambda a, b, c=0.0: (
        alpha * ((a.T if first else a) @ (b.T if second else b)) + beta * c
    )  # fmt: skip


def _mean(node: Node) -> Function:
    axes, keep = node.ints(1, "axes"), bool(node.attributes.get("keepdims", 1))
    return lambda x, _=None: x.mean(None if axes is None else tuple(axes), keepdims=keep)


def _split(node: Node) -> Function:
    axis, sizes = node.attributes.get("axis", 0), node.ints(1)
    count = node.attributes.get("num_outputs", len(node.outputs))
    where = count if sizes is None else np.cumsum(sizes)[:-1].tolist()
    return lambda x, _=None: jnp.split(x, where, axis)


def _reshape(node: Node) -> Function:
    shape = node.ints(1) or []
    return lambda x, _: x.reshape([d or x.shape[n] for n, d in enumerate(shape)])


def _expand(node: Node) -> Function:
    shape = tuple(node.ints(1) or ())
    return lambda x, _: jnp.broadcast_to(x, np.broadcast_shapes(x.shape, shape))


def _slice(node: Node) -> Function:
    starts, ends, axes, steps = (node.ints(k) for k in range(1, 5))
    starts, ends = starts or [], ends or []
    where = dict(
        zip(
            axes or range(len(starts)),
            (slice(*t) for t in zip(starts, ends, steps or [1] * len(starts))),
        )
    )
    return lambda x, *_: x[tuple(where.get(a, slice(None)) for a in range(x.ndim))]


def _pad(node: Node) -> Function:
    pads, value = node.ints(1) or [], node.number(2) or 0.0
    half = len(pads) // 2
    return lambda x, *_: jnp.pad(x, list(zip(pads[:half], pads[half:])), constant_values=value)


def _with(attribute: str, default: Any, function: Callable[..., Any]) -> Make:
    """Operators of values and one attribute."""

    def make(node: Node) -> Function:
        value = node.attributes.get(attribute, default)
        return lambda *xs: function(value, *xs)

    return make


def _plain(function: Callable[..., Any]) -> Make:
    return lambda node: function


TABLE: dict[str, Make] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "MaxPool": lambda node: _pool(node, -np.inf, lax.max),
    "AveragePool": _average_pool,
    "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "Gemm": _gemm,
    "MatMul": _plain(jnp.matmul),
    "ReduceMean": _mean,
    "Softmax": _with("axis", -1, lambda axis, x: jax.nn.softmax(x, axis)),
    "Concat": _with("axis", 0, lambda axis, *xs: jnp.concatenate(xs, axis)),
    "Gather": _with("axis", 0, lambda axis, x, i: jnp.take(x, i, axis)),
    "Transpose": _with("perm", None, lambda perm, x: jnp.transpose(x, perm)),
    "Unsqueeze": lambda node: lambda x, _=None: jnp.expand_dims(x, node.ints(1, "axes") or ()),
    "Split": _split,
    "Reshape": _reshape,
    "Expand": _expand,
    "Slice": _slice,
    "Pad": _pad,
    "Clip": lambda node: lambda x, *_: jnp.clip(x, node.number(1), node.number(2)),
    "Add": _plain(jnp.add),
    "Sub": _plain(jnp.subtract),
    "Mul": _plain(jnp.multiply),
    "Div": _plain(jnp.divide),
    "Pow": _plain(jnp.power),
    "Relu": _plain(jax.nn.relu),
    "Sigmoid": _plain(jax.nn.sigmoid),
    "Tanh": _plain(jnp.tanh),
    "Erf": _plain(lax.erf),
    "Sqrt": _plain(jnp.sqrt),
    "Neg": _plain(jnp.negative),
    "Reciprocal": _plain(jnp.reciprocal),
}
