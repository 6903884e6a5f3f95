"""Terms of rules, read piece by piece.

Rules are many and made of few pieces: `conv(x, w, strides=s, pads=p, dilations=d, groups=1)`
stands in hundreds of them.  A term is cut at its brackets and commas, and each piece is read
once; only pieces without brackets of their own, and what is irregular, are read token by token.
"""

from __future__ import annotations

import functools
import re

from whet.graph.attributes import Expression, read_expression
from whet.graph.syntax import MAX_DEPTH
from whet.graph.terms import Apply, Term, read_term

_APPLIED = re.compile(r"(\w+)\((.*)\)(?:\[(\d+)\])?", re.ASCII)
_ATTRIBUTE = re.compile(r"(\w+)\s*=(?!=)\s*(.*)", re.ASCII)
_MARK = re.compile(r"[()\[\],]")


@functools.cache
def read_shared(text: str) -> Term:
    """The term, as `read_term` reads it; equal terms are one object.

    relu(add(x, y))   ->   Apply("relu", (read_shared("add(x, y)"),))
    """
    found = _APPLIED.fullmatch(text)
    pieces = _pieces(found[2]) if found is not None else None
    if found is None or pieces is None:
        return read_term(text)
    inputs: list[Term] = []
    attributes: dict[str, Expression] = {}
    for piece in pieces:
        attribute = _ATTRIBUTE.fullmatch(piece)
        if attribute is None:
            inputs.append(read_shared(piece))
        elif attribute[1] in attributes:
            return read_term(text)  # which says what is wrong
        else:
            attributes[attribute[1]] = read_shared_expression(attribute[2])
    picked = None if found[3] is None else int(found[3])
    return Apply(found[1], tuple(inputs), tuple(attributes.items()), picked)


@functools.cache
def read_shared_expression(text: str) -> Expression:
    """The expression, as `read_expression` reads it."""
    return read_expression(text)


def _pieces(text: str) -> list[str] | None:
    """The text cut at the commas outside brackets; None if it is irregular."""
    if '"' in text:
        return None
    pieces: list[str] = []
    begin = depth = deepest = 0
    for mark in _MARK.finditer(text):
        match mark.group():
            case "(" | "[":
                depth += 1
                deepest = max(deepest, depth)
            case ",":
                if not depth:
                    pieces.append(text[begin : mark.start()].strip())
                    begin = mark.end()
            case _:
                depth -= 1
                if depth < 0:
                    return None
    pieces.append(text[begin:].strip())
    regular = not depth and deepest < MAX_DEPTH and all(pieces)
    return pieces if regular else None
