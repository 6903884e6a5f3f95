"""Shapes and attributes on which a claim is tested, chosen to break it.

An assignment gives a shape to every tensor variable and a value to every attribute variable,
such that both sides have types and the guards hold.  It is found by search: an operator's own
`infer` is the only judge of what fits, and its own `sample` the source of attribute values, so
an operator from outside the package is treated like any other.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.dtypes import f32
from whet.core.errors import OperatorError, WhetError
from whet.core.types import Shape, TensorType
from whet.graph.attributes import Expression, Infix, Literal, Measure, Name, evaluate, walk
from whet.graph.terms import Apply, Number, Term, Variable, attribute_names, subterms, tensor_names
from whet.ops.base import REGISTRY, Op, OutputType

Types = tuple[OutputType, ...]


@dataclass(frozen=True)
class Claim:
    """What is tested: that both sides agree wherever they have types and the guards hold."""

    ranks: tuple[tuple[str, int], ...]
    left: tuple[Term, ...]
    right: tuple[Term, ...]
    guards: tuple[Expression, ...] = ()

    @property
    def sides(self) -> tuple[Term, ...]:
        return (*self.left, *self.right)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attribute variables, in order of appearance."""
        tensors = dict(self.ranks)
        named = [n for t in self.sides for n in attribute_names(t)]
        named += [e.name for g in self.guards for e in walk(g) if isinstance(e, Name)]
        return tuple(dict.fromkeys(n for n in named if n not in tensors))


@dataclass(frozen=True)
class Assignment:
    """A shape for every tensor variable and a value for every attribute variable."""

    shapes: tuple[tuple[str, Shape], ...]
    attributes: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        shapes = (f"{n}={_listed(s)}" for n, s in self.shapes)
        return " ".join((*shapes, *(f"{n}={_listed(v)}" for n, v in self.attributes)))


def read_assignment(text: str, tensors: Collection[str]) -> Assignment:
    """The assignment that prints as this text; `tensors` tells shapes from attributes."""
    shapes: list[tuple[str, Shape]] = []
    attributes: list[tuple[str, Any]] = []
    for piece in text.split():
        name, _, value = piece.partition("=")
        if name in tensors:
            shapes.append((name, _numbers(value)))
        else:
            listed = value.startswith("[")
            attributes.append((name, _numbers(value) if listed else _scalar(value)))
    return Assignment(tuple(shapes), tuple(attributes))


def _numbers(text: str) -> tuple[int, ...]:
    inner = text.strip("[]")
    return tuple(map(int, inner.split(","))) if inner else ()


def _scalar(text: str) -> int | bool | float | str:
    if text in ("True", "False"):
        return text == "True"
    try:
        return float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        return text


def _listed(value: Any) -> str:
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


class Typing:
    """Types of terms under a partial assignment; terms that are not yet determined have none."""

    def __init__(
        self,
        shapes: Mapping[str, Shape],
        attributes: Mapping[str, Any],
        ops: dict[Term, Op] | None = None,
    ) -> None:
        self.shapes, self.attributes = shapes, attributes
        self.memo: dict[Term, Types] = {}
        self.ops = {} if ops is None else ops
        """Operators whose attributes do not depend on shapes, kept between typings."""

    def types(self, term: Term) -> Types:
        """Raises the operator's error where the types do not fit."""
        if term not in self.memo:
            self.memo[term] = self._infer(term)
        return self.memo[term]

    def _infer(self, term: Term) -> Types:
        if isinstance(term, Variable):
            return (TensorType(self.shapes[term.name], f32),)
        if isinstance(term, Number):
            return (TensorType((), f32),)
        inputs = [t for i in term.inputs for t in self.types(i)]
        op = self.ops.get(term)
        if op is None:
            op = term.make(self.attributes, self.shapes)
            if not _measures(term):
                self.ops[term] = op
        found = op.infer_types(tuple(t for t in inputs if isinstance(t, TensorType)))
        if any(isinstance(t, TensorType) and 0 in t.shape for t in found):
            raise OperatorError("WH1102", f"{term.op} gives nothing")  # and would show nothing
        if term.result is None:
            return found
        if term.result >= len(found):
            raise OperatorError("WH1102", f"{term.op} has no result {term.result}")
        return (found[term.result],)


@functools.cache
def _measures(term: Apply) -> bool:
    """Whether an attribute depends on shapes."""
    return any(isinstance(e, Measure) for _, a in term.attributes for e in walk(a))


def holds(guard: Expression, attributes: Mapping[str, Any], shapes: Mapping[str, Shape]) -> bool:
    """Whether the guard is true; one that has no value is not."""
    try:
        return bool(evaluate(guard, attributes, shapes))
    except (ArithmeticError, LookupError, TypeError):
        return False


def fits(claim: Claim, at: Assignment) -> bool:
    """Whether both sides have types there and the guards hold."""
    shapes, attributes = dict(at.shapes), dict(at.attributes)
    typing = Typing(shapes, attributes)
    if not all(holds(g, attributes, shapes) for g in claim.guards):
        return False
    try:
        for term in claim.sides:
            typing.types(term)
    except WhetError:
        return False
    return True


# -------------------------------------------------------------------------------------- search
POOLS: tuple[tuple[int, ...], ...] = (
    (2, 3, 4, 5, 1),  # mixed
    (2, 4, 6),  # even: where strides of 2 and groups bite
    (1, 2),  # extents of 1
    (3, 5, 7, 2),  # odd and mutually prime
    (1, 4, 6, 3),  # depthwise and groups of several sizes
    (2, 2, 3),  # many equal extents
)
"""Extents to choose from, one pool per attempt in turn."""

TRIES_PER_TENSOR = 24
"""Candidates for one tensor before those chosen earlier are blamed."""
STEPS = 600
"""Candidates that one attempt may look at before it gives up."""


def assignments(
    claim: Claim,
    count: int,
    seed: int,
    pools: Sequence[tuple[int, ...]] = POOLS,
    largest: int | None = None,
) -> tuple[Assignment, ...]:
    """Up to `count` different assignments that together show as many features as possible.

    Extents of inputs are at most `largest`.

    About three times as many are found first; then one after the other is taken that adds a
    feature (`features`) which the fewest of those taken so far have.
    """
    found = itertools.islice(search(claim, seed, pools, largest), 3 * count)
    return _spread(claim, tuple(found), count)


def search(
    claim: Claim,
    seed: int,
    pools: Sequence[tuple[int, ...]] = POOLS,
    largest: int | None = None,
) -> Iterator[Assignment]:
    """Different assignments as they are found, until new ones become rare."""
    rng = np.random.default_rng(seed)
    found: set[Assignment] = set()
    fruitless = 0
    for pool in itertools.cycle(pools):
        at = _Search(claim, pool, rng, largest).run()
        if at is None or at in found:
            fruitless += 1
            if fruitless >= (30 if found else 25):
                return
        else:
            fruitless = 0
            found.add(at)
            yield at


def _spread(claim: Claim, found: Sequence[Assignment], count: int) -> tuple[Assignment, ...]:
    shown = {at: features(claim, at) for at in found}
    left = list(found)
    times: dict[str, int] = {}
    taken: list[Assignment] = []
    while left and len(taken) < count:
        best = max(left, key=lambda at: sum(4.0 ** -times.get(f, 0) for f in shown[at]))
        left.remove(best)
        taken.append(best)
        for f in shown[best]:
            times[f] = times.get(f, 0) + 1
    return tuple(taken)


def features(claim: Claim, at: Assignment) -> frozenset[str]:
    """What makes the assignment hard: groups, depthwise, stride 2 on even extents, extents of
    1, unequal parts, tensors of equal shape, values of attributes."""
    shapes, attributes = dict(at.shapes), dict(at.attributes)
    typing = Typing(shapes, attributes)
    found: set[str] = {f"{n}={v}" for n, v in at.attributes}
    for name, shape in at.shapes:
        found.add(f"{name} {'has' if 1 in shape else 'has no'} 1")
        found |= {f"{name} odd {k}" for k, d in enumerate(shape) if d % 2 and d > 1}
    for (a, s), (b, t) in itertools.combinations(at.shapes, 2):
        found.add(f"{a},{b} {'same' if s == t else 'differ'}")
        if len(s) == len(t):
            found |= {f"{a} above {b} in {k}" for k, (d, e) in enumerate(zip(s, t)) if d > e}
            found |= {f"{a} below {b} in {k}" for k, (d, e) in enumerate(zip(s, t)) if d < e}
    for term in dict.fromkeys(t for side in claim.sides for t in subterms(side)):
        if not isinstance(term, Apply) or not term.inputs:
            continue
        op = term.make(attributes, shapes)
        inputs = [t.shape for i in term.inputs for t in typing.types(i)
                  if isinstance(t, TensorType)]  # fmt: skip
        found |= _hard_attributes(op, inputs)
    return frozenset(found)


def _hard_attributes(op: Op, inputs: Sequence[Shape]) -> set[str]:
    found: set[str] = set()
    groups = getattr(op, "groups", 1)
    if groups > 1:
        found.add(f"{op.name} in groups")
        if inputs and len(inputs[0]) > 1 and groups == inputs[0][1]:
            found.add(f"{op.name} depthwise")
    strides = getattr(op, "strides", ())
    if inputs and any(s > 1 for s in strides):
        even = [d % 2 == 0 for d in inputs[0][2:]]
        found.add(f"{op.name} strided")
        found |= {f"{op.name} strided, even {n}" for n, (s, e) in enumerate(zip(strides, even))
                  if s > 1 and e}  # fmt: skip
    if any(getattr(op, "pads", ())):
        found.add(f"{op.name} padded")
    return found


class _Search:
    """One random attempt to find an assignment, with backtracking over the tensors."""

    def __init__(
        self,
        claim: Claim,
        pool: tuple[int, ...],
        rng: np.random.Generator,
        largest: int | None = None,
    ) -> None:
        self.claim, self.pool, self.rng, self.largest = claim, pool, rng, largest
        self.ranks = dict(claim.ranks)
        self.attributes: dict[str, Any] = {}
        self.sampled: dict[str, Shape] = {}
        self.ops: dict[Term, Op] = {}
        self.steps = 0
        self.order = tuple(dict.fromkeys(n for t in claim.sides for n in tensor_names(t)))
        self.order += tuple(n for n in self.ranks if n not in self.order)
        self.due = self._due()

    def run(self) -> Assignment | None:
        self._draw_attributes()
        shapes = self._extend({}, 0)
        if shapes is None:
            return None
        ordered = tuple((n, shapes[n]) for n, _ in self.claim.ranks)
        values = tuple((n, self.attributes[n]) for n in self.claim.attributes)
        found = Assignment(ordered, values)
        return found if self.order or fits(self.claim, found) else None

    # --------------------------------------------------------------------------- attributes
    def _draw_attributes(self) -> None:
        """Attribute variables take the values of a random sample of their operator."""
        for term in dict.fromkeys(t for side in self.claim.sides for t in subterms(side)):
            if isinstance(term, Apply):
                named = {
                    key: e.name
                    for key, e in term.attributes
                    if isinstance(e, Name) and e.name not in self.attributes
                }
                if named:
                    self._draw_from_samples(term, named)
        for guard in self.claim.guards:
            self._solve(guard)
        for name in self.claim.attributes:  # what stands only inside expressions is a number
            self.attributes.setdefault(name, self._extent())

    def _draw_from_samples(self, term: Apply, named: dict[str, str]) -> None:
        ranks = [self.ranks[n] for n in tensor_names(term) if n in self.ranks]
        op = REGISTRY.get(term.op)
        if op is None:
            return
        for _ in range(40):
            sample = op.sample(self.rng)
            fitting = not sample.types or not ranks or sample.types[0].rank == max(ranks)
            if fitting:
                self.attributes |= {v: getattr(sample.op, k) for k, v in named.items()}
                for inner, t in zip(term.inputs, sample.types):
                    if isinstance(inner, Variable) and t.rank == self.ranks[inner.name]:
                        self.sampled.setdefault(inner.name, t.shape)
                return

    def _solve(self, guard: Expression) -> None:
        """A guard `name == value` decides the name where the value is known."""
        for left, right in _equations(guard):
            if isinstance(left, Name) and left.name not in self.ranks:
                try:
                    self.attributes[left.name] = evaluate(right, self.attributes, {})
                except (ArithmeticError, LookupError, TypeError):
                    continue

    # ------------------------------------------------------------------------------ tensors
    def _due(self) -> tuple[tuple[tuple[Term, ...], tuple[Expression, ...]], ...]:
        """By tensor in order: the terms and guards that can be judged once it has a shape."""
        position = {n: k for k, n in enumerate(self.order)}
        terms: list[dict[Term, None]] = [{} for _ in self.order]
        guards: list[list[Expression]] = [[] for _ in self.order]
        for term in (t for side in self.claim.sides for t in subterms(side)):
            names = tensor_names(term)
            if isinstance(term, Apply) and self.order:
                terms[max((position[n] for n in names), default=0)][term] = None
        for guard in self.claim.guards:
            names = tuple(e.tensor for e in walk(guard) if isinstance(e, Measure))
            if self.order:
                guards[max((position[n] for n in names), default=0)].append(guard)
        return tuple((tuple(t), tuple(g)) for t, g in zip(terms, guards))

    def _extend(self, shapes: dict[str, Shape], depth: int) -> dict[str, Shape] | None:
        if depth == len(self.order):
            return shapes
        name = self.order[depth]
        tries = TRIES_PER_TENSOR if depth else STEPS
        for shape in itertools.islice(self._candidates(name, shapes), tries):
            self.steps += 1
            if self.steps > STEPS:
                return None
            extended = {**shapes, name: shape}
            if self._sound(extended, depth):
                found = self._extend(extended, depth + 1)
                if found is not None:
                    return found
        return None

    def _sound(self, shapes: Mapping[str, Shape], depth: int) -> bool:
        terms, guards = self.due[depth]
        if not all(holds(g, self.attributes, shapes) for g in guards):
            return False
        typing = Typing(shapes, self.attributes, self.ops)
        try:
            for term in terms:
                typing.types(term)
        except WhetError:
            return False
        return True

    def _candidates(self, name: str, shapes: Mapping[str, Shape]) -> Iterator[Shape]:
        """Random shapes mixed with variations of those of the other tensors.

        What a guard says about an extent is followed; the shapes that came with the sampled
        attributes are tried early, because they fit them.
        """
        rank = self.ranks[name]
        alike = [s for s in shapes.values() if len(s) == rank]
        sampled = self.sampled.get(name)
        fixed = self._fixed(name, shapes)
        for n in itertools.count():
            if sampled is not None and n % 4 == 0:
                base = list(sampled)
                if n:
                    base[int(self.rng.integers(rank))] = self._extent()
            elif alike and self.rng.random() < 0.6:
                base = list(alike[int(self.rng.integers(len(alike)))])
                for _ in range(int(self.rng.integers(0, 3)) if rank else 0):
                    base[int(self.rng.integers(rank))] = self._extent()
            else:
                base = [self._extent() for _ in range(rank)]
            if self.largest is not None:
                base = [min(d, self.largest) for d in base]
            yield tuple(fixed.get(k, d) for k, d in enumerate(base))

    def _fixed(self, name: str, shapes: Mapping[str, Shape]) -> dict[int, int]:
        """Extents that follow from guards `dim(x, n) == value` and `shape(x) == value`."""
        found: dict[int, int] = {}
        for guard in self.claim.guards:
            for left, right in _equations(guard):
                if isinstance(left, Measure) and left.tensor == name:
                    try:
                        value = evaluate(right, self.attributes, shapes)
                        axis = int(evaluate(left.axis or Literal(0), self.attributes, shapes))
                    except (ArithmeticError, LookupError, TypeError):
                        continue
                    if left.kind == "dim":
                        found[axis] = value
                    elif left.kind == "shape":
                        found |= dict(enumerate(value))
        return found

    def _extent(self) -> int:
        return self.pool[int(self.rng.integers(len(self.pool)))]


def _equations(guard: Expression) -> Iterator[tuple[Expression, Expression]]:
    """The equations that the guard states, each read both ways."""
    if isinstance(guard, Infix) and guard.op == "and":
        yield from _equations(guard.left)
        yield from _equations(guard.right)
    elif isinstance(guard, Infix) and guard.op == "==":
        yield guard.left, guard.right
        yield guard.right, guard.left
