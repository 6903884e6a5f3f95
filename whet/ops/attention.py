"""Scaled dot-product attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from whet.core.dtypes import FLOATS, f16, f32
from whet.core.types import Array, TensorType, broadcast_shapes
from whet.ops.arithmetic import Add, Exp, Mul, Reciprocal, Sub
from whet.ops.base import Builder, NoAlgebra, Op, Sample, operator, require
from whet.ops.logic import Equal, Where
from whet.ops.matmul import MatMul
from whet.ops.movement import Transpose
from whet.ops.reduce import ReduceMax, ReduceSum
from whet.ops.shared.precision import converted, scalar, widen, widened
from whet.ops.softmax import Softmax


def masked_softmax(b: Builder, scores: Any) -> Any:
    """Softmax along the last axis in which a row of nothing but -inf becomes zeros."""
    axes = (b.type(scores).rank - 1,)
    peak = b(ReduceMax(axes, keepdims=True), scores)
    zero, one = scalar(b, 0, scores), scalar(b, 1, scores)
    shift = b(Where(), b(Equal(), peak, scalar(b, -np.inf, scores)), zero, peak)
    e = b(Exp(), b(Sub(), scores, shift))
    total = b(ReduceSum(axes, keepdims=True), e)
    divisor = b(Where(), b(Equal(), total, zero), one, total)
    return b(Mul(), e, b(Reciprocal(), divisor))


@operator("attention", "q", "k", "v", "*bias")
class Attention(Op):
    """softmax(q k^T * scale + bias) v, for q, k, v of shape [batch, heads, length, size].

    The optional bias broadcasts to [batch, heads, q length, k length].  A row that the bias
    masks altogether (all -inf) gives zeros.
    """

    scale: float

    def infer(self, q: TensorType, k: TensorType, v: TensorType, *bias: TensorType) -> TensorType:
        types = (q, k, v, *bias)
        require(len(bias) <= 1, self, "there is at most one bias", *types, code="WH1101")
        require(all(t.dtype == q.dtype in FLOATS for t in types), self,
                "all inputs need one floating-point type", *types, code="WH1103")  # fmt: skip
        require(q.rank == k.rank == v.rank == 4 and q.shape[:2] == k.shape[:2] == v.shape[:2]
                and q.shape[3] == k.shape[3] and k.shape[2] == v.shape[2], self,
                "shapes do not fit together", *types)  # fmt: skip
        scores = (*q.shape[:3], k.shape[2])
        require(all(broadcast_shapes(scores, t.shape) == scores for t in bias), self,
                f"the bias does not broadcast to {list(scores)}", *types)  # fmt: skip
        return q.with_shape((*q.shape[:3], v.shape[3]))

    def reference(self, q: Array, k: Array, v: Array, *bias: Array) -> Array:
        scores = np.einsum("bhqd,bhkd->bhqk", widen(q), widen(k), optimize=True) * self.scale
        for mask in bias:
            scores = scores + widen(mask)
        peak = scores.max(-1, keepdims=True, initial=-np.inf)
        e = np.exp(scores - (np.where(np.isneginf(peak), 0, peak) if bias else peak))
        total = e.sum(-1, keepdims=True)
        weights = np.divide(e, total, out=np.zeros_like(e), where=total != 0)
        return np.asarray(weights @ widen(v)).astype(q.dtype, copy=False)

    def expand(self, b: Builder, q: Any, k: Any, v: Any, *bias: Any) -> Any:
        query, key, value = widened(b, q), widened(b, k), widened(b, v)
        scores = b(MatMul(), query, b(Transpose((0, 1, 3, 2)), key))
        scores = b(Mul(), scores, scalar(b, self.scale, scores))
        for mask in bias:
            scores = b(Add(), scores, widened(b, mask))
        weights = masked_softmax(b, scores) if bias else b(Softmax(3), scores)
        return converted(b, b(MatMul(), weights, value), b.type(q).dtype)

    axioms = NoAlgebra("its algebra is that of the operators it expands into")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        q, k = TensorType((2, 3, 4, 8), f32), TensorType((2, 3, 5, 8), f32)
        half = TensorType((1, 2, 3, 4), f16)
        return (
            Sample(cls(0.5), (q, k, TensorType((2, 3, 5, 6), f32), TensorType((4, 5), f32))),
            Sample(cls(1.0), (half, half, half)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        batch, heads, m, n, size, out = (int(d) for d in rng.integers(1, 6, 6))
        q, k = TensorType((batch, heads, m, size), f32), TensorType((batch, heads, n, size), f32)
        bias = (TensorType((heads, 1, n), f32),) if rng.random() < 0.5 else ()
        types = (q, k, TensorType((batch, heads, n, out), f32), *bias)
        return Sample(cls(size**-0.5), types)
