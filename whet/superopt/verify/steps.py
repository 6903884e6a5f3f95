"""The sub-terms of a claim as numbered steps, each once, inputs before their users.

Terms are trees that hash and compare in time of their size; looking for shapes asks for the
types of the same few sub-terms many thousand times.  So they are numbered once, attributes are
compiled, and what an operator's `infer` said about some types is remembered.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.core.dtypes import f32
from whet.core.errors import OperatorError, WhetError
from whet.core.types import Shape, TensorType
from whet.graph.attributes import Evaluator, Measure, compiled, walk
from whet.graph.terms import Apply, Number, Term, Variable
from whet.ops.base import REGISTRY, Op, OutputType, make_op

Types = tuple[OutputType, ...]
SCALAR: Types = (TensorType((), f32),)


@dataclass(frozen=True, slots=True)
class Step:
    """One sub-term: a variable, a number, or an operator on the results of earlier steps."""

    term: Term
    inputs: tuple[int, ...] = ()
    attributes: tuple[tuple[str, Evaluator], ...] = ()
    measures: bool = False
    """Whether an attribute depends on shapes."""


class Steps:
    """The steps of some terms; `outputs` are the numbers of the terms themselves."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self.steps: list[Step] = []
        self._numbers: dict[Any, int] = {}
        self.outputs = tuple(self._number(t) for t in terms)
        self.number = {s.term: n for n, s in enumerate(self.steps)}
        self.applied = tuple(n for n, s in enumerate(self.steps) if isinstance(s.term, Apply))

    def _number(self, term: Term) -> int:
        inputs = tuple(map(self._number, term.inputs)) if isinstance(term, Apply) else ()
        # Inputs by number, so that a term is not hashed as a tree.
        key: Any = term
        if isinstance(term, Apply):
            key = (term.op, inputs, term.attributes, term.result)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.steps)
            self.steps.append(_step(term, inputs))
        return found

    def op(self, n: int, values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Op | None:
        """The operator of a step; None if its attributes have no value."""
        step = self.steps[n]
        assert isinstance(step.term, Apply)
        try:
            found = tuple([(k, f(values, shapes)) for k, f in step.attributes])
        except (ArithmeticError, LookupError, TypeError):
            return None
        # mypy takes the hash of instances for that of their class.
        return _made(REGISTRY.get(step.term.op), step.term.op, found)  # type: ignore[arg-type]

    def known(
        self, n: int, op: Op | None, known: Sequence[Types | None], shapes: Mapping[str, Shape]
    ) -> Types | None:
        """The types of a step, given those of its inputs; None if they do not fit."""
        step = self.steps[n]
        term = step.term
        if isinstance(term, Variable):
            return (tensor_type(shapes[term.name]),)
        if isinstance(term, Number):
            return SCALAR
        if op is None:
            return None
        given: list[OutputType] = []
        for i in step.inputs:
            given += known[i] or ()
        found = inferred(op, tuple(given))
        if found is None or term.result is None:
            return found
        return (found[term.result],) if term.result < len(found) else None


@functools.lru_cache(maxsize=256)
def steps_of(terms: tuple[Term, ...]) -> Steps:
    """The steps of the terms, kept for the next one who asks."""
    return Steps(terms)


def _step(term: Term, inputs: tuple[int, ...]) -> Step:
    if not isinstance(term, Apply):
        return Step(term)
    attributes = tuple((k, compiled(e)) for k, e in term.attributes)
    measures = any(isinstance(e, Measure) for _, a in term.attributes for e in walk(a))
    return Step(term, inputs, attributes, measures)


@functools.lru_cache(maxsize=1 << 14)
def tensor_type(shape: Shape) -> TensorType:
    return TensorType(shape, f32)


@functools.lru_cache(maxsize=1 << 14)
def _made(cls: type[Op] | None, name: str, attributes: tuple[tuple[str, Any], ...]) -> Op | None:
    """The class is part of the key: an operator of another one may have had the name."""
    try:
        return make_op(name, dict(attributes))
    except OperatorError:
        return None


@functools.lru_cache(maxsize=1 << 16)
def inferred(op: Op, types: Types) -> Types | None:
    """The types that the operator infers; None if the types do not fit it or nothing comes out."""
    try:
        found = op.infer_types(tuple(t for t in types if isinstance(t, TensorType)))
    except WhetError:
        return None
    if any(isinstance(t, TensorType) and 0 in t.shape for t in found):
        return None  # it would show nothing
    return found


@dataclass(frozen=True)
class Typed:
    """Steps at one assignment: their operators (None for variables and numbers) and types."""

    steps: Steps
    ops: tuple[Op | None, ...]
    types: tuple[Types, ...]

    @property
    def outputs(self) -> tuple[tuple[int, int], ...]:
        """(step, result) of every output."""
        return tuple((n, k) for n in self.steps.outputs for k in range(len(self.types[n])))


def typed(
    terms: tuple[Term, ...], values: Mapping[str, Any], shapes: Mapping[str, Shape]
) -> Typed | None:
    """Operators and types at an assignment; None if some term has no type."""
    steps = steps_of(terms)
    ops: list[Op | None] = [None] * len(steps.steps)
    known: list[Types | None] = [None] * len(steps.steps)
    made: list[Types] = []
    for n, step in enumerate(steps.steps):
        if isinstance(step.term, Apply):
            ops[n] = steps.op(n, values, shapes)
        found = steps.known(n, ops[n], known, shapes)
        if found is None:
            return None
        known[n] = found
        made.append(found)
    return Typed(steps, tuple(ops), tuple(made))
