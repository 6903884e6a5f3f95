"""Element-wise operators: one scalar formula each, inputs broadcast as in NumPy.

A class here says the formula as an expression, the same as a NumPy function (so that each is
tested against the other), the types it accepts and its laws; all else follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from whet.core.dtypes import NUMERIC, DType, bool_, compute_dtype, dtype_of, f32
from whet.core.types import Array, TensorType, broadcast_shapes
from whet.ir.expr import Expr, call, cast, equal
from whet.ir.tensor import Compute, Tensor, broadcast_read, compute
from whet.ops.base import Domain, NoAlgebra, Op, Sample, law, operator, require


class Elementwise(Op):
    """Base: subclasses define `formula` over scalars of one element type.

    Half-precision inputs are computed in f32 and rounded once at the end.
    """

    accepts: ClassVar[tuple[DType, ...]] = NUMERIC
    gives: ClassVar[DType | None] = None
    """Element type of the result when it is not that of the inputs."""
    domain: ClassVar[Domain | None] = None
    """Where the samples' values come from, for functions that are not defined everywhere."""

    formula: Callable[..., Expr]
    """The scalar expression, in terms of one operand per input."""
    numpy: Callable[..., Array]
    """The same on whole arrays."""

    def infer(self, *types: TensorType) -> TensorType:
        first = types[0]
        require(all(t.dtype == first.dtype for t in types), self, "element types differ", *types,
                code="WH1103")  # fmt: skip
        require(first.dtype in self.accepts, self, f"no meaning for {first.dtype}", *types,
                code="WH1103")  # fmt: skip
        shape = broadcast_shapes(*(t.shape for t in types))
        return TensorType(shape, self.gives or first.dtype)

    def compute(self, *tensors: Tensor) -> Compute:
        out = self.infer(*(t.type for t in tensors))
        inner = compute_dtype(tensors[0].dtype)

        def body(*i: Expr) -> Expr:
            operands = (cast(broadcast_read(t, i), inner) for t in tensors)
            return cast(self.formula(*operands), out.dtype)

        return compute(out.shape, body, self.name)

    def reference(self, *arrays: Array) -> Array:
        dtype = dtype_of(arrays[0])
        inner = compute_dtype(dtype).numpy
        result = self.numpy(*(a.astype(inner, copy=False) for a in arrays))
        return np.asarray(result).astype((self.gives or dtype).numpy, copy=False)

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        arity = len(cls.inputs)
        dtype = f32 if f32 in cls.accepts else cls.accepts[0]
        shapes = ((3, 4),) + ((4,),) * (arity - 1)
        return (
            Sample(cls(), tuple(TensorType(s, dtype) for s in shapes), (cls.domain,) * arity),
            Sample(cls(), (TensorType((2, 1, 3), dtype),) * arity, (cls.domain,) * arity),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        dtype = cls.accepts[int(rng.integers(len(cls.accepts)))]
        shape = tuple(int(d) for d in rng.integers(1, 6, int(rng.integers(0, 4))))
        types = tuple(
            TensorType(tuple(1 if rng.random() < 0.2 else d for d in shape), dtype)
            for _ in cls.inputs
        )
        return Sample(cls(), types, (cls.domain,) * len(cls.inputs))


@operator("add", "x", "y")
class Add(Elementwise):
    """x + y."""

    def formula(self, x: Expr, y: Expr) -> Expr:
        return x + y

    numpy = staticmethod(np.add)
    axioms = (
        law("add(x, y) = add(y, x)", "exact", x=(2, 3), y=(2, 3)),
        law("add(add(x, y), z) = add(x, add(y, z))", "real", x=(2, 3), y=(2, 3), z=(2, 3)),
    )


@operator("relu", "x")
class Relu(Elementwise):
    """max(x, 0)."""

    def formula(self, x: Expr) -> Expr:
        return call("max", x, 0)

    @staticmethod
    def numpy(x: Array) -> Array:
        return np.maximum(x, 0)

    axioms = (law("relu(relu(x)) = relu(x)", "exact", x=(2, 3)),)


@operator("equal", "x", "y")
class Equal(Elementwise):
    """x == y."""

    accepts = (*NUMERIC, bool_)
    gives = bool_

    def formula(self, x: Expr, y: Expr) -> Expr:
        return equal(x, y)

    numpy = staticmethod(np.equal)
    axioms = NoAlgebra("comparisons take no part in rewrites")
