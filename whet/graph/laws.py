"""Laws of operators, read: both sides as terms, guards as expressions, the example by kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from whet.core.errors import GraphError
from whet.core.types import Shape
from whet.graph.attributes import Expression, Name, read_expression, walk
from whet.graph.terms import Term, read_equation, tensor_names
from whet.ops.base import Law


@dataclass(frozen=True, eq=False)
class ReadLaw:
    """A law with its text read.

    `guards` are those that speak of shapes and attributes; `on_values` says that there is a
    guard on elements (`x > 0`) or one in plain words, so that the law does not hold of all
    tensors.
    """

    law: Law
    left: Term
    right: Term
    guards: tuple[Expression, ...]
    on_values: bool
    shapes: Mapping[str, Shape]
    attributes: Mapping[str, Any]


@cache
def read_law(law: Law) -> ReadLaw:
    """The law, read; `WH1201` if a side is no term."""
    left, right = read_equation(law.text)
    tensors = dict.fromkeys((*tensor_names(left), *tensor_names(right)))
    shapes = {n: v for n, v in law.example if n in tensors and isinstance(v, tuple)}
    attributes = {n: v for n, v in law.example if n not in tensors}
    guards: list[Expression] = []
    on_values = False
    for text in law.when:
        guard = _guard(text)
        if guard is None or any(isinstance(e, Name) and e.name in tensors for e in walk(guard)):
            on_values = True
        else:
            guards.append(guard)
    return ReadLaw(law, left, right, tuple(guards), on_values, shapes, attributes)


def _guard(text: str) -> Expression | None:
    """The guard as an expression; None for one in plain words."""
    try:
        return read_expression(text)
    except GraphError:
        return None
