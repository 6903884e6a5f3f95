"""Rules as pairs of terms over numbered operators, light enough for hundreds of thousands.

A term is the number of a variable, or a tuple (symbol, output, *operands).  Symbols are numbers
of operators in a `Lexicon` that all pools share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.core.types import Shape
from whet.ops.base import Op, show_attribute
from whet.superopt.generate.kinds import Kind

Term = Any
"""An int (a variable) or a tuple (symbol, output, *terms)."""

GEOMETRY = frozenset(
    {"pads", "kernel", "sizes", "channels", "size", "extents", "shape", "merged", "dtype"}
)
"""Attributes that follow from extents: rules that differ only in these are one rule."""


@dataclass
class Lexicon:
    """Operators by number, with what renaming needs to know of them."""

    ops: list[Op] = field(default_factory=list)
    numbers: dict[Op, int] = field(default_factory=dict)
    labels: list[int] = field(default_factory=list)
    """Equal for operators that differ in geometry alone."""
    label_texts: dict[str, int] = field(default_factory=dict)

    def symbol(self, op: Op) -> int:
        if op not in self.numbers:
            self.numbers[op] = len(self.ops)
            self.ops.append(op)
            self.labels.append(self.label_texts.setdefault(_label(op), len(self.label_texts)))
        return self.numbers[op]

    def commutative(self, symbol: int) -> bool:
        return self.ops[symbol].name in ("add", "mul")


def _label(op: Op) -> str:
    shown = [op.name]
    for name, value in sorted(op.attributes().items()):
        if name == "groups":
            shown.append("groups>1")
        elif name not in GEOMETRY:
            shown.append(f"{name}={show_attribute(value)}")
    return " ".join(shown)


@dataclass(frozen=True, slots=True)
class Found:
    """An equation as found: terms of both sides, output by output, and the variables' kinds."""

    left: tuple[Term, ...]
    right: tuple[Term, ...]
    kinds: Mapping[int, Kind]

    @property
    def ranks(self) -> Shape:
        """The ranks of the variables, sorted."""
        return tuple(sorted(len(k.shape) for k in self.kinds.values()))

    @property
    def size(self) -> int:
        """The number of operators on the larger side."""
        return max(size_of(self.left), size_of(self.right))


def size_of(terms: Sequence[Term]) -> int:
    """The number of operators that the terms contain, shared ones counted once."""
    seen: set[Any] = set()
    for term in terms:
        for t in subterms(term):
            if not isinstance(t, int):
                # The outputs of one operator are one operator.
                seen.add((t[0], t[2:]))
    return len(seen)


def subterms(term: Term) -> Iterator[Term]:
    yield term
    if not isinstance(term, int):
        for operand in term[2:]:
            yield from subterms(operand)


def variables(*terms: Term) -> tuple[int, ...]:
    """The variables in order of first use."""
    return tuple(dict.fromkeys(t for term in terms for t in subterms(term) if isinstance(t, int)))
