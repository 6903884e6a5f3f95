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
from whet.superopt.generate.universe import NONE, Universe
from whet.superopt.prune.pairs import ABSENT

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
    """How many operators the terms contain, shared ones counted once."""
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


class TermReader:
    """Turns application numbers of a universe into terms."""

    def __init__(self, universe: Universe, lexicon: Lexicon) -> None:
        self.universe, self.lexicon = universe, lexicon
        self.symbols = [lexicon.symbol(op) for op in universe.grammar.ops]
        apps = universe.apps
        self.op, self.a, self.b = apps.op.tolist(), apps.a.tolist(), apps.b.tolist()
        self.out, self.hash = apps.out.tolist(), apps.hash.tolist()

    def outputs(self, graph: Sequence[int]) -> dict[int, Term]:
        """The terms of the graph's outputs by the fingerprints of their values."""
        made: dict[int, Term] = {}
        print_of: dict[int, int] = {}
        consumed: set[int] = set()
        results: dict[int, Term] = {}
        pending = [v for v in graph if v != ABSENT]
        while pending:
            waiting = []
            for app in pending:
                operands = [v for v in (self.a[app], self.b[app]) if v != NONE]
                if any(v >= self.universe.inputs and v not in made for v in operands):
                    waiting.append(app)
                    continue
                inner = tuple(made.get(v, v) for v in operands)
                consumed.update(operands)
                outputs = 2 if self.hash[app][1] else 1
                for n in range(outputs):
                    term = (self.symbols[self.op[app]], n if outputs > 1 else NONE, *inner)
                    results[self.hash[app][n]] = term
                    value = self.out[app][n]
                    if value != NONE:
                        made[value] = term
                        print_of[value] = self.hash[app][n]
            assert len(waiting) < len(pending), "a graph with a cycle"
            pending = waiting
        for value in consumed:
            results.pop(print_of.get(value, 0), None)
        return results

    def pair(self, left: Mapping[int, Term], right: Mapping[int, Term]) -> Found | None:
        """The equation of two graphs, or None if their outputs are not the same values."""
        if left.keys() != right.keys():
            return None
        order = list(left)
        kinds = self.universe.pool.kinds
        used = variables(*left.values(), *right.values())
        return Found(
            tuple(left[h] for h in order),
            tuple(right[h] for h in order),
            {v: kinds[v] for v in used},
        )

    # ----------------------------------------------------------------------------- identities
    def identities(self) -> Iterator[Found]:
        """The equations that applications without a new value say: `term = variable`, or
        constant, or f(term) = term.  That an equation holds for a computed value in place of a
        variable goes without saying."""
        universe = self.universe
        producer: dict[int, tuple[int, int]] = {}
        for app in range(len(self.op) - 1, -1, -1):
            for n in range(2):
                if self.out[app][n] != NONE:
                    producer[self.out[app][n]] = (app, n)
        for identity in universe.identities:
            right = self._expanded(identity.equals, producer)
            operands = [v for v in (identity.a, identity.b) if v != NONE]
            general = isinstance(right, int) or not variables(right)
            if right is None or not (general or operands == [identity.equals]):
                continue
            inner = tuple(self._expanded(v, producer) for v in operands)
            if any(t is None for t in inner):
                continue
            several = universe.grammar.ops[identity.op].name == "split"
            output = identity.output if several else NONE
            left = (self.symbols[identity.op], output, *inner)
            if size_of([left]) <= universe.size and left != right:
                used = variables(left, right)
                yield Found((left,), (right,), {v: universe.pool.kinds[v] for v in used})

    def _expanded(
        self, value: int, producer: Mapping[int, tuple[int, int]], depth: int = 0
    ) -> Term | None:
        """A term for the value; None if it is too large."""
        if value < self.universe.inputs:
            return value
        if depth > self.universe.size:
            return None
        app, n = producer[value]
        operands = [v for v in (self.a[app], self.b[app]) if v != NONE]
        inner = tuple(self._expanded(v, producer, depth + 1) for v in operands)
        if any(t is None for t in inner):
            return None
        return (self.symbols[self.op[app]], n if self.hash[app][1] else NONE, *inner)
