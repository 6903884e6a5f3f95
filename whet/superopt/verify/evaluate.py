"""Graph values over another kind of number: residues, polynomials.

The operators' tensor expressions are evaluated on whole iteration domains, as in
`whet.ir.evaluate`, but floating-point elements are elements of a `Ring`.  Index arithmetic
stays what it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np

from whet.core.types import Array
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Node, Value, topological
from whet.ir.expr import Axis, Binary, Call, Cast, Const, Expr, Read, Reduce, Select
from whet.ir.functions import FUNCTIONS, INFIX, REDUCERS
from whet.ir.tensor import Compute, Placeholder, Tensor, placeholder, stages, subexpressions


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


def simple_fraction(value: float) -> Fraction:
    """The number that a float stands for: one that rounds a simple fraction is that fraction."""
    exact = Fraction(value)
    simple = exact.limit_denominator(1 << 16)
    if float(simple) == value:
        return simple
    single = np.float32(float(simple)) == np.float32(value)
    return simple if single and simple.denominator < 1 << 8 else exact


def evaluate_values(
    values: Sequence[Value], inputs: Mapping[Value, Array], ring: Ring
) -> list[Array]:
    """The elements of the values, given those of the graph's inputs."""
    known = dict(inputs)

    def read(value: Value) -> Array:
        if value not in known and isinstance(value, Constant):
            known[value] = _constant(value.array, ring)
        return known[value]

    for node in topological(values):
        if any(r not in known for r in node.results):
            results = _evaluate_node(node, [read(v) for v in node.inputs], ring)
            known.update(zip(node.results, results, strict=True))
    return [read(v) for v in values]


def _constant(array: Array, ring: Ring) -> Array:
    if array.dtype.kind != "f":
        return array
    return ring.numbers([float(v) for v in array.ravel()]).reshape(array.shape)


def _evaluate_node(node: Node, arrays: list[Array], ring: Ring) -> list[Array]:
    op = node.op
    if op.expand is not None:
        expanded = op.expand(GraphBuilder(), *node.inputs)
        values = expanded if isinstance(expanded, tuple) else (expanded,)
        return evaluate_values(values, dict(zip(node.inputs, arrays)), ring)
    if op.compute is None:
        raise NoMeaning(f"{op.name} has no tensor expression")
    inputs, outputs = _tensors(node)
    known = dict[Tensor, Array](zip(inputs, arrays))
    for stage in stages(outputs):
        if isinstance(stage, Compute):
            known[stage] = _Stage(stage, known, ring).run()
    return [known[t] for t in outputs]


def _tensors(node: Node) -> tuple[tuple[Placeholder, ...], tuple[Tensor, ...]]:
    """Placeholders for the node's inputs, and its tensor expressions over them."""
    inputs = tuple(
        placeholder(v.tensor_type.shape, v.tensor_type.dtype, f"t{n}")
        for n, v in enumerate(node.inputs)
    )
    return inputs, node.op.compute_tensors(inputs)


def is_opaque(values: Sequence[Value]) -> bool:
    """Whether some value is more than sums, products and quotients of the inputs."""
    for node in topological(values):
        if node.op.expand is not None:
            expanded = node.op.expand(GraphBuilder(), *node.inputs)
            if is_opaque(expanded if isinstance(expanded, tuple) else (expanded,)):
                return True
        elif node.op.compute is None or any(map(_opaque_stage, stages(_tensors(node)[1]))):
            return True
    return False


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


class _Stage:
    """Evaluates one stage on its whole iteration domain: one dimension per axis."""

    def __init__(self, stage: Compute, arrays: Mapping[Tensor, Array], ring: Ring) -> None:
        self.stage, self.arrays, self.ring = stage, arrays, ring
        reduced: dict[Axis, None] = {}
        for e in subexpressions(stage.body):
            if isinstance(e, Reduce):
                reduced.update(dict.fromkeys(e.axes))
        self.dims = {axis: n for n, axis in enumerate((*stage.axes, *reduced))}
        self.memo: dict[Expr, Array] = {}

    def run(self) -> Array:
        value = self.value(self.stage.body)
        value = value.reshape(value.shape[: len(self.stage.axes)])
        return np.broadcast_to(value, self.stage.shape)

    def value(self, e: Expr) -> Array:
        if e not in self.memo:
            self.memo[e] = self._compute(e)
        return self.memo[e]

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
        # Positions outside are those of a select's other side: any element will do.
        at = [
            np.clip(self.value(i), 0, max(extent - 1, 0))
            for i, extent in zip(e.indices, array.shape)
        ]
        return np.asarray(array[tuple(np.broadcast_arrays(*at))])

    def _reduce(self, e: Reduce) -> Array:
        value = self.value(e.value)
        dims = tuple(self.dims[a] for a in e.axes)
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
        result = parts[0]
        for part in parts[1:]:
            if e.kind == "prod":
                result = self.ring.infix("mul", result, part)
            elif e.kind in ("max", "min"):
                result = self.ring.function(e.kind, [result, part])
            else:
                raise NoMeaning(e.kind)
        return np.expand_dims(result, tuple(sorted(dims)))
