"""The base of all element-wise operators: one scalar formula each, inputs broadcast as in NumPy.

A subclass says the formula as an expression, the same as a NumPy function (so that each is
tested against the other), the types it accepts and its laws; all else follows from that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np

from whet.core.dtypes import FLOATS, NUMERIC, DType, compute_dtype, dtype_of, f32
from whet.core.types import Array, Shape, TensorType, broadcast_shapes
from whet.ir.expr import Expr, call, cast
from whet.ir.tensor import Compute, Tensor, broadcast_read, compute
from whet.ops.base import Domain, Law, Numeric, Op, Sample, law, require


class Elementwise(Op):
    """Base: subclasses define `formula` over scalars, and `numpy` over arrays."""

    accepts: ClassVar[tuple[DType, ...]] = NUMERIC
    """Element types that the operator has a meaning for."""
    gives: ClassVar[DType | None] = None
    """Element type of the result when it is not that of the inputs."""
    widens: ClassVar[bool] = True
    """Half-precision operands are computed in f32 and the result is rounded once."""
    domains: ClassVar[tuple[Domain | None, ...] | None] = None
    """Where the samples' values come from, one per input, when not everything makes sense."""

    formula: Callable[..., Expr]
    """The scalar expression, in terms of one operand per input."""
    numpy: Callable[..., Array]
    """The same on whole arrays."""

    @classmethod
    def operand_dtypes(cls, dtype: DType) -> tuple[DType, ...]:
        """The element types of all inputs when the last one has type `dtype`."""
        return (dtype,) * len(cls.inputs)

    def result_dtype(self, dtype: DType) -> DType:
        """The element type of the result when the last input has type `dtype`."""
        return self.gives or dtype

    def infer(self, *types: TensorType) -> TensorType:
        dtype = types[-1].dtype
        expected = self.operand_dtypes(dtype)
        require(tuple(t.dtype for t in types) == expected, self,
                f"element types should be {', '.join(map(str, expected))}", *types,
                code="WH1103")  # fmt: skip
        require(dtype in self.accepts, self, f"no meaning for {dtype}", *types, code="WH1103")
        return TensorType(broadcast_shapes(*(t.shape for t in types)), self.result_dtype(dtype))

    def compute(self, *tensors: Tensor) -> Compute:
        out = self.infer(*(t.type for t in tensors))

        def body(*i: Expr) -> Expr:
            operands = (cast(broadcast_read(t, i), self._inner(t.dtype)) for t in tensors)
            return cast(self.formula(*operands), out.dtype)

        return compute(out.shape, body, self.name)

    def reference(self, *arrays: Array) -> Array:
        operands = (a.astype(self._inner(dtype_of(a)).numpy, copy=False) for a in arrays)
        out = self.result_dtype(dtype_of(arrays[-1]))
        return np.asarray(self.numpy(*operands)).astype(out.numpy, copy=False)

    def _inner(self, dtype: DType) -> DType:
        return compute_dtype(dtype) if self.widens else dtype

    @classmethod
    def instances(cls) -> tuple[Self, ...]:
        """Operators for the samples: the default one, and one per variant worth a test."""
        return (cls(),)

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        dtypes = cls.operand_dtypes(f32 if f32 in cls.accepts else cls.accepts[0])
        domains = cls.domains or (None,) * len(dtypes)
        broadcasting = ((3, 4),) + ((4,),) * (len(dtypes) - 1)
        return tuple(
            Sample(op, tuple(map(TensorType, shapes, dtypes)), domains)
            for op in cls.instances()
            for shapes in (broadcasting, ((2, 1, 3),) * len(dtypes))
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        dtypes = cls.operand_dtypes(cls.accepts[int(rng.integers(len(cls.accepts)))])
        shape = tuple(int(d) for d in rng.integers(1, 6, int(rng.integers(0, 4))))
        types = tuple(
            TensorType(tuple(1 if rng.random() < 0.2 else d for d in shape), dtype)
            for dtype in dtypes
        )
        instances = cls.instances()
        op = instances[int(rng.integers(len(instances)))]
        return Sample(op, types, cls.domains or (None,) * len(dtypes))


class ScalarFunction(Elementwise):
    """Base of the operators that are one function of `ir.functions` with the same name."""

    accepts = FLOATS

    def formula(self, *operands: Expr) -> Expr:
        return call(self.name, *operands)


# --------------------------------------------------------------------------------------- laws
SLICED = "starts=a, stops=b, steps=c"
CUT = "axis=k, sizes=z"
SLICE: tuple[tuple[str, Shape], ...] = (("a", (1, 0)), ("b", (2, 3)), ("c", (1, 2)))
PARTS: tuple[tuple[str, Shape | int], ...] = (("k", 1), ("z", (1, 2)))


def moves_through(name: str, *inputs: str) -> tuple[Law, ...]:
    """That an element-wise operator commutes with data movement.

    op(transpose(x)) = transpose(op(x))    op(concat(x, y)) = concat(op(x), op(y))
    op(slice(x)) = slice(op(x))            op(split(x)[n]) = split(op(x))[n]

    The movement of a variable stands first: its attributes are drawn with a shape that fits.
    """
    plain = ", ".join(inputs)
    turned = ", ".join(f"transpose({x}, perm=p)" for x in inputs)
    primed = ", ".join(f"{x}2" for x in inputs)
    joined = ", ".join(f"concat({x}, {x}2, axis=k)" for x in inputs)
    sliced = ", ".join(f"slice({x}, {SLICED})" for x in inputs)
    first: dict[str, Shape | int] = dict.fromkeys(inputs, (2, 3))
    both = first | {f"{x}2": (4, 3) for x in inputs}
    # Parts that are broadcast have other extents, so joining them means something else.
    whole = tuple(f"shape({inputs[0]}) == shape({x})" for x in inputs[1:])
    others = tuple(f"shape({inputs[0]}2) == shape({x}2)" for x in inputs[1:])

    def part(n: int) -> Law:
        cut = ", ".join(f"split({x}, {CUT})[{n}]" for x in inputs)
        return Law(f"{name}({cut}) = split({name}({plain}), {CUT})[{n}]", "exact",
                   (*first.items(), *PARTS), whole)  # fmt: skip

    return (
        Law(f"{name}({turned}) = transpose({name}({plain}), perm=p)", "exact",
            (*first.items(), ("p", (1, 0)))),
        Law(f"{name}({joined}) = concat({name}({plain}), {name}({primed}), axis=k)", "exact",
            (*both.items(), ("k", 0)), (*whole, *others)),
        Law(f"{name}({sliced}) = slice({name}({plain}), {SLICED})", "exact",
            (*first.items(), *SLICE), whole),
        part(0),
        part(1),
    )  # fmt: skip


def moves_with_scalar(name: str) -> tuple[Law, ...]:
    """That an element-wise operator with a number as its second operand commutes with data
    movement.

    op(concat(x, y), s) = concat(op(x, s), op(y, s))    op(split(x)[n], s) = split(op(x, s))[n]
    """
    return (
        law(f"{name}(transpose(x, perm=p), s) = transpose({name}(x, s), perm=p)", "exact",
            x=(2, 3), s=(), p=(1, 0)),
        law(f"{name}(concat(x, y, axis=k), s) = concat({name}(x, s), {name}(y, s), axis=k)",
            "exact", x=(2, 3), y=(4, 3), s=(), k=0),
        Law(f"{name}(slice(x, {SLICED}), s) = slice({name}(x, s), {SLICED})", "exact",
            (("x", (2, 3)), ("s", ()), *SLICE)),
        *(
            Law(f"{name}(split(x, {CUT})[{n}], s) = split({name}(x, s), {CUT})[{n}]", "exact",
                (("x", (2, 3)), ("s", ()), *PARTS))
            for n in range(2)
        ),
    )  # fmt: skip


def moves_with_broadcast(name: str) -> tuple[Law, ...]:
    """That an element-wise operator with a vector as its second operand (a bias or a factor per
    channel) commutes with concat and split: the vector is cut like the other operand along its
    own axis, and the same for all parts along others.

    op(concat(x, y, axis=k), concat(a, b, axis=k)) = concat(op(x, a), op(y, b), axis=k)
    op(concat(x, y, axis=k), a) = concat(op(x, a), op(y, a), axis=k)
    """
    x, y, parts = (2, 3), (4, 3), dict(PARTS)
    aligned = (
        law(f"{name}(concat(x, y, axis=k), concat(a, b, axis=k)) = "
            f"concat({name}(x, a), {name}(y, b), axis=k)", "exact",
            when=("dim(x, k) == dim(a, k)", "dim(y, k) == dim(b, k)"),
            x=x, y=y, a=(2, 1), b=(4, 1), k=0),
        law(f"{name}(concat(x, y, axis=k), a) = concat({name}(x, a), {name}(y, a), axis=k)",
            "exact", when=("dim(a, k) == 1",), x=x, y=y, a=(1, 3), k=0),
        *(
            law(f"{name}(split(x, {CUT})[{n}], split(a, {CUT})[{n}]) = "
                f"split({name}(x, a), {CUT})[{n}]", "exact", when=("dim(x, k) == dim(a, k)",),
                x=x, a=(1, 3), **parts)
            for n in range(2)
        ),
        *(
            law(f"{name}(split(x, {CUT})[{n}], a) = split({name}(x, a), {CUT})[{n}]", "exact",
                when=("dim(a, k) == 1",), x=x, a=(2, 1), **parts)
            for n in range(2)
        ),
    )  # fmt: skip
    return (*aligned, *(rule for rank in (2, 3, 4) for rule in _moves_with_vector(name, rank)))


def _moves_with_vector(name: str, rank: int) -> tuple[Law, ...]:
    """The same for a vector of one axis, which lies along the last one."""
    last = rank - 1
    cut = f"axis={last}, sizes=z"
    x, y = (2,) * last + (3,), (2,) * last + (1,)
    return (
        law(f"{name}(concat(x, y, axis={last}), concat(a, b, axis=0)) = "
            f"concat({name}(x, a), {name}(y, b), axis={last})", "exact",
            when=(f"dim(x, {last}) == dim(a, 0)", f"dim(y, {last}) == dim(b, 0)"),
            x=x, y=y, a=(3,), b=(1,)),
        law(f"{name}(concat(x, y, axis=k), a) = concat({name}(x, a), {name}(y, a), axis=k)",
            "exact", when=(f"k < {last}",), x=x, y=x, a=(3,), k=0),
        *(
            law(f"{name}(split(x, {cut})[{n}], split(a, axis=0, sizes=z)[{n}]) = "
                f"split({name}(x, a), {cut})[{n}]", "exact",
                when=(f"dim(x, {last}) == dim(a, 0)",), x=x, a=(3,), z=(1, 2))
            for n in range(2)
        ),
        *(
            law(f"{name}(split(x, {CUT})[{n}], a) = split({name}(x, a), {CUT})[{n}]", "exact",
                when=(f"k < {last}",), x=x, a=(3,), k=0, z=(1, 1))
            for n in range(2)
        ),
    )  # fmt: skip


def commutes(name: str) -> Law:
    return law(f"{name}(x, y) = {name}(y, x)", "exact", x=(2, 3), y=(2, 3))


def associates(name: str, numeric: Numeric = "exact") -> Law:
    return law(f"{name}({name}(x, y), z) = {name}(x, {name}(y, z))", numeric,
               x=(2, 3), y=(2, 3), z=(2, 3))  # fmt: skip


def reorders_vectors(name: str) -> tuple[Law, ...]:
    """The same for vectors that lie along the last axis of x, and past another tensor like x."""
    shapes: tuple[Shape, ...] = ((2, 3), (2, 2, 3), (2, 1, 2, 3))
    return (
        *(
            law(f"{name}({name}(x, a), b) = {name}(x, {name}(a, b))", "real", x=x, a=(3,), b=(3,))
            for x in shapes
        ),
        *(
            law(f"{name}({name}(x, a), y) = {name}({name}(x, y), a)", "real", x=x, a=(3,), y=x)
            for x in shapes
        ),
    )


def odd(name: str, numeric: Numeric = "real") -> Law:
    return law(f"{name}(neg(x)) = neg({name}(x))", numeric, x=(2, 3))


def even(name: str, numeric: Numeric = "real") -> Law:
    return law(f"{name}(neg(x)) = {name}(x)", numeric, x=(2, 3))


def idempotent(name: str) -> Law:
    return law(f"{name}({name}(x)) = {name}(x)", "exact", x=(2, 3))
