"""Claims and assignments: what is tested, and where."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from whet.core.types import Shape
from whet.graph.attributes import Expression, Name, walk
from whet.graph.terms import Term, attribute_names


@dataclass(frozen=True)
class Claim:
    """A claim to test: that both sides agree wherever they have types and the guards hold."""

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
