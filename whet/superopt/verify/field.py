"""Tensor expressions in a prime field: the arithmetic of gate (b).

Floating-point elements become residues modulo a large prime, so that sums, products and
quotients are exact and two different polynomials agree at a random point with probability
below degree / PRIME (Schwartz and Zippel).  Index arithmetic stays what it is.

What the field does not have is replaced by what is true of it for any meaning: a function
such as `exp` is a random oracle (equal arguments give equal results and nothing else is
known), and the order of the reals is a random order of the residues, which keeps all laws of
a lattice (max is associative, commutative, idempotent) and no law that mixes order and sums.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from whet.core.types import Array
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Node, Value, topological
from whet.ir.expr import Axis, Binary, Call, Cast, Const, Expr, Read, Reduce, Select
from whet.ir.functions import FUNCTIONS, INFIX, REDUCERS
from whet.ir.tensor import Compute, Placeholder, Tensor, placeholder, stages, subexpressions

PRIME = (1 << 31) - 1
"""Products of two residues fit 64 bits."""
LOWEST, HIGHEST = PRIME, PRIME + 1
"""Stand for the infinities, which occur only under max and min."""


class NoFieldMeaning(Exception):  # noqa: N818 - an answer, not a failure
    """The value is no function of residues (it casts data to integers, sorts, loops)."""


class DivisionByZero(Exception):  # noqa: N818 - a draw to be repeated
    """A denominator happened to be zero."""


def evaluate_values(values: Sequence[Value], inputs: Mapping[Value, Array]) -> list[Array]:
    """The residues of the values, given those of the graph's inputs."""
    known = dict(inputs)

    def read(value: Value) -> Array:
        if value not in known and isinstance(value, Constant):
            known[value] = residues(value.array)
        return known[value]

    for node in topological(values):
        if any(r not in known for r in node.results):
            results = _evaluate_node(node, [read(v) for v in node.inputs])
            known.update(zip(node.results, results, strict=True))
    return [read(v) for v in values]


def is_opaque(values: Sequence[Value]) -> bool:
    """Whether some value knows the order of the reals or a function that is an oracle here."""
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


def residues(array: Array) -> Array:
    """Floating-point elements as residues; other types as they are."""
    if array.dtype.kind != "f":
        return array
    flat = [residue(float(v)) for v in array.ravel()]
    return np.array(flat, np.int64).reshape(array.shape)


def residue(value: float) -> int:
    """The number as a residue; a float that rounds a simple fraction becomes that fraction."""
    if value in (float("inf"), float("-inf")):
        return HIGHEST if value > 0 else LOWEST
    exact = Fraction(value)
    simple = exact.limit_denominator(1 << 16)
    if float(simple) != value:
        single = np.float32(float(simple)) == np.float32(value)
        simple = simple if single and simple.denominator < 1 << 8 else exact
    return simple.numerator * pow(simple.denominator, -1, PRIME) % PRIME


def _evaluate_node(node: Node, arrays: list[Array]) -> list[Array]:
    op = node.op
    if op.expand is not None:
        expanded = op.expand(GraphBuilder(), *node.inputs)
        values = expanded if isinstance(expanded, tuple) else (expanded,)
        return evaluate_values(values, dict(zip(node.inputs, arrays)))
    if op.compute is None:
        raise NoFieldMeaning(f"{op.name} has no tensor expression")
    inputs, outputs = _tensors(node)
    return _evaluate_stages(outputs, dict[Tensor, Array](zip(inputs, arrays)))


def _tensors(node: Node) -> tuple[tuple[Placeholder, ...], tuple[Tensor, ...]]:
    """Placeholders for the node's inputs, and its tensor expressions over them."""
    inputs = tuple(
        placeholder(v.tensor_type.shape, v.tensor_type.dtype, f"t{n}")
        for n, v in enumerate(node.inputs)
    )
    return inputs, node.op.compute_tensors(inputs)


def _evaluate_stages(outputs: Sequence[Tensor], inputs: Mapping[Tensor, Array]) -> list[Array]:
    arrays: dict[Tensor, Array] = dict(inputs)
    for stage in stages(outputs):
        if isinstance(stage, Compute):
            arrays[stage] = _Stage(stage, arrays).run()
    return [arrays[t] for t in outputs]


class _Stage:
    """Evaluates one stage on its whole iteration domain: one dimension per axis."""

    def __init__(self, stage: Compute, arrays: Mapping[Tensor, Array]) -> None:
        self.stage, self.arrays = stage, arrays
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
                number = residue(value) if dtype.is_float else value
                return np.full((1,) * len(self.dims), number)
            case Axis(extent=extent):
                shape = [1] * len(self.dims)
                shape[self.dims[e]] = extent
                return np.arange(extent).reshape(shape)
            case Binary(op=op, left=left, right=right):
                a, b = self.value(left), self.value(right)
                return infix(op, a, b) if left.dtype.is_float else np.asarray(INFIX[op].numpy(a, b))
            case Call(name=name, args=args):
                values = [self.value(a) for a in args]
                if args[0].dtype.is_float:
                    return function(name, values, args)
                return np.asarray(FUNCTIONS[name](*values))
            case Cast(value=value, dtype=dtype):
                return self._cast(value, dtype.is_float)
            case Select(condition=condition, then=then, other=other):
                return np.where(self.value(condition), self.value(then), self.value(other))
            case Read():
                return self._read(e)
            case Reduce():
                return self._reduce(e)
        raise NoFieldMeaning(f"{type(e).__name__} of data")

    def _cast(self, value: Expr, to_float: bool) -> Array:
        inner = self.value(value)
        if value.dtype.is_float:
            if not to_float:
                raise NoFieldMeaning("data become integers")
            return inner
        return inner.astype(np.int64) % PRIME if to_float else inner

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
                raise NoFieldMeaning(e.kind)
            return np.asarray(REDUCERS[e.kind].reduce(value, axis=dims, keepdims=True))
        if e.kind == "sum":  # fewer than 2 ** 32 residues fit 64 bits
            return np.asarray(value.sum(axis=dims, keepdims=True) % PRIME)
        moved = np.moveaxis(value, dims, range(len(dims))).reshape(
            -1, *(d for n, d in enumerate(value.shape) if n not in dims)
        )
        result = moved[0]
        for other in moved[1:]:
            if e.kind == "prod":
                result = result * other % PRIME
            else:
                result = function(e.kind, [result, other], ())
        return np.expand_dims(result, tuple(sorted(dims)))


# --------------------------------------------------------------------------------- arithmetic
def infix(op: str, a: Array, b: Array) -> Array:
    """An arithmetic operator or a comparison on residues."""
    match op:
        case "add":
            return (a + b) % PRIME
        case "sub":
            return (a - b) % PRIME
        case "mul":
            return a * b % PRIME
        case "div":
            return a * inverse(b) % PRIME
        case "eq" | "ne":
            return np.asarray(INFIX[op].numpy(a, b))
        case "lt" | "le" | "gt" | "ge":
            return np.asarray(INFIX[op].numpy(rank(a), rank(b)))
    return oracle(op, a, b)


def function(name: str, values: Sequence[Array], args: Sequence[Expr]) -> Array:
    """A function of `ir.functions` on residues."""
    match name:
        case "neg":
            return -values[0] % PRIME
        case "max":
            a, b = values
            return np.where(rank(a) >= rank(b), a, b)
        case "min":
            a, b = values
            return np.where(rank(a) <= rank(b), a, b)
        case "pow":
            exponent = args[1].value if len(args) == 2 and isinstance(args[1], Const) else None
            if isinstance(exponent, float) and exponent in (1.0, 2.0, 3.0):
                result = values[0]
                for _ in range(int(exponent) - 1):
                    result = result * values[0] % PRIME
                return result
    return oracle(name, *values)


def inverse(a: Array) -> Array:
    distinct, positions = np.unique(a, return_inverse=True)
    if (distinct == 0).any():
        raise DivisionByZero
    found = np.array([pow(int(v), -1, PRIME) for v in distinct], np.int64)
    return found[positions].reshape(a.shape)


def rank(a: Array) -> Array:
    """The place of a residue in a random order, with the infinities at the ends."""
    mixed = (_mix(a, 1) >> np.uint64(2)).astype(np.int64)
    return np.where(a == LOWEST, -1, np.where(a == HIGHEST, np.int64(1 << 62), mixed))


def oracle(name: str, *values: Array) -> Array:
    """A random function of this name; zero goes to no special place."""
    state = _mix(np.zeros(1, np.int64), zlib.crc32(name.encode()))
    for value in values:
        state = _mix(value, 0) + state * np.uint64(0x9E3779B97F4A7C15)
        state = _mix(state, 7)
    return np.asarray(state % np.uint64(PRIME)).astype(np.int64)


def _mix(a: Array, seed: int) -> Array:
    """A fast, well distributed hash of every element (splitmix64)."""
    z = a.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15 * (seed + 1) % (1 << 64))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))
