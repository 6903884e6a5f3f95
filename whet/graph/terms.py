"""Operator terms such as `matmul(a, add(b, c))`, the notation of laws.

A term is a variable, a number, or an operator applied to terms, with attributes as in the text
of graphs.  A term with several results (a `split`) may stand where several inputs may:

    concat(split(x, axis=0, sizes=[2, 1]), axis=0) = x

and a number in brackets picks one of them: `split(x, axis=0, sizes=[2, 1])[0]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from whet.core.dtypes import DType, f32
from whet.graph.graph import Value, apply, make_constant
from whet.graph.syntax import Reader, refuse
from whet.ops.base import make_op

Values = tuple[Value, ...]


def parse_term(text: str, variables: Mapping[str, Value], dtype: DType = f32) -> Values:
    """The values of the term; numbers in it become scalars of type `dtype`.

    Raises: `WH1201` if it cannot be read, `WH1202` for a variable without a value, and the
    operator's own error where types do not fit.
    """
    reader = Reader(text)
    values = _term(reader, variables, dtype)
    _expect_end(reader)
    return values


def parse_equation(
    text: str, variables: Mapping[str, Value], dtype: DType = f32
) -> tuple[Values, Values]:
    """The values of both sides of `left = right`."""
    reader = Reader(text)
    left = _term(reader, variables, dtype)
    reader.expect("=")
    right = _term(reader, variables, dtype)
    _expect_end(reader)
    return left, right


def parse_attributes(text: str) -> dict[str, Any]:
    """Attributes alone, such as `axis=1, reverse=true`."""
    reader = Reader(text)
    found: dict[str, Any] = {}
    while reader.peek().kind != "end":
        if found:
            reader.expect(",")
        _attribute(reader, found)
    return found


def _attribute(reader: Reader, found: dict[str, Any]) -> None:
    line, key = reader.line, reader.name()
    if key in found:
        refuse(line, f"attribute '{key}' is given twice")
    reader.expect("=")
    found[key] = reader.literal()


def _expect_end(reader: Reader) -> None:
    if reader.peek().kind != "end":
        refuse(reader.line, f"expected the end of the term, found {reader.shown()}")


def _term(reader: Reader, variables: Mapping[str, Value], dtype: DType) -> Values:
    if reader.peek().kind == "number":
        return (make_constant(np.asarray(reader.number(), dtype.numpy)),)
    line, name = reader.line, reader.name()
    if not reader.accept("("):
        if name not in variables:
            refuse(line, f"variable '{name}' has no value", code="WH1202")
        return (variables[name],)
    inputs: list[Value] = []
    attributes: dict[str, Any] = {}

    def argument() -> None:
        if reader.is_keyword():
            _attribute(reader, attributes)
        else:
            inputs.extend(reader.nested(lambda: _term(reader, variables, dtype)))

    reader.sequence(")", argument)
    values = apply(make_op(name, attributes), *inputs)
    return _picked(reader, values) if reader.accept("[") else values


def _picked(reader: Reader, values: Values) -> Values:
    """The one value whose number stands in the brackets that have just been opened."""
    line, index = reader.line, reader.number()
    reader.expect("]")
    if not isinstance(index, int) or not 0 <= index < len(values):
        refuse(line, f"there is no result {index} among {len(values)}", code="WH1202")
    return (values[index],)
