"""Extents of terms as expressions over the extents of their variables.

The operators' `infer` is run on extents that carry a formula along: `dim(x, 0)` plus
`dim(y, 0)` for the axis that a concat joins.  A formula is a fact only if it comes out the
same at every assignment that was tried; where it depends on an attribute (the axis of a
concat), it is a fact about that value of the attribute.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.core.dtypes import f32
from whet.core.types import TensorType
from whet.graph.attributes import Expression, Infix, Item, Literal, Measure, Name, evaluate
from whet.graph.terms import Apply, Number, Term, Variable
from whet.superopt.verify.claims import Assignment
from whet.superopt.verify.steps import SCALAR, Steps, Types, steps_of, typed


class Extent(int):
    """A number that remembers how it was computed."""

    formula: Expression

    @staticmethod
    def of(value: int, formula: Expression) -> Extent:
        made = Extent(value)
        made.formula = formula
        return made

    def __add__(self, other: int) -> int:
        return _join("+", self, other, int(self) + int(other))

    def __radd__(self, other: int) -> int:
        return _join("+", other, self, int(self) + int(other))

    def __sub__(self, other: int) -> int:
        return _join("-", self, other, int(self) - int(other))

    def __rsub__(self, other: int) -> int:
        return _join("-", other, self, int(other) - int(self))

    def __mul__(self, other: int) -> int:
        return _join("*", self, other, int(self) * int(other))

    def __rmul__(self, other: int) -> int:
        return _join("*", other, self, int(other) * int(self))

    def __floordiv__(self, other: int) -> int:
        return _join("//", self, other, int(self) // int(other))

    def __rfloordiv__(self, other: int) -> int:
        return _join("//", other, self, int(other) // int(self))

    def __mod__(self, other: int) -> int:
        return _join("%", self, other, int(self) % int(other))

    def __neg__(self) -> int:
        return _join("-", 0, self, -int(self))


def formula(value: int) -> Expression:
    return value.formula if isinstance(value, Extent) else Literal(int(value))


def _join(op: str, left: int, right: int, value: int) -> int:
    a, b = formula(left), formula(right)
    zero = Literal(0)
    if (op in ("+", "-") and b == zero) or (op in ("*", "//") and b == Literal(1)):
        return Extent.of(value, a)
    if (op == "+" and a == zero) or (op == "*" and a == Literal(1)):
        return Extent.of(value, b)
    if isinstance(a, Literal) and isinstance(b, Literal):
        return value
    return Extent.of(value, Infix(op, a, b))


@dataclass(frozen=True)
class Fact:
    """That an extent of a term has a formula, where the attribute variable has the value."""

    term: Term
    axis: int
    formula: Expression
    attribute: str | None = None
    value: Any = None


def facts(terms: Sequence[Term], at: Sequence[Assignment]) -> tuple[Fact, ...]:
    """Facts about the extents of all sub-terms, from what `infer` does at the assignments."""
    return _facts([_Case(tuple(terms), a) for a in at])


def _facts(seen: Sequence[_Case]) -> tuple[Fact, ...]:
    found: list[Fact] = []
    for term, axis in dict.fromkeys(k for case in seen for k in case.extents):
        right = _agreed(seen, (term, axis))
        if right is not None:
            found.append(Fact(term, axis, right))
            continue
        for name in seen[0].attributes:
            by_value: dict[Any, list[_Case]] = {}
            for case in seen:
                by_value.setdefault(case.attributes[name], []).append(case)
            agreed = {v: _agreed(cases, (term, axis)) for v, cases in by_value.items()}
            if len(by_value) < len(seen) and None not in agreed.values():
                found += [Fact(term, axis, f, name, v) for v, f in agreed.items() if f is not None]
                break
    return tuple(found)


def telling(terms: Sequence[Term], at: Sequence[Assignment]) -> tuple[Assignment, ...]:
    """A few of the assignments that show the same facts as all of them.

    A formula that holds at some shapes by chance is no fact at the others, so an assignment
    stays if it refutes one that those before it suggest, or if a fact is not seen without it.
    """
    cases = [_Case(tuple(terms), a) for a in at]
    known = set(_facts(cases))
    kept = cases[:2]
    while True:
        found = _facts(kept)
        wrong = next((c for c in cases if not all(_holds(f, c) for f in found)), None)
        rest = [c for c in cases if c not in kept]
        if (wrong is None and known <= set(found)) or not rest:
            return tuple(c.at for c in kept)
        kept.append(wrong if wrong is not None else rest[0])


def _holds(fact: Fact, case: _Case) -> bool:
    if fact.attribute is not None and case.attributes[fact.attribute] != fact.value:
        return True
    extent = case.extents.get((fact.term, fact.axis))
    return extent is None or case.value(fact.formula) == extent


Places = Mapping[tuple[Term, int], int]
"""The extents of terms, axis by axis."""


class _Case:
    """The extents of all sub-terms at one assignment, as numbers and, once asked for, as numbers
    that remember their formulas."""

    def __init__(self, terms: tuple[Term, ...], at: Assignment) -> None:
        self.terms, self.at = terms, at
        self.attributes, self.shapes = dict(at.attributes), dict(at.shapes)
        found = typed(terms, self.attributes, self.shapes)
        assert found is not None, at
        self.extents = _by_axis(found.steps, found.types)

    @functools.cached_property
    def remembering(self) -> Places:
        shapes = {
            name: tuple(Extent.of(d, Measure("dim", name, Literal(n))) for n, d in enumerate(shape))
            for name, shape in self.at.shapes
        }
        values = {n: _named(n, v) for n, v in self.at.attributes}
        steps = steps_of(self.terms)
        known: list[Types] = []
        for step in steps.steps:
            match step.term:
                case Variable(name=name):
                    known.append((TensorType(shapes[name], f32),))
                case Number():
                    known.append(SCALAR)
                case Apply(result=result) as term:
                    given = (t for i in step.inputs for t in known[i])
                    op = term.make(values, shapes)
                    types = op.infer_types(tuple(t for t in given if isinstance(t, TensorType)))
                    known.append(types if result is None else (types[result],))
        return _by_axis(steps, known)

    def value(self, e: Expression) -> Any:
        try:
            return evaluate(e, self.attributes, self.shapes)
        except (ArithmeticError, LookupError):  # a list of another length
            return None


def _by_axis(steps: Steps, types: Sequence[Types]) -> Places:
    """The extents of the operators that have one result."""
    found: dict[tuple[Term, int], int] = {}
    for n in steps.applied:
        match types[n]:
            case (TensorType(shape=shape),):
                found |= {(steps.steps[n].term, axis): d for axis, d in enumerate(shape)}
    return found


def _agreed(cases: Sequence[_Case], key: tuple[Term, int]) -> Expression | None:
    """A formula that gives the extent in all cases (in which the term has such an axis)."""
    known = [c for c in cases if key in c.extents]
    refuted: set[Expression] = set()
    for case in known:
        candidate = formula(case.remembering[key])
        if candidate not in refuted:
            if all(c.value(candidate) == c.extents[key] for c in known):
                return candidate
            refuted.add(candidate)
    return None


def _named(name: str, value: Any) -> Any:
    """The attribute's value with its name attached, where it is a number or a list of them."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return Extent.of(value, Name(name))
    if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
        return tuple(Extent.of(v, Item(Name(name), Literal(n))) for n, v in enumerate(value))
    return value


def ranks(terms: Sequence[Term], at: Assignment) -> Mapping[Term, tuple[int, ...]]:
    """The ranks of the results of all sub-terms."""
    found = typed(tuple(terms), dict(at.attributes), dict(at.shapes))
    assert found is not None, at
    return {
        step.term: tuple(t.rank for t in types)
        for step, types in zip(found.steps.steps, found.types)
    }


def equal_extents(
    at: Sequence[Assignment],
) -> tuple[tuple[tuple[str, int], tuple[str, int]], ...]:
    """Pairs of (variable, axis) whose extents agree at all assignments: what types demand."""
    seen: dict[tuple[int, ...], tuple[str, int]] = {}
    found = []
    for name, shape in at[0].shapes:
        for axis in range(len(shape)):
            values = tuple(dict(a.shapes)[name][axis] for a in at)
            first = seen.setdefault(values, (name, axis))
            if first != (name, axis):
                found.append((first, (name, axis)))
    return tuple(found)
