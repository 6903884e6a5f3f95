"""ONNX attention and rotary position embedding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from whet.core.dtypes import bool_, f64, i64
from whet.core.types import broadcast_shapes
from whet.frontend.onnx.mapping import Context, maps
from whet.frontend.onnx.nodes.casting import dtype_attribute
from whet.graph.graph import Value
from whet.ops.arithmetic import Add, Div, Mul, Sub, Tanh
from whet.ops.attention import Attention, masked_softmax
from whet.ops.fill import Pad
from whet.ops.gather import Gather
from whet.ops.logic import GreaterEqual, Less, LessEqual, LogicalAnd, Where
from whet.ops.matmul import MatMul
from whet.ops.movement import Concat, Expand, Reshape, Slice, Transpose
from whet.ops.shared.precision import converted, scalar, widened


def _heads_first(c: Context, index: int, heads: int | None) -> Value:
    """The input as [batch, heads, length, size]; [batch, length, heads * size] is split up."""
    value, t = c.input(index), c.type(index)
    if t.rank == 4:
        return value
    if t.rank != 3 or not heads:
        c.unsupported(f"input {index} of shape {list(t.shape)} without a number of heads")
    batch, length, width = t.shape
    return c(Transpose((0, 2, 1, 3)), c(Reshape((batch, length, heads, width // heads)), value))


def _as_given(c: Context, result: Value) -> Value:
    """[batch, heads, length, size] as the node's first input came in."""
    if c.type(0).rank == 4:
        return result
    batch, heads, length, size = result.tensor_type.shape
    return c(Reshape((batch, length, heads * size)), c(Transpose((0, 2, 1, 3)), result))


# ---------------------------------------------------------------------------------- attention
@maps("Attention", since=23)
def attention(c: Context) -> tuple[Value | None, ...]:
    q = _heads_first(c, 0, c.attr("q_num_heads"))
    k = _heads_first(c, 1, c.attr("kv_num_heads"))
    v = _heads_first(c, 2, c.attr("kv_num_heads"))
    past_key, past_value = c.optional(4), c.optional(5)
    past = 0
    if past_key is not None and past_value is not None:
        c.require_types(c.type(4).rank == 4, f"the past keys are {c.type(4)}")
        past = c.type(4).shape[2]
        k, v = c(Concat(2), past_key, k), c(Concat(2), past_value, v)
    bias = _bias(c, q, k, past)
    batch, heads, length, size = q.tensor_type.shape
    groups = k.tensor_type.shape[1]
    shared = heads // max(groups, 1)
    if not shared or groups * shared != heads:
        c.unsupported(f"{heads} query heads share {groups} key heads")
    # Query heads that share a key head become further rows of one head: nothing is repeated.
    rows = c(Reshape((batch, groups, shared * length, size)), q)
    if bias is not None:
        bias = _bias_of_rows(c, bias, heads, groups, length)
    scale = float(c.attr("scale", max(size, 1) ** -0.5))
    dtype = q.tensor_type.dtype
    value = converted(c.builder, v, dtype)
    softcap = float(c.attr("softcap", 0.0))
    precise = dtype_attribute(c, "softmax_precision") == f64 != dtype
    scores: Value | None = None
    if c.n_outputs < 4 and not softcap and not precise:
        y = c(Attention(scale), rows, k, value, *([] if bias is None else [bias]))
    else:
        y, scores = _attention_in_steps(c, rows, k, value, bias, scale, softcap, precise)
        scores = c(Reshape((batch, heads, length, k.tensor_type.shape[2])), scores)
    y = c(Reshape((batch, heads, length, v.tensor_type.shape[3])), y)
    return _as_given(c, y), k, v, scores


def _attention_in_steps(
    c: Context,
    q: Value,
    k: Value,
    v: Value,
    bias: Value | None,
    scale: float,
    softcap: float,
    precise: bool,
) -> tuple[Value, Value]:
    """The result, and the stage of the scores that the node asks for."""
    b, dtype = c.builder, q.tensor_type.dtype
    q, k, v = (converted(b, x, f64) if precise else widened(b, x) for x in (q, k, v))
    product = c(MatMul(), q, c(Transpose((0, 1, 3, 2)), k))
    raw = c(Mul(), product, scalar(b, scale, product))
    capped = raw
    if softcap:
        limit = scalar(b, softcap, raw)
        capped = c(Mul(), c(Tanh(), c(Div(), raw, limit)), limit)
    biased = capped
    if bias is not None:
        biased = c(Add(), capped, converted(b, bias, capped.tensor_type.dtype))
    weights = masked_softmax(b, biased)
    mode = c.attr("qk_matmul_output_mode", 0)
    if mode not in range(4):
        c.unsupported(f"qk_matmul_output_mode {mode}")
    y = converted(b, c(MatMul(), weights, v), dtype)
    return y, converted(b, (raw, capped, biased, weights)[mode], dtype)


def _bias(c: Context, q: Value, k: Value, past: int) -> Value | None:
    """The summand of the scores: the mask, and -inf for the keys a query must not see."""
    batch, _, length, _ = q.tensor_type.shape
    total = k.tensor_type.shape[2]
    dtype = q.tensor_type.dtype
    mask, valid = c.optional(3), c.optional(6)
    allowed: list[Value] = []
    offset = c.constant(past, i64)
    if valid is not None:
        valid = c(Reshape((batch, 1, 1, 1)), valid)
        allowed.append(c(Less(), c.constant(c.indices(total), i64), valid))
        offset = c(Sub(), valid, c.constant(length, i64))
    # A query stands at position offset + i; `ahead` is how far key j lies after i.
    keys, queries = c.indices(total)[None, :], c.indices(length)[:, None]
    ahead = c(Sub(), c.constant(keys, i64), c.constant(queries, i64))
    right = c.attr("right_window_size", -1)
    if c.attr("is_causal", 0):
        right = 0
    if right >= 0:
        allowed.append(c(LessEqual(), ahead, c(Add(), offset, c.constant(right, i64))))
    left = c.attr("left_window_size", -1)
    if left >= 0:
        allowed.append(c(GreaterEqual(), ahead, c(Sub(), offset, c.constant(left, i64))))
    if mask is not None:
        is_bool = mask.tensor_type.dtype == bool_
        mask = _padded(c, mask, total, False if is_bool else -np.inf)
        if is_bool:
            allowed.append(mask)
            mask = None
    if not allowed:
        return mask
    every = reduce(lambda x, y: c(LogicalAnd(), x, y), allowed)
    blocked = c(Where(), every, c.constant(0, dtype), c.constant(-np.inf, dtype))
    return blocked if mask is None else c(Add(), mask, blocked)


def _padded(c: Context, mask: Value, total: int, fill: float) -> Value:
    """The mask with `fill` for the keys that it does not mention."""
    t = mask.tensor_type
    missing = total - t.shape[-1]
    if missing <= 0 or t.shape[-1] == 1:
        return mask
    pads = (*(0,) * (2 * t.rank - 1), missing)
    return c(Pad(pads), mask, c.constant(fill, t.dtype))


def _bias_of_rows(c: Context, bias: Value, heads: int, groups: int, length: int) -> Value:
    """[batch, heads, length, keys] as [batch, groups, heads / groups * length, keys]."""
    if heads == groups:
        return bias
    shape = bias.tensor_type.shape
    batch, own_heads, _, keys = (1,) * (4 - len(shape)) + shape
    shared = heads // groups
    full_heads = heads if own_heads == heads else shared
    full = broadcast_shapes((batch, own_heads, 1, keys), (1, full_heads, length, 1))
    return c(Reshape((batch, full_heads // shared, shared * length, keys)), c(Expand(full), bias))


# ------------------------------------------------------------------------------------- rotary
@maps("RotaryEmbedding", since=23)
def rotary_embedding(c: Context) -> Value:
    """Rotates pairs of features by an angle that depends on the position."""
    b, dtype = c.builder, c.type(0).dtype
    x = widened(b, _heads_first(c, 0, c.attr("num_heads")))
    batch, heads, length, size = x.tensor_type.shape
    turned = c.attr("rotary_embedding_dim", 0) or size
    half = turned // 2

    def angles(index: int) -> Value:
        cache = c.input(index)
        if c.optional(3) is not None:
            cache = c(Gather(0), cache, c.input(3))
        own_batch = cache.tensor_type.shape[0]
        return widened(b, c(Reshape((own_batch, 1, length, half)), cache))

    cos, sin = angles(1), angles(2)
    if c.attr("interleaved", 0):
        pairs = c(Reshape((batch, heads, length, half, 2)), _features(c, x, 0, turned))
        first, second = (
            c(Reshape((batch, heads, length, half)), _features(c, pairs, n, n + 1)) for n in (0, 1)
        )
    else:
        first, second = _features(c, x, 0, half), _features(c, x, half, turned)
    parts = [
        c(Sub(), c(Mul(), cos, first), c(Mul(), sin, second)),
        c(Add(), c(Mul(), sin, first), c(Mul(), cos, second)),
    ]
    if c.attr("interleaved", 0):
        split = [c(Reshape((batch, heads, length, half, 1)), p) for p in parts]
        parts = [c(Reshape((batch, heads, length, turned)), c(Concat(4), *split))]
    if turned < size:
        parts.append(_features(c, x, turned, size))
    joined = c(Concat(3), *parts) if len(parts) > 1 else parts[0]
    return _as_given(c, converted(b, joined, dtype))


def _features(c: Context, x: Value, start: int, stop: int) -> Value:
    """Elements start..stop of the last axis."""
    shape: Sequence[int] = x.tensor_type.shape
    rank = len(shape)
    starts, stops = (*(0,) * (rank - 1), start), (*shape[:-1], stop)
    return c(Slice(starts, stops, (1,) * rank), x)
