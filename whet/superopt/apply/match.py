"""Matches of patterns in graphs, modulo commutativity and the nesting of concats.

A match binds tensor variables to values and attribute variables to attributes.  Attributes that
are expressions (`groups=2 * g`) are compared once everything else is bound; variables that stand
in such expressions alone, or on the other side of the rule, are tried with values from `proposals`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

import numpy as np

from whet.core.errors import WhetError
from whet.core.types import Shape
from whet.graph.attributes import Expression, ListOf, Literal, Name, compiled
from whet.graph.graph import Computed, Constant, Node, Result, Value, make_constant
from whet.graph.terms import Apply, Number, Term, Variable, attribute_names, subterms
from whet.ops.base import REGISTRY, Op
from whet.ops.movement import Concat
from whet.superopt.apply.normal import NormalBuilder, maker
from whet.superopt.apply.patterns import Pattern, Patterns, commutative
from whet.superopt.apply.rewrite import Part, Rewrite, admit

Alternatives = Callable[[Value], Sequence[Value]]
"""Values that are known to be equal to one, itself included: what a match may look into."""
Wanted = Callable[[Value, Pattern], bool]
"""Whether to look for a pattern at a value."""
MOST_PROPOSALS = 6
"""Values that are tried for an attribute which a match leaves open."""


def itself(value: Value) -> tuple[Value]:
    """The alternatives in a graph: there a value is computed in one way."""
    return (value,)


@dataclass(frozen=True)
class Binding:
    """The variables that a match has bound, and attributes that must still be compared."""

    tensors: Mapping[str, Value] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    open: tuple[tuple[Expression, Any], ...] = ()

    def with_tensor(self, name: str, value: Value) -> Binding:
        return Binding({**self.tensors, name: value}, self.attributes, self.open)

    @property
    def shapes(self) -> dict[str, Shape]:
        return {name: v.tensor_type.shape for name, v in self.tensors.items()}


class Matcher:
    """All rewrites that rules allow in graphs.

    Values are interned, so what was found at a value is found again for the next graph of a search
    that has it: only what is new is matched.
    """

    def __init__(self, patterns: Patterns) -> None:
        self.patterns = patterns
        self._first: dict[Value, list[tuple[Pattern, Binding]]] = {}

    def rewrites(self, part: Part, wanted: Wanted | None = None) -> Iterator[Rewrite]:
        """The rewrites of the part, or those that are wanted of them, each admitted."""
        builder = NormalBuilder()
        seen: set[tuple[tuple[Value, ...], tuple[Value, ...]]] = set()
        for node in part.nodes:
            if node.op.host:
                continue
            for value in node.results:
                if value not in part.users and value not in part.needed:
                    continue
                for pattern, binding in self._matches(value):
                    if wanted is not None and not wanted(value, pattern):
                        continue
                    for old, bound in further(part, pattern, (value,), binding):
                        for made in built(builder, part, pattern, old, bound):
                            if (made.old, made.new) not in seen:
                                seen.add((made.old, made.new))
                                yield made

    def _matches(self, value: Result) -> list[tuple[Pattern, Binding]]:
        """Matches of the first term of every pattern at the value."""
        found = self._first.get(value)
        if found is None:
            node = value.node
            made = frozenset(n.op.name for n in map(maker, node.inputs) if n is not None)
            found = self._first[value] = [
                (pattern, binding)
                for pattern in self.patterns.at(node.op.name, made)
                for binding in fits(pattern, pattern.source[0], value)
            ]
        return found


# ------------------------------------------------------------------------------------- matching
def fits(
    pattern: Pattern,
    term: Term,
    value: Value,
    bound: Binding | None = None,
    equal: Alternatives = itself,
) -> Iterator[Binding]:
    """The ways in which the value is what the term says; inputs may be any of their equals."""
    bound = bound or Binding()
    if isinstance(term, Variable):
        known = bound.tensors.get(term.name)
        if known is not None:
            if known is value:
                yield bound
        elif _may_stand_for(pattern, term.name, value):
            yield bound.with_tensor(term.name, value)
        return
    if isinstance(term, Number):
        if _is_number(value, term.value):
            yield bound
        return
    node = maker(value)
    if node is None or node.op.name != term.op:
        return
    assert isinstance(value, (Result, Computed))
    picked = 0 if term.result is None else term.result
    if value.index != picked or (term.result is None and len(node.results) != 1):
        return
    with_attributes = _bind_attributes(term, node.op, bound)
    if with_attributes is None:
        return
    for inputs in _arguments(term, node):
        yield from _fit_all(pattern, term.inputs, inputs, with_attributes, equal)


def _fit_all(
    pattern: Pattern,
    terms: tuple[Term, ...],
    values: tuple[Value, ...],
    bound: Binding,
    equal: Alternatives,
) -> Iterator[Binding]:
    if not terms:
        yield bound
        return
    for value in equal(values[0]) if isinstance(terms[0], Apply) else values[:1]:
        for one in fits(pattern, terms[0], value, bound, equal):
            yield from _fit_all(pattern, terms[1:], values[1:], one, equal)


def _arguments(term: Apply, node: Node) -> Iterator[tuple[Value, ...]]:
    """The node's inputs as the term may read them: in both orders, or grouped in two."""
    if len(node.inputs) == len(term.inputs):
        yield node.inputs
        if node.op.name in commutative() and node.inputs[0] is not node.inputs[1]:
            yield node.inputs[::-1]
    elif isinstance(node.op, Concat) and len(term.inputs) == 2 < len(node.inputs):
        b = NormalBuilder()
        for n in range(1, len(node.inputs)):
            left, right = node.inputs[:n], node.inputs[n:]
            yield (b.results(node.op, *left)[0], b.results(node.op, *right)[0])


def _may_stand_for(pattern: Pattern, name: str, value: Value) -> bool:
    rank, role = pattern.roles[name]
    t = value.type
    if t.rank != rank or not t.dtype.is_float or t.dtype.is_storage_only:
        return False
    return isinstance(value, Constant) == (role == "weight")


def _is_number(value: Value, number: float) -> bool:
    if not isinstance(value, Constant) or value.tensor_type.size != 1 or not value.is_made:
        return False
    return bool(np.ravel(value.array)[0] == number) and not value.tensor_type.shape


def _bind_attributes(term: Apply, op: Op, bound: Binding) -> Binding | None:
    """The binding with the operator's attributes, or None where they are others."""
    given = dict(term.attributes)
    attributes, open_ = dict(bound.attributes), list(bound.open)
    for name, default in _attributes(op.name):
        value = getattr(op, name)
        expression = given.get(name)
        if expression is None:
            if value != default:
                return None
        elif not _unify(expression, value, attributes, open_):
            return None
    return Binding(bound.tensors, attributes, tuple(open_))


@cache
def _attributes(op: str) -> tuple[tuple[str, Any], ...]:
    """Names and defaults of an operator's attributes."""
    return tuple((f.name, f.default) for f in fields(REGISTRY[op]))  # type: ignore[arg-type]


def _unify(
    e: Expression, value: Any, bound: dict[str, Any], open_: list[tuple[Expression, Any]]
) -> bool:
    match e:
        case Name(name=name):
            return bool(bound.setdefault(name, value) == value)
        case Literal(value=known):
            return bool(known == value)
        case ListOf(items=items):
            if not isinstance(value, tuple) or len(value) != len(items):
                return False
            return all(_unify(i, v, bound, open_) for i, v in zip(items, value))
    open_.append((e, value))
    return True


def further(
    part: Part,
    pattern: Pattern,
    old: tuple[Value, ...],
    bound: Binding,
    equal: Alternatives = itself,
) -> Iterator[tuple[tuple[Value, ...], Binding]]:
    """The match of the first terms extended to the others, at values that share one with it."""
    if len(old) == len(pattern.source):
        yield old, bound
        return
    term = pattern.source[len(old)]
    assert isinstance(term, Apply)
    for value in _candidates(part, term, bound):
        if value not in old:
            for more in fits(pattern, term, value, bound, equal):
                yield from further(part, pattern, (*old, value), more, equal)


def _candidates(part: Part, term: Apply, bound: Binding) -> Iterator[Value]:
    """Results of the term's operator that read a bound tensor where the term does."""
    for path in _paths(term):
        variable = path[-1]
        if isinstance(variable, Variable) and variable.name in bound.tensors:
            values: list[Value] = [bound.tensors[variable.name]]
            for step in path[-2::-1]:
                assert isinstance(step, Apply)
                users = {u: None for v in values for u in part.users.get(v, ())}
                values = [r for u in users if u.op.name == step.op for r in u.results]
            yield from values
            return


def _paths(term: Term) -> Iterator[tuple[Term, ...]]:
    """The ways from the term down to its variables."""
    if isinstance(term, Apply):
        for inner in term.inputs:
            for path in _paths(inner):
                yield (term, *path)
    else:
        yield (term,)


# -------------------------------------------------------------------------------------- building
def built(
    builder: NormalBuilder, part: Part, pattern: Pattern, old: tuple[Value, ...], bound: Binding
) -> Iterator[Rewrite]:
    """The rewrites of a match: one for each choice of attributes that it leaves open."""
    dtypes = {v.type.dtype for v in bound.tensors.values()}
    if len(dtypes) > 1:
        return
    for attributes in proposals(part, pattern, bound):
        shapes = bound.shapes
        if not _holds(pattern, bound, attributes, shapes):
            continue
        try:
            made: dict[Term, tuple[Value, ...]] = {}
            new = tuple(
                v
                for term in pattern.target
                for v in _build(builder, term, bound.tensors, attributes, shapes, made)
            )
        except WhetError:
            continue
        rewrite = Rewrite(pattern.name, pattern.numeric, old, new)
        if len(new) == len(old) and not _only_swaps(old, new) and admit(part, rewrite):
            yield rewrite


def _only_swaps(old: tuple[Value, ...], new: tuple[Value, ...]) -> bool:
    """Whether nothing changes but the order of operands that may change places."""
    return all(
        isinstance(a, Result) and isinstance(b, Result) and a.node.op == b.node.op
        and a.node.op.name in commutative() and a.node.inputs == b.node.inputs[::-1]
        for a, b in zip(old, new)
    )  # fmt: skip


def _holds(
    pattern: Pattern, bound: Binding, attributes: Mapping[str, Any], shapes: Mapping[str, Shape]
) -> bool:
    """Whether open attributes, guards and conditions are true of the match."""
    try:
        return all(compiled(e)(attributes, shapes) == value for e, value in bound.open) and all(
            condition(attributes, shapes) for condition in pattern.conditions
        )
    except (ArithmeticError, LookupError, TypeError):
        return False


def _build(
    b: NormalBuilder,
    term: Term,
    tensors: Mapping[str, Value],
    attributes: Mapping[str, Any],
    shapes: Mapping[str, Shape],
    made: dict[Term, tuple[Value, ...]],
) -> tuple[Value, ...]:
    """The values of a term."""
    if isinstance(term, Variable):
        return (tensors[term.name],)
    if isinstance(term, Number):
        dtype = next(iter(tensors.values())).type.dtype
        return (make_constant(np.asarray(term.value, dtype.numpy)),)
    whole = Apply(term.op, term.inputs, term.attributes)
    results = made.get(whole)
    if results is None:
        inputs = [v for t in term.inputs for v in _build(b, t, tensors, attributes, shapes, made)]
        results = made[whole] = b.results(term.make(attributes, shapes), *inputs)
    return results if term.result is None else (results[term.result],)


# ------------------------------------------------------------------------------------- proposals
def proposals(part: Part, pattern: Pattern, bound: Binding) -> Iterator[dict[str, Any]]:
    """The attributes of the match, with values tried for those that it leaves open.

    Numbers are divisors of the numbers that are bound (groups that may be merged); lists are kernel
    sizes that occur nearby.
    """
    sides = (*pattern.source, *pattern.target)
    names = dict.fromkeys(n for t in sides for n in attribute_names(t))
    open_ = [n for n in names if n not in bound.attributes]
    if not open_:
        yield dict(bound.attributes)
        return
    choices = [_proposed(part, pattern, bound, name) for name in open_]
    for values in itertools.product(*choices):
        yield {**bound.attributes, **dict(zip(open_, values))}


def _proposed(part: Part, pattern: Pattern, bound: Binding, name: str) -> list[Any]:
    if _is_list(pattern, name):
        return _kernels_nearby(part, bound)[:MOST_PROPOSALS]
    numbers = {v for v in bound.attributes.values() if type(v) is int and v > 1}
    solved = {v for _, v in bound.open if type(v) is int and v > 1}
    divisors = {d for n in numbers | solved for d in range(2, n + 1) if n % d == 0}
    ones = {1} if solved else set()
    return sorted(divisors | ones)[: 2 * MOST_PROPOSALS]


def _kernels_nearby(part: Part, bound: Binding) -> list[Shape]:
    """Extents of filters and windows that the bound activations meet beside this match."""
    own = {v.tensor_type.shape[2:] for v in bound.tensors.values() if isinstance(v, Constant)}
    found: set[Shape] = set()
    for value in bound.tensors.values():
        for node in part.users.get(value, ()):
            filters = (v.tensor_type.shape[2:] for v in node.inputs if isinstance(v, Constant))
            found.update(f for f in filters if len(f) > 1)
            kernel = getattr(node.op, "kernel", None)
            if isinstance(kernel, tuple):
                found.add(kernel)
    return sorted(found - own)


def _is_list(pattern: Pattern, name: str) -> bool:
    """Whether the attribute variable stands for a list: kernels and the like."""
    for term in (*pattern.source, *pattern.target):
        for t in subterms(term):
            if isinstance(t, Apply):
                for attribute, e in t.attributes:
                    if e == Name(name):
                        declared = {f.name: f.type for f in fields(REGISTRY[t.op])}  # type: ignore[arg-type]
                        return "tuple" in str(declared[attribute])
    return False
