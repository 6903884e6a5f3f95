"""An operator that whet does not have, defined in one file outside the package."""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import FLOATS, f32
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr
from whet.ir.tensor import Compute, Tensor, compute
from whet.ops.base import Op, Sample, law, operator, require


@operator("mirror", "x")
class Mirror(Op):
    """A tensor turned around its last axis."""

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype in FLOATS and x.rank >= 1, self, "no meaning", x, code="WH1103")
        return x

    def compute(self, x: Tensor) -> Compute:
        last = x.shape[-1] - 1

        def body(*i: Expr) -> Expr:
            return x[(*i[:-1], -i[-1] + last)]

        return compute(x.shape, body, "mirror")

    def reference(self, x: Array) -> Array:
        return np.flip(x, -1)

    axioms = (
        law("mirror(mirror(x)) = x", "exact", x=(2, 3)),
        law("mirror(relu(x)) = relu(mirror(x))", "exact", x=(2, 3)),
        law("mirror(matmul(a, b)) = matmul(a, mirror(b))", "exact", a=(2, 3), b=(3, 4)),
    )

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (Sample(cls(), (TensorType((2, 3), f32),)),)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = tuple(int(d) for d in rng.integers(1, 5, int(rng.integers(1, 5))))
        return Sample(cls(), (TensorType(shape, f32),))
