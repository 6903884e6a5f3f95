"""Matrix products."""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import f32
from whet.core.types import Array, TensorType, broadcast_shapes
from whet.ir.tensor import Compute, Tensor, broadcast_read, compute, reduce_axis, sum_
from whet.ops.base import Op, Sample, law, operator, require


@operator("matmul", "a", "b")
class MatMul(Op):
    """Matrix product of the last two axes; leading axes broadcast as in NumPy."""

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        require(a.dtype == b.dtype, self, "element types differ", a, b, code="WH1103")
        require(a.rank >= 2 and b.rank >= 2, self, "both inputs need two or more axes", a, b)
        require(a.shape[-1] == b.shape[-2], self,
                f"inner dimensions are {a.shape[-1]} and {b.shape[-2]}", a, b)  # fmt: skip
        batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return a.with_shape((*batch, a.shape[-2], b.shape[-1]))

    def reference(self, a: Array, b: Array) -> Array:
        return np.matmul(a, b)

    def compute(self, a: Tensor, b: Tensor) -> Compute:
        k = reduce_axis(a.shape[-1], "k")
        out = self.infer(a.type, b.type)
        return compute(
            out.shape,
            lambda *i: sum_(
                broadcast_read(a, (*i[:-1], k)) * broadcast_read(b, (*i[:-2], k, i[-1])), k
            ),
            "matmul",
        )

    axioms = (
        law("matmul(matmul(a, b), c) = matmul(a, matmul(b, c))", "real",
            a=(2, 3), b=(3, 4), c=(4, 5)),
        law("matmul(a, add(b, c)) = add(matmul(a, b), matmul(a, c))", "real",
            a=(2, 3), b=(3, 4), c=(3, 4)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(), (TensorType((4, 6), f32), TensorType((6, 3), f32))),
            Sample(cls(), (TensorType((2, 1, 4, 6), f32), TensorType((5, 6, 3), f32))),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        m, k, n, batch = (int(x) for x in rng.integers(1, 6, 4))
        left = (batch, m, k) if rng.random() < 0.5 else (m, k)
        return Sample(cls(), (TensorType(left, f32), TensorType((batch, k, n), f32)))
