"""Einstein summation."""

from __future__ import annotations

import string
from itertools import chain

import numpy as np

from whet.core.dtypes import NUMERIC, compute_dtype, dtype_of, f32
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr, cast
from whet.ir.tensor import Compute, Tensor, broadcast_read, compute, reduce_axis, sum_
from whet.ops.base import Op, Sample, law, operator, require


@operator("einsum", "*xs")
class Einsum(Op):
    """The product of all inputs, each indexed by its letters, summed over the letters that
    the result does not have.

    `equation` names every axis with one letter and gives the result explicitly, as in
    `"bij,bjk->bik"`; a letter that stands twice in one input takes its diagonal, and extents
    of 1 broadcast.
    """

    equation: str

    def terms(self) -> tuple[tuple[str, ...], str]:
        """The letters of each input, and those of the result."""
        left, arrow, result = self.equation.partition("->")
        found = tuple(left.split(","))
        sound = (
            bool(arrow)
            and all(c in string.ascii_letters for c in chain(*found, result))
            and len(set(result)) == len(result)
            and set(result) <= set(chain(*found))
        )
        require(sound, self, f"equation '{self.equation}' is not explicit", code="WH1104")
        return found, result

    def extents(self, *types: TensorType) -> dict[str, int]:
        """The extent of every letter, in order of appearance."""
        operands, _ = self.terms()
        require(len(operands) == len(types) and bool(types), self,
                f"equation '{self.equation}' has {len(operands)} inputs", *types)  # fmt: skip
        found: dict[str, int] = {}
        for letters, t in zip(operands, types):
            require(len(letters) == t.rank, self,
                    f"'{letters}' does not name {t.rank} axes", *types)  # fmt: skip
            for letter, extent in zip(letters, t.shape):
                known = found.get(letter, 1)
                require(extent == known or 1 in (extent, known), self,
                        f"'{letter}' is both {known} and {extent}", *types)  # fmt: skip
                found[letter] = extent if known == 1 else known
        return found

    def infer(self, *xs: TensorType) -> TensorType:
        extents = self.extents(*xs)
        dtype = xs[0].dtype
        require(all(t.dtype == dtype for t in xs), self, "element types differ", *xs,
                code="WH1103")  # fmt: skip
        require(dtype in NUMERIC, self, f"no meaning for {dtype}", *xs, code="WH1103")
        return TensorType(tuple(extents[c] for c in self.terms()[1]), dtype)

    def reference(self, *xs: Array) -> Array:
        dtype = dtype_of(xs[0])
        inner = compute_dtype(dtype).numpy
        extents = self.extents(*(TensorType(x.shape, dtype) for x in xs))
        operands = []
        for letters, x in zip(self.terms()[0], xs):
            shape = tuple(extents[c] for c in letters)
            operands.append(np.broadcast_to(x.astype(inner, copy=False), shape))
        result = np.einsum(self.equation, *operands, optimize="greedy")
        return np.asarray(result).astype(dtype.numpy)

    def compute(self, *xs: Tensor) -> Compute:
        operands, result = self.terms()
        out = self.infer(*(x.type for x in xs))
        inner = compute_dtype(out.dtype)
        reduced = {
            c: reduce_axis(n, f"k{m}")
            for m, (c, n) in enumerate(self.extents(*(x.type for x in xs)).items())
            if c not in result
        }

        def body(*i: Expr) -> Expr:
            at: dict[str, Expr] = {**reduced, **dict(zip(result, i))}
            factors = [
                cast(broadcast_read(x, [at[c] for c in letters]), inner)
                for letters, x in zip(operands, xs)
            ]
            product = factors[0]
            for factor in factors[1:]:
                product = product * factor
            return cast(sum_(product, *reduced.values()), out.dtype)

        return compute(out.shape, body, "einsum")

    axioms = (
        law('einsum(a, b, equation="ij,jk->ik") = matmul(a, b)', "real", a=(2, 3), b=(3, 4)),
        law('einsum(a, b, equation="bij,bjk->bik") = matmul(a, b)', "real",
            a=(2, 3, 4), b=(2, 4, 5)),
        law('einsum(a, b, equation="bij,bkj->bik") = matmul(a, transpose(b, perm=[0, 2, 1]))',
            "real", a=(2, 3, 4), b=(2, 5, 4)),
        law('einsum(x, equation="ijk->kij") = transpose(x, perm=[2, 0, 1])', "exact",
            x=(2, 3, 4)),
        law('einsum(a, add(b, c), equation="ij,jk->ik") = '
            'add(einsum(a, b, equation="ij,jk->ik"), einsum(a, c, equation="ij,jk->ik"))',
            "real", when=("shape(b) == shape(c)",), a=(2, 3), b=(3, 4), c=(3, 4)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls("bij,bjk->bik"), (TensorType((2, 3, 4), f32), TensorType((2, 4, 5), f32))),
            Sample(cls("bhqd,bhkd->bhqk"), (TensorType((1, 2, 3, 4), f32),
                                            TensorType((1, 2, 5, 4), f32))),
            Sample(cls("ii->"), (TensorType((4, 4), f32),)),
        )  # fmt: skip

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        letters = "abcde"
        extents = {c: int(rng.integers(1, 5)) for c in letters}
        operands = [
            "".join(rng.choice(list(letters), int(rng.integers(0, 4))))
            for _ in range(int(rng.integers(1, 4)))
        ]
        used = sorted(set("".join(operands)))
        kept = [str(c) for c in rng.permutation(used)[: int(rng.integers(0, len(used) + 1))]]
        types = tuple(TensorType(tuple(extents[c] for c in term), f32) for term in operands)
        return Sample(cls(f"{','.join(operands)}->{''.join(kept)}"), types)
