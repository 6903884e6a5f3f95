"""Terms over another kind of number: residues, polynomials.

The operators' tensor expressions are evaluated on whole iteration domains, as in
`whet.ir.evaluate`, but floating-point elements are elements of a `Ring`.  Index arithmetic
stays what it is; it depends on shapes alone, so it is done once for an operator and its types,
whatever the ring and however often the elements are drawn.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np

from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Input, Value, make_input, topological
from whet.graph.terms import Apply, Number, Variable
from whet.ir.expr import Axis, Binary, Call, Cast, Const, Expr, Read, Reduce, Select
from whet.ir.functions import FUNCTIONS, INFIX, REDUCERS
from whet.ir.tensor import Compute, Tensor, placeholder, stages, subexpressions
from whet.ops.base import Op
from whet.superopt.verify.steps import Typed


class NoMeaning(Exception):  # noqa: N818 - an answer, not a failure
    """The value is no function of ring elements (it casts data to integers, sorts, loops)."""


class DivisionByZero(Exception):  # noqa: N818 - a draw to be repeated
    """A denominator happened to be zero."""


class Ring(Protocol):
    """Numbers with exact sums and products; arrays of them are NumPy arrays."""

    def numbers(self, values: Sequence[float]) -> Array:
        """Known numbers, one after the other."""

    def integers(self, values: Array) -> Array:
        """Known integers."""

    def infix(self, op: str, left: Array, right: Array) -> Array:
        """An arithmetic operator (add, sub, mul, div) or a comparison."""

    def function(self, name: str, values: Sequence[Array]) -> Array:
        """A function of `ir.functions`."""

    def choose(self, condition: Array, then: Array, other: Array) -> Array:
        """Elements of `then` where the condition holds, which may be unknown."""

    def total(self, values: Array, dims: tuple[int, ...]) -> Array:
        """Sums over the dimensions, which stay with extent 1."""

    def contract(self, left: Array, right: Array, dims: tuple[int, ...]) -> Array:
        """Sums of products over the dimensions, which stay with extent 1.

        The operands have all dimensions, of extent 1 where they do not depend on one; each of
        `dims` has its full extent in one of them.
        """

    def extreme(self, kind: str, parts: Array) -> Array:
        """The `max` or `min` over the first dimension."""


def simple_fraction(value: float) -> Fraction:
    """The number that a float stands for: one that rounds a simple fraction is that fraction."""
    exact = Fraction(value)
    simple = exact.limit_denominator(1 << 16)
    if float(simple) == value:
        return simple
    single = np.float32(float(simple)) == np.float32(value)
    return simple if single and simple.denominator < 1 << 8 else exact


# ------------------------------------------------------------------------------------- programs
@dataclass(frozen=True, eq=False)
class _Program:
    """An operator on inputs of known types, as stages of tensor expressions.

    `places` keeps index arithmetic and positions of reads, by stage: what no element changes.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    stages: tuple[Compute, ...]
    places: dict[tuple[Compute, Expr], Array] = field(default_factory=dict)

    def run(self, arrays: Sequence[Array], ring: Ring) -> list[Array]:
        known = dict[Tensor, Array](zip(self.inputs, arrays))
        for stage in self.stages:
            known[stage] = _Stage(stage, known, ring, self).run()
        return [known[t] for t in self.outputs]

    @property
    def opaque(self) -> bool:
        return any(map(_opaque_stage, self.stages))

    @property
    def points(self) -> int:
        return sum(math.prod(axis.extent for axis in _dimensions(s)) for s in self.stages)


@dataclass(frozen=True, eq=False)
class _Expansion:
    """An operator that is defined by simpler ones."""

    inputs: tuple[Input, ...]
    values: tuple[Value, ...]

    def run(self, arrays: Sequence[Array], ring: Ring) -> list[Array]:
        known = dict[Value, Array](zip(self.inputs, arrays))

        def read(value: Value) -> Array:
            if value not in known and isinstance(value, Constant):
                known[value] = _constant(value.array, ring)
            return known[value]

        for node in topological(self.values):
            types = tuple(v.tensor_type for v in node.inputs)
            results = _meaning(node.op, types).run([read(v) for v in node.inputs], ring)
            known.update(zip(node.results, results, strict=True))
        return [read(v) for v in self.values]

    @property
    def opaque(self) -> bool:
        return any(
            _meaning(node.op, tuple(v.tensor_type for v in node.inputs)).opaque
            for node in topological(self.values)
        )

    @property
    def points(self) -> int:
        return sum(
            _meaning(node.op, tuple(v.tensor_type for v in node.inputs)).points
            for node in topological(self.values)
        )


@functools.lru_cache(maxsize=256)
def _meaning(op: Op, types: tuple[TensorType, ...]) -> _Program | _Expansion:
    """The tensor expressions of the operator on inputs of these types."""
    if op.expand is not None:
        given = tuple(make_input(f"t{n}", t) for n, t in enumerate(types))
        expanded = op.expand(GraphBuilder(), *given)
        return _Expansion(given, expanded if isinstance(expanded, tuple) else (expanded,))
    if op.compute is None:
        raise NoMeaning(f"{op.name} has no tensor expression")
    inputs = tuple(placeholder(t.shape, t.dtype, f"t{n}") for n, t in enumerate(types))
    outputs = op.compute_tensors(inputs)
    return _Program(inputs, outputs, tuple(s for s in stages(outputs) if isinstance(s, Compute)))


def _constant(array: Array, ring: Ring) -> Array:
    if array.dtype.kind != "f":
        return array
    return ring.numbers([float(v) for v in array.ravel()]).reshape(array.shape)


def evaluate_typed(given: Typed, inputs: Mapping[str, Array], ring: Ring) -> list[Array]:
    """The elements of the terms' results, given those of the tensor variables."""
    results: list[list[Array]] = []
    for n, step in enumerate(given.steps.steps):
        match step.term:
            case Variable(name=name):
                results.append([inputs[name]])
            case Number(value=value):
                results.append([ring.numbers([float(value)]).reshape(())])
            case Apply(result=result):
                arrays = [a for i in step.inputs for a in results[i]]
                found = _meaning(*_applied(given, n)).run(arrays, ring)
                results.append(found if result is None else [found[result]])
    return [a for n in given.steps.outputs for a in results[n]]


def is_opaque(given: Typed) -> bool:
    """Whether some result is more than sums, products and quotients of the inputs."""
    try:
        return any(_meaning(*_applied(given, n)).opaque for n in given.steps.applied)
    except NoMeaning:
        return True


def _applied(given: Typed, n: int) -> tuple[Op, tuple[TensorType, ...]]:
    """The operator of a step and the types it is applied to."""
    op = given.ops[n]
    assert op is not None
    types = (t for i in given.steps.steps[n].inputs for t in given.types[i])
    return op, tuple(t for t in types if isinstance(t, TensorType))


def effort(given: Typed) -> int:
    """The points at which tensor expressions are evaluated, those of all operators together."""
    try:
        return sum(_meaning(*_applied(given, n)).points for n in given.steps.applied)
    except NoMeaning:
        return 0


def _opaque_stage(stage: Tensor) -> bool:
    if not isinstance(stage, Compute):
        return False
    for e in subexpressions(stage.body):
        match e:
            case Binary(op=op, left=left) if left.dtype.is_float:
                if op not in ("add", "sub", "mul", "div"):
                    return True
            case Call(name=name, args=args) if args[0].dtype.is_float:
                if name != "neg":
                    return True
            case Reduce(kind=kind, value=value) if value.dtype.is_float:
                if kind not in ("sum", "prod"):
                    return True
    return False


@functools.lru_cache(maxsize=2048)
def _dimensions(stage: Compute) -> dict[Axis, int]:
    """The dimension of every axis: those of the result, then those that are reduced."""
    reduced: dict[Axis, None] = {}
    for e in subexpressions(stage.body):
        if isinstance(e, Reduce):
            reduced.update(dict.fromkeys(e.axes))
    return {axis: n for n, axis in enumerate((*stage.axes, *reduced))}


class _Stage:
    """Evaluates one stage on its whole iteration domain: one dimension per axis."""

    def __init__(
        self, stage: Compute, arrays: Mapping[Tensor, Array], ring: Ring, program: _Program
    ) -> None:
        self.stage, self.arrays, self.ring, self.program = stage, arrays, ring, program
        self.dims = _dimensions(stage)
        self.memo: dict[Expr, Array] = {}

    def run(self) -> Array:
        value = self.value(self.stage.body)
        value = value.reshape(value.shape[: len(self.stage.axes)])
        return np.broadcast_to(value, self.stage.shape)

    def value(self, e: Expr) -> Array:
        found = self.memo.get(e)
        if found is None:
            fixed = self.program.places if _fixed(e) else None
            found = None if fixed is None else fixed.get((self.stage, e))
            if found is None:
                found = self._compute(e)
                if fixed is not None:
                    fixed[self.stage, e] = found
            self.memo[e] = found
        return found

    def _compute(self, e: Expr) -> Array:
        match e:
            case Const(value=value, dtype=dtype):
                ones = (1,) * len(self.dims)
                if dtype.is_float:
                    return self.ring.numbers([float(value)]).reshape(ones)
                return np.full(ones, value)
            case Axis(extent=extent):
                shape = [1] * len(self.dims)
                shape[self.dims[e]] = extent
                return np.arange(extent).reshape(shape)
            case Binary(op=op, left=left, right=right):
                a, b = self.value(left), self.value(right)
                data = left.dtype.is_float
                return self.ring.infix(op, a, b) if data else np.asarray(INFIX[op].numpy(a, b))
            case Call(name=name, args=args):
                values = [self.value(a) for a in args]
                if args[0].dtype.is_float:
                    return self.ring.function(name, values)
                return np.asarray(FUNCTIONS[name](*values))
            case Cast(value=value, dtype=dtype):
                return self._cast(value, dtype.is_float)
            case Select(condition=condition, then=then, other=other):
                chosen = self.value(condition), self.value(then), self.value(other)
                return self.ring.choose(*chosen) if then.dtype.is_float else np.where(*chosen)
            case Read():
                return self._read(e)
            case Reduce():
                return self._reduce(e)
        raise NoMeaning(f"{type(e).__name__} of data")

    def _cast(self, value: Expr, to_float: bool) -> Array:
        inner = self.value(value)
        if value.dtype.is_float:
            if not to_float:
                raise NoMeaning("data become integers")
            return inner
        return self.ring.integers(inner) if to_float else inner

    def _read(self, e: Read) -> Array:
        array = self.arrays[e.tensor]
        if not e.indices:
            return array.reshape((1,) * len(self.dims))
        if not all(map(_fixed, e.indices)):
            return np.asarray(array.reshape(-1)[self._places(e)])
        key = (self.stage, e)
        if key not in self.program.places:
            self.program.places[key] = self._places(e)
        return np.asarray(array.reshape(-1)[self.program.places[key]])

    def _places(self, e: Read) -> Array:
        """The places of the elements in memory order.

        Positions outside are those of a select's other side: any element will do.
        """
        places: Array = np.zeros((1,) * len(self.dims), np.int64)
        for i, extent in zip(e.indices, e.tensor.shape):
            places = places * extent + np.clip(self.value(i), 0, max(extent - 1, 0))
        return places

    def _reduce(self, e: Reduce) -> Array:
        dims = tuple(self.dims[a] for a in e.axes)
        if e.kind == "sum" and e.value.dtype.is_float:
            inner = e.value
            while isinstance(inner, Cast) and inner.value.dtype.is_float:
                inner = inner.value
            if isinstance(inner, Binary) and inner.op == "mul":
                left, right = self.value(inner.left), self.value(inner.right)
                if all(max(left.shape[d], right.shape[d]) == a.extent
                       for a, d in zip(e.axes, dims)):  # fmt: skip
                    return self.ring.contract(left, right, dims)
        value = self.value(e.value)
        shape = list(value.shape)
        for axis, dim in zip(e.axes, dims):
            shape[dim] = axis.extent
        value = np.broadcast_to(value, shape)
        if not e.value.dtype.is_float:
            if e.kind not in REDUCERS:
                raise NoMeaning(e.kind)
            return np.asarray(REDUCERS[e.kind].reduce(value, axis=dims, keepdims=True))
        if e.kind == "sum":
            return self.ring.total(value, dims)
        kept = [d for n, d in enumerate(value.shape) if n not in dims]
        parts = np.moveaxis(value, dims, range(len(dims))).reshape(-1, *kept)
        if e.kind in ("max", "min"):
            result = self.ring.extreme(e.kind, parts)
        elif e.kind == "prod":
            result = functools.reduce(functools.partial(self.ring.infix, "mul"), parts)
        else:
            raise NoMeaning(e.kind)
        return np.expand_dims(result, tuple(sorted(dims)))


@functools.lru_cache(maxsize=1 << 14)
def _fixed(e: Expr) -> bool:
    """Whether the value depends on positions alone, not on elements."""
    return not e.dtype.is_float and not isinstance(e, Read) and all(map(_fixed, e.children()))
