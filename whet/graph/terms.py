"""Operator terms such as `matmul(a, add(b, c))`, the notation of laws and rules.

A term is a variable, a number, or an operator applied to terms, with attributes as in the text
of graphs.  A term with several results (a `split`) may stand where several inputs may:

    concat(split(x, axis=0, sizes=[2, 1]), axis=0) = x

and a number in brackets picks one of them: `split(x, axis=0, sizes=[2, 1])[0]`.  Attributes
may be expressions over attribute variables and extents (`whet.graph.attributes`):

    transpose(relu(x), perm=p) = relu(transpose(x, perm=p))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.dtypes import DType, f32
from whet.core.errors import OperatorError, fail
from whet.core.types import Shape
from whet.graph.attributes import Expression, ExpressionReader, Measure, Name, evaluate, walk
from whet.graph.graph import Value, apply, make_constant
from whet.graph.syntax import Reader, refuse
from whet.ops.base import Op, make_op

Values = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A tensor that is given from outside."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Number:
    """A scalar constant."""

    value: int | float

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator on terms; `result` picks one of several outputs."""

    op: str
    inputs: tuple[Term, ...]
    attributes: tuple[tuple[str, Expression], ...] = ()
    result: int | None = None

    def __str__(self) -> str:
        inner = [*map(str, self.inputs), *(f"{k}={v}" for k, v in self.attributes)]
        picked = "" if self.result is None else f"[{self.result}]"
        return f"{self.op}({', '.join(inner)}){picked}"

    def make(self, values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Op:
        """The operator with its attributes evaluated; an operator error if they have no value."""
        try:
            found = {k: evaluate(e, values, shapes) for k, e in self.attributes}
        except (ArithmeticError, LookupError, TypeError) as error:
            fail("WH1104", f"attributes of {self}: {error!r}", kind=OperatorError)
        return make_op(self.op, found)


Term = Variable | Number | Apply


def subterms(term: Term) -> Iterator[Term]:
    """The term and all terms in it, inputs before their users, repetitions included."""
    if isinstance(term, Apply):
        for inner in term.inputs:
            yield from subterms(inner)
    yield term


def tensor_names(term: Term) -> tuple[str, ...]:
    """The tensor variables, in order of appearance."""
    found: dict[str, None] = {}
    for t in subterms(term):
        if isinstance(t, Variable):
            found[t.name] = None
        elif isinstance(t, Apply):
            measured = (e for _, a in t.attributes for e in walk(a) if isinstance(e, Measure))
            found.update(dict.fromkeys(e.tensor for e in measured))
    return tuple(found)


def attribute_names(term: Term) -> tuple[str, ...]:
    """The attribute variables, in order of appearance."""
    return tuple(
        dict.fromkeys(
            e.name
            for t in subterms(term)
            if isinstance(t, Apply)
            for _, a in t.attributes
            for e in walk(a)
            if isinstance(e, Name)
        )
    )


# ------------------------------------------------------------------------------------- reading
def read_term(text: str) -> Term:
    """The term; `WH1201` if the text is none."""
    reader = ExpressionReader(text)
    term = _term(reader)
    reader.end()
    return term


def read_equation(text: str) -> tuple[Term, Term]:
    """Both sides of `left = right`."""
    reader = ExpressionReader(text)
    left = _term(reader)
    reader.expect("=")
    right = _term(reader)
    reader.end()
    return left, right


def _term(reader: ExpressionReader) -> Term:
    if reader.accept("-"):
        return Number(-_number(reader))
    if reader.peek().kind == "number" or reader.peek().text in ("inf", "nan"):
        return Number(_number(reader))
    name = reader.name()
    if not reader.accept("("):
        return Variable(name)
    inputs: list[Term] = []
    attributes: dict[str, Expression] = {}

    def argument() -> None:
        if reader.is_keyword():
            line, key = reader.line, reader.name()
            if key in attributes:
                refuse(line, f"attribute '{key}' is given twice")
            reader.expect("=")
            attributes[key] = reader.nested(reader.expression)
        else:
            inputs.append(reader.nested(lambda: _term(reader)))

    reader.sequence(")", argument)
    return Apply(name, tuple(inputs), tuple(attributes.items()), _picked(reader))


def _number(reader: ExpressionReader) -> int | float:
    return float(reader.name()) if reader.peek().kind == "name" else reader.number()


def _picked(reader: ExpressionReader) -> int | None:
    """The number of the result in brackets, if there are any."""
    if not reader.accept("["):
        return None
    line, index = reader.line, reader.number()
    reader.expect("]")
    if not isinstance(index, int) or index < 0:
        refuse(line, f"there is no result {index}", code="WH1202")
    return index


def parse_attributes(text: str) -> dict[str, Any]:
    """Attributes alone, such as `axis=1, reverse=true`."""
    reader = Reader(text)
    found: dict[str, Any] = {}
    while reader.peek().kind != "end":
        if found:
            reader.expect(",")
        line, key = reader.line, reader.name()
        if key in found:
            refuse(line, f"attribute '{key}' is given twice")
        reader.expect("=")
        found[key] = reader.literal()
    return found


# ------------------------------------------------------------------------------------ building
def build_term(
    term: Term,
    variables: Mapping[str, Value],
    attributes: Mapping[str, Any] | None = None,
    dtype: DType = f32,
) -> Values:
    """The values of the term; numbers in it become scalars of type `dtype`.

    Raises: `WH1202` for a variable without a value, and the operator's own error where types
    do not fit.
    """
    if isinstance(term, Number):
        return (make_constant(np.asarray(term.value, dtype.numpy)),)
    if isinstance(term, Variable):
        if term.name not in variables:
            refuse(1, f"variable '{term.name}' has no value", code="WH1202")
        return (variables[term.name],)
    inputs = [v for t in term.inputs for v in build_term(t, variables, attributes, dtype)]
    shapes = {name: v.tensor_type.shape for name, v in variables.items()}
    values = apply(term.make(attributes or {}, shapes), *inputs)
    if term.result is None:
        return values
    if term.result >= len(values):
        refuse(1, f"there is no result {term.result} among {len(values)}", code="WH1202")
    return (values[term.result],)
