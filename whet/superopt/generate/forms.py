"""From an operator's own tensor expression to a table that a small loop can evaluate.

Every operator of the alphabet is, element by element, a sum of products of at most one element
of either input (`add`, `matmul`, `conv`, `concat`, ...), or such a sum seen through an opaque
function (`relu`), or a maximum over a window or of two elements.  `make_form` reads this off
`op.compute`, so the generator has no meaning of operators of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from whet.core.dtypes import f32
from whet.core.types import Array, Shape
from whet.ir.expr import Axis, Binary, Call, Cast, Const, Expr, Read, Reduce, Select, const
from whet.ir.functions import FUNCTIONS, INFIX
from whet.ir.tensor import Compute, Placeholder, Tensor, placeholder, stages, subexpressions
from whet.ops.base import Op
from whet.superopt.generate.field import PRIME, inverse, residue

FormKind = Literal["polynomial", "relu", "inverse", "pointwise", "window", "larger", "smaller"]
ABSENT = -1
MINUS_ONE = np.array(PRIME - 1)
ZERO = const(0, f32)
ONE = const(1, f32)


class NotPolynomialError(ValueError):
    """The operator is not of a kind that the generator can evaluate."""


@dataclass(frozen=True, eq=False, slots=True)
class Form:
    """One output: element e is the sum over t in [start[e], start[e + 1]) of
    factor[t] * left[first[t]] * right[second[t]].

    The index of an absent operand is the size of that input: data rows end with a 1.
    `relu`, `inverse` (one divided by it) and `pointwise` (any other function) are seen through
    that function; `window` is the maximum over the products instead of their sum, and `larger` and
    `smaller` are those of an element of one input and one of the other.
    """

    shape: Shape
    kind: FormKind
    start: Array
    first: Array
    second: Array
    factor: Array
    plain: bool
    """All factors are 1."""

    def at(self, positions: Array) -> Form:
        """The same with only these elements."""
        counts = (self.start[1:] - self.start[:-1])[positions]
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        terms = np.concatenate(
            [np.arange(self.start[p], self.start[p + 1]) for p in positions] or [np.zeros(0)]
        ).astype(np.int64)
        return Form(self.shape, self.kind, start, self.first[terms], self.second[terms],
                    self.factor[terms], self.plain)  # fmt: skip


def make_forms(op: Op, shapes: Sequence[Shape]) -> tuple[Form, ...]:
    """The forms of the operator's outputs for inputs of these shapes (at most two).

    Raises `NotPolynomialError` for an operator that is not of this kind.
    """
    if op.compute is None or len(shapes) > 2:
        raise NotPolynomialError(f"{op.name} has no tensor expression over at most two inputs")
    inputs = tuple(placeholder(s, f32, f"in{n}") for n, s in enumerate(shapes))
    known: dict[Tensor, _Sum] = {}
    outputs = op.compute_tensors(inputs)
    for stage in stages(outputs):
        if isinstance(stage, Compute) and stage not in outputs:
            known[stage] = _Reader(known, inputs, stage).sum(stage.body).on(stage.shape)
    sizes = [int(np.prod(s)) for s in shapes] + [0, 0]
    return tuple(_output(op, t, known, inputs, sizes) for t in outputs)


def _output(
    op: Op, stage: Tensor, known: Mapping[Tensor, _Sum], inputs: tuple[Placeholder, ...],
    sizes: Sequence[int],
) -> Form:  # fmt: skip
    assert isinstance(stage, Compute), op.name
    reader = _Reader(known, inputs, stage)
    kind: FormKind = "polynomial"
    try:
        found = reader.sum(stage.body)
    except NotPolynomialError:
        kind, found = _opaque(op, stage, reader)
    found = found.on(stage.shape)
    layers, elements = found.factor.shape[0], int(np.prod(stage.shape))
    factor, first, second = (
        a.reshape(layers, elements).T for a in (found.factor, found.first, found.second)
    )
    kept = factor != 0
    start = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64)
    factor, first, second = factor[kept], first[kept], second[kept]
    return Form(
        stage.shape, kind, start,
        np.where(first == ABSENT, sizes[0], first).astype(np.int32),
        np.where(second == ABSENT, sizes[1], second).astype(np.int32),
        factor.astype(np.uint64), bool((factor == 1).all()),
    )  # fmt: skip


def _opaque(op: Op, stage: Compute, reader: _Reader) -> tuple[FormKind, _Sum]:
    """A maximum over a window, or any function of one element."""
    body = stage.body
    if isinstance(body, Reduce) and body.kind == "max":
        return "window", reader.over(body.axes, reader.sum(body.value))
    match body:
        case Call(name="max" | "min" as name, args=(Read() as a, Read() as b)):
            kind: FormKind = "larger" if name == "max" else "smaller"
            return kind, _times(reader.sum(a), reader.sum(b))
    reads = [e for e in subexpressions(body) if isinstance(e, Read)]
    if len(reads) != 1:
        raise NotPolynomialError(f"{op.name} is neither a sum of products nor a known function")
    kind = "pointwise"
    if isinstance(body, Call) and body.name == "max" and body.args == (reads[0], ZERO):
        kind = "relu"
    elif isinstance(body, Binary) and body.op == "div" and body.right is reads[0]:
        kind = "inverse" if body.left == ONE else "pointwise"
    return kind, reader.sum(reads[0])


@dataclass(frozen=True, eq=False, slots=True)
class _Sum:
    """A sum of products at every point of an iteration domain: arrays [terms, *domain]."""

    factor: Array
    first: Array
    second: Array

    def on(self, shape: Shape) -> _Sum:
        """Broadcast to exactly these spatial extents (further dimensions must be 1)."""
        target = (self.factor.shape[0], *shape)

        def fit(a: Array) -> Array:
            return np.broadcast_to(a.reshape(a.shape[: 1 + len(shape)]), target)

        return _Sum(fit(self.factor), fit(self.first), fit(self.second))

    def scaled(self, by: Array) -> _Sum:
        factor = self.factor * by % PRIME
        return _Sum(factor, *(np.broadcast_to(a, factor.shape) for a in (self.first, self.second)))


def _plus(a: _Sum, b: _Sum) -> _Sum:
    domain = np.broadcast_shapes(a.factor.shape[1:], b.factor.shape[1:])

    def join(x: Array, y: Array) -> Array:
        return np.concatenate([np.broadcast_to(v, (len(v), *domain)) for v in (x, y)])

    return _Sum(join(a.factor, b.factor), join(a.first, b.first), join(a.second, b.second))


def _times(a: _Sum, b: _Sum) -> _Sum:
    rank = a.factor.ndim - 1

    def outer(x: Array, y: Array) -> tuple[Array, Array]:
        return x[:, None], y[None, :]

    f, g = outer(a.factor, b.factor)
    factor = f * g % PRIME
    merged = []
    for x, y in ((a.first, b.first), (a.second, b.second)):
        left, right = outer(x, y)
        if ((left != ABSENT) & (right != ABSENT) & (factor != 0)).any():
            raise NotPolynomialError("a product of two elements of one input")
        merged.append(np.broadcast_to(np.maximum(left, right), factor.shape))
    flat = (-1, *factor.shape[2 : 2 + rank])
    return _Sum(factor.reshape(flat), merged[0].reshape(flat), merged[1].reshape(flat))


class _Reader:
    """Reads expressions of one stage; arrays have one dimension per axis of the stage."""

    def __init__(
        self, known: Mapping[Tensor, _Sum], inputs: tuple[Placeholder, ...], stage: Compute
    ) -> None:
        reduced: dict[Axis, None] = {}
        for e in subexpressions(stage.body):
            if isinstance(e, Reduce):
                reduced.update(dict.fromkeys(e.axes))
        self.dims = {axis: n for n, axis in enumerate((*stage.axes, *reduced))}
        self.known, self.inputs = known, inputs

    # ----------------------------------------------------------------- integers and conditions
    def number(self, e: Expr) -> Array:
        """The value of an expression that reads no tensor."""
        match e:
            case Const(value=value):
                return np.full((1,) * len(self.dims), value)
            case Axis(extent=extent):
                shape = [1] * len(self.dims)
                shape[self.dims[e]] = extent
                return np.arange(extent).reshape(shape)
            case Binary(op=op, left=left, right=right):
                return np.asarray(INFIX[op].numpy(self.number(left), self.number(right)))
            case Call(name=name, args=args):
                return np.asarray(FUNCTIONS[name](*map(self.number, args)))
            case Select(condition=condition, then=then, other=other):
                return np.where(*map(self.number, (condition, then, other)))
            case Cast(value=value) if e.dtype.is_integer:
                return self.number(value)
        raise NotPolynomialError(f"{e} is no index")

    # --------------------------------------------------------------------------- real numbers
    def sum(self, e: Expr) -> _Sum:
        """The expression as a sum of products of input elements."""
        match e:
            case Const(value=value):
                return self._constant(np.full((1,) * len(self.dims), self._residue(value)))
            case Cast(value=value) if value.dtype.is_integer:
                return self._constant(self.number(value) % PRIME)
            case Cast(value=value):
                return self.sum(value)
            case Read():
                return self._read(e)
            case Binary(op="add", left=left, right=right):
                return _plus(self.sum(left), self.sum(right))
            case Binary(op="sub", left=left, right=right):
                return _plus(self.sum(left), self.sum(right).scaled(MINUS_ONE))
            case Binary(op="mul", left=left, right=right):
                return _times(self.sum(left), self.sum(right))
            case Binary(op="div", left=left, right=right):
                return self.sum(left).scaled(inverse(self._plain_factor(right)))
            case Call(name="neg", args=(value,)):
                return self.sum(value).scaled(MINUS_ONE)
            case Select(condition=condition, then=then, other=other):
                holds = self.number(condition).astype(np.int64)
                return _plus(self.sum(then).scaled(holds), self.sum(other).scaled(1 - holds))
            case Reduce(kind="sum", axes=axes, value=value):
                return self.over(axes, self.sum(value))
        raise NotPolynomialError(f"{e} is no sum of products")

    def over(self, axes: Sequence[Axis], value: _Sum) -> _Sum:
        """The terms at all positions of the axes, side by side."""
        dims = [1 + self.dims[a] for a in axes]
        full = list(value.factor.shape)
        for axis, dim in zip(axes, dims):
            full[dim] = axis.extent

        def gather(a: Array) -> Array:
            wide = np.moveaxis(np.broadcast_to(a, full), dims, range(1, 1 + len(dims)))
            wide = wide.reshape(-1, *wide.shape[1 + len(dims) :])
            return np.expand_dims(wide, tuple(sorted(dims)))

        return _Sum(gather(value.factor), gather(value.first), gather(value.second))

    @staticmethod
    def _residue(value: float) -> int:
        # What fills the outside of a maximum is never chosen: an empty sum.
        return 0 if np.isinf(value) else residue(value)

    def _constant(self, factor: Array) -> _Sum:
        absent = np.full((1, *factor.shape), ABSENT)
        return _Sum(factor[None].astype(np.int64), absent, absent)

    def _plain_factor(self, e: Expr) -> Array:
        """The value of a divisor, which reads no tensor."""
        found = self.sum(e)
        if (
            len(found.factor) != 1
            or (found.first != ABSENT).any()
            or (found.second != ABSENT).any()
        ):
            raise NotPolynomialError("a division by an element")
        return found.factor

    def _read(self, e: Read) -> _Sum:
        at = np.zeros((1,) * len(self.dims), np.int64)
        for index, extent in zip(e.indices, e.tensor.shape, strict=True):
            # A read under a condition may lie outside where the condition does not hold.
            at = at * extent + np.clip(self.number(index), 0, extent - 1)
        if e.tensor in self.known:
            source = self.known[e.tensor]
            flat = (
                a.reshape(len(a), -1)[:, at] for a in (source.factor, source.first, source.second)
            )
            return _Sum(*flat)
        one, absent = np.ones_like(at)[None], np.full_like(at, ABSENT)[None]
        return _Sum(
            one, *((at[None] if e.tensor is t else absent) for t in (*self.inputs, None, None)[:2])
        )
