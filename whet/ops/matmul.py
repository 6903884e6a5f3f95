"""Matrix products."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from whet.core.dtypes import NUMERIC, compute_dtype, dtype_of, f32
from whet.core.types import Array, Shape, TensorType, broadcast_shapes
from whet.ir.expr import Expr, cast
from whet.ir.tensor import Compute, Tensor, broadcast_read, compute, reduce_axis, sum_
from whet.ops.base import Law, Op, Sample, law, operator, require


def matrix_product(a: Array, b: Array) -> Array:
    """a @ b; integers take the way through float64 BLAS when every sum is exact there."""
    if a.dtype.kind not in "iu" or not a.size or not b.size:
        return np.matmul(a, b)
    largest = a.shape[-1] * _magnitude(a) * _magnitude(b)
    if largest >= 1 << 53:
        return np.matmul(a, b)
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return exact.astype(np.int64).astype(a.dtype)


def _magnitude(a: Array) -> int:
    return max(abs(int(a.min())), abs(int(a.max())))


def _vector_laws(lead: Shape) -> Iterator[Law]:
    """Factors per column, of one axis, go into the matrix; those of the rows' elements too."""
    a, b = (*lead, 2, 3), (3, 4)
    yield law("matmul(a, mul(b, s)) = mul(matmul(a, b), s)", "real",
              when=("dim(s, 0) == dim(b, 1)",), a=a, b=b, s=(4,))  # fmt: skip
    yield law("matmul(mul(a, s), b) = matmul(a, mul(b, reshape(s, shape=[dim(s, 0), 1])))", "real",
              when=("dim(s, 0) == dim(b, 0)", f"dim(s, 0) == dim(a, {len(a) - 1})"),
              a=a, b=b, s=(3,))  # fmt: skip


def _batch_laws(lead: Shape) -> Iterator[Law]:
    """The laws of matrices where the left operand is a batch of them, and the right one is one."""
    a, b, last = (*lead, 2, 3), (3, 4), len(lead) + 1
    yield law("matmul(matmul(a, b), c) = matmul(a, matmul(b, c))", "real", a=a, b=b, c=(4, 5))
    yield law("matmul(a, add(b, c)) = add(matmul(a, b), matmul(a, c))", "real",
              when=("shape(b) == shape(c)",), a=a, b=b, c=b)  # fmt: skip
    yield law("matmul(add(a, b), c) = add(matmul(a, c), matmul(b, c))", "real",
              when=("shape(a) == shape(b)",), a=a, b=a, c=b)  # fmt: skip
    yield law("matmul(mul(a, s), b) = mul(matmul(a, b), s)", "real", a=a, b=b, s=())
    yield law("matmul(a, mul(b, s)) = mul(matmul(a, b), s)", "real", a=a, b=b, s=())
    if len(lead) == 2:  # a batch of rank 3 has its law above
        yield law(f"matmul(a, concat(b, c, axis=1)) = concat(matmul(a, b), matmul(a, c), "
                  f"axis={last})", "exact", a=a, b=b, c=(3, 1))  # fmt: skip
    yield law("matmul(concat(a, b, axis=k), c) = concat(matmul(a, c), matmul(b, c), axis=k)",
              "exact", when=(f"k < {last}",), a=a, b=a, c=b, k=0)  # fmt: skip
    alike = tuple(f"dim(a, {axis}) == dim(c, {axis})" for axis in range(last))
    yield law(f"add(matmul(a, b), matmul(c, d)) = matmul(concat(a, c, axis={last}), "
              "concat(b, d, axis=0))", "real",
              when=(*alike, "dim(b, 1) == dim(d, 1)", f"dim(a, {last}) == dim(b, 0)"),
              a=a, b=b, c=(*lead, 2, 1), d=(1, 4))  # fmt: skip


@operator("matmul", "a", "b")
class MatMul(Op):
    """Matrix product of the last two axes; leading axes broadcast as in NumPy.

    Integers wrap around; half precision is summed in f32 and rounded once.
    """

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        require(a.dtype == b.dtype, self, "element types differ", a, b, code="WH1103")
        require(a.dtype in NUMERIC, self, f"no meaning for {a.dtype}", a, b, code="WH1103")
        require(a.rank >= 2 and b.rank >= 2, self, "both inputs need two or more axes", a, b)
        require(a.shape[-1] == b.shape[-2], self,
                f"inner dimensions are {a.shape[-1]} and {b.shape[-2]}", a, b)  # fmt: skip
        batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return a.with_shape((*batch, a.shape[-2], b.shape[-1]))

    def reference(self, a: Array, b: Array) -> Array:
        inner = compute_dtype(dtype_of(a)).numpy
        product = matrix_product(a.astype(inner, copy=False), b.astype(inner, copy=False))
        return product.astype(a.dtype, copy=False)

    def compute(self, a: Tensor, b: Tensor) -> Compute:
        k = reduce_axis(a.shape[-1], "k")
        out = self.infer(a.type, b.type)
        inner = compute_dtype(a.dtype)

        def body(*i: Expr) -> Expr:
            left = cast(broadcast_read(a, (*i[:-1], k)), inner)
            right = cast(broadcast_read(b, (*i[:-2], k, i[-1])), inner)
            return cast(sum_(left * right, k), out.dtype)

        return compute(out.shape, body, "matmul")

    axioms = (
        law("matmul(matmul(a, b), c) = matmul(a, matmul(b, c))", "real",
            a=(2, 3), b=(3, 4), c=(4, 5)),
        law("matmul(a, add(b, c)) = add(matmul(a, b), matmul(a, c))", "real",
            a=(2, 3), b=(3, 4), c=(3, 4)),
        law("matmul(add(a, b), c) = add(matmul(a, c), matmul(b, c))", "real",
            a=(2, 3), b=(2, 3), c=(3, 4)),
        # The same where the summed axis is not broadcast, so that both sides have types.
        law("matmul(a, add(b, c)) = add(matmul(a, b), matmul(a, c))", "real",
            when=("rank(b) == 2", "dim(b, 0) == dim(c, 0)"), a=(2, 3), b=(3, 4), c=(3, 4)),
        law("matmul(add(a, b), c) = add(matmul(a, c), matmul(b, c))", "real",
            when=("rank(a) == 2", "dim(a, 1) == dim(b, 1)"), a=(2, 3), b=(2, 3), c=(3, 4)),
        law("matmul(mul(a, s), b) = mul(matmul(a, b), s)", "real",
            a=(2, 3), b=(3, 4), s=()),
        law("matmul(a, mul(b, s)) = mul(matmul(a, b), s)", "real",
            a=(2, 3), b=(3, 4), s=()),
        # A factor per column goes into the right operand, one per row into the left.
        law("matmul(a, mul(b, s)) = mul(matmul(a, b), s)", "real",
            when=("dim(s, 0) == 1", "dim(s, 1) == dim(b, 1)"), a=(2, 3), b=(3, 4), s=(1, 4)),
        law("matmul(mul(a, s), b) = mul(matmul(a, b), s)", "real",
            when=("dim(s, 0) == dim(a, 0)", "dim(s, 1) == 1"), a=(2, 3), b=(3, 4), s=(2, 1)),
        law("matmul(mul(a, transpose(s, perm=[1, 0])), b) = matmul(a, mul(b, s))", "real",
            when=("dim(s, 0) == dim(b, 0)", "dim(s, 1) == 1"), a=(2, 3), b=(3, 4), s=(3, 1)),
        law("matmul(a, concat(b, c, axis=1)) = concat(matmul(a, b), matmul(a, c), axis=1)",
            "exact", a=(2, 3), b=(3, 4), c=(3, 5)),
        law("matmul(concat(a, b, axis=0), c) = concat(matmul(a, c), matmul(b, c), axis=0)",
            "exact", a=(2, 3), b=(4, 3), c=(3, 5)),
        law("matmul(a, concat(b, c, axis=1)) = concat(matmul(a, b), matmul(a, c), axis=2)",
            "exact", a=(2, 3, 5), b=(5, 4), c=(5, 1)),
        law("matmul(a, concat(b, c, axis=2)) = concat(matmul(a, b), matmul(a, c), axis=2)",
            "exact", a=(2, 3, 5), b=(2, 5, 4), c=(2, 5, 1)),
        law("matmul(a, concat(b, c, axis=3)) = concat(matmul(a, b), matmul(a, c), axis=3)",
            "exact", a=(2, 1, 3, 5), b=(2, 1, 5, 4), c=(2, 1, 5, 1)),
        law("matmul(concat(a, b, axis=1), c) = concat(matmul(a, c), matmul(b, c), axis=1)",
            "exact", a=(2, 3, 5), b=(2, 1, 5), c=(2, 5, 4)),
        law("matmul(concat(a, b, axis=2), c) = concat(matmul(a, c), matmul(b, c), axis=2)",
            "exact", a=(2, 1, 3, 5), b=(2, 1, 1, 5), c=(2, 1, 5, 4)),
        law("add(matmul(a, b), matmul(c, d)) = "
            "matmul(concat(a, c, axis=1), concat(b, d, axis=0))", "real",
            when=("dim(a, 0) == dim(c, 0)", "dim(b, 1) == dim(d, 1)", "dim(a, 1) == dim(b, 0)"),
            a=(2, 3), b=(3, 5), c=(2, 4), d=(4, 5)),
        law("transpose(matmul(a, b), perm=[0, 2, 1]) = "
            "matmul(transpose(b, perm=[0, 2, 1]), transpose(a, perm=[0, 2, 1]))", "exact",
            a=(2, 3, 4), b=(2, 4, 5)),
        law("transpose(matmul(a, b), perm=[0, 1, 3, 2]) = "
            "matmul(transpose(b, perm=[0, 1, 3, 2]), transpose(a, perm=[0, 1, 3, 2]))", "exact",
            a=(2, 1, 3, 4), b=(2, 1, 4, 5)),
        *(law for lead in ((), (2,), (2, 1)) for law in _vector_laws(lead)),
        *(law for lead in ((2,), (2, 1)) for law in _batch_laws(lead)),
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
        dtype = NUMERIC[int(rng.integers(len(NUMERIC)))] if rng.random() < 0.5 else f32
        left = (batch, m, k) if rng.random() < 0.5 else (m, k)
        return Sample(cls(), (TensorType(left, dtype), TensorType((batch, k, n), dtype)))
