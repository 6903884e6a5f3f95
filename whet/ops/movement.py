"""Data movement: the same elements in another place."""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import f32
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr
from whet.ir.tensor import Compute, Tensor, compute
from whet.ops.base import Op, Sample, law, operator, require


@operator("transpose", "x")
class Transpose(Op):
    """Axes reordered: axis n of the result is axis `perm[n]` of the input."""

    perm: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        require(sorted(self.perm) == list(range(x.rank)), self,
                f"perm {list(self.perm)} does not order {x.rank} axes", x, code="WH1104")  # fmt: skip
        return x.with_shape([x.shape[p] for p in self.perm])

    def reference(self, x: Array) -> Array:
        return np.transpose(x, self.perm)

    def compute(self, x: Tensor) -> Compute:
        def body(*i: Expr) -> Expr:
            source = {p: i[n] for n, p in enumerate(self.perm)}
            return x[tuple(source[a] for a in range(x.rank))]

        return compute(self.infer(x.type).shape, body, "transpose")

    axioms = (
        law("transpose(transpose(x, perm=[1, 0]), perm=[1, 0]) = x", "exact", x=(2, 3)),
        law("transpose(matmul(x, y), perm=[1, 0]) = "
            "matmul(transpose(y, perm=[1, 0]), transpose(x, perm=[1, 0]))", "exact",
            x=(2, 3), y=(3, 4)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls((1, 0)), (TensorType((3, 5), f32),)),
            Sample(cls((0, 2, 3, 1)), (TensorType((2, 3, 4, 5), f32),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        rank = int(rng.integers(1, 5))
        shape = tuple(int(d) for d in rng.integers(1, 6, rank))
        return Sample(cls(tuple(int(p) for p in rng.permutation(rank))), (TensorType(shape, f32),))
