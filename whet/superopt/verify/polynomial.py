"""Polynomials in normal form: the arithmetic of gate (c).

A polynomial is a mapping from monomials to exact coefficients; equal polynomials are equal
mappings.  A function that is no polynomial is an atom on the normal forms of its arguments;
max is an atom on the set of its arguments, so that nested, repeated and reordered maxima are
one atom, and min is the negative of the maximum of the negatives.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from fractions import Fraction

import numpy as np

from whet.core.types import Array
from whet.superopt.verify.evaluate import DivisionByZero, NoMeaning, simple_fraction

Monomial = tuple[int, ...]
"""The numbers of its atoms, in order, repeated as often as their power."""


class Polynomial:
    """An immutable polynomial; `terms` holds no zero coefficients."""

    __slots__ = ("key", "terms")

    def __init__(self, terms: dict[Monomial, int | Fraction]) -> None:
        self.terms = terms
        self.key: frozenset[tuple[Monomial, int | Fraction]] | None = None

    def __add__(self, other: Polynomial) -> Polynomial:
        if not other.terms:
            return self
        if not self.terms:
            return other
        found = dict(self.terms)
        _add_into(found, other.terms)
        return Polynomial(found)

    def __neg__(self) -> Polynomial:
        return Polynomial({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other

    def __mul__(self, other: Polynomial) -> Polynomial:
        found: dict[Monomial, int | Fraction] = {}
        for m, c in self.terms.items():
            _add_into(found, {tuple(sorted(m + n)): c * d for n, d in other.terms.items()})
        return Polynomial(found)

    def frozen(self) -> frozenset[tuple[Monomial, int | Fraction]]:
        """The normal form as a value that can be compared and hashed."""
        if self.key is None:
            self.key = frozenset(self.terms.items())
        return self.key

    @property
    def constant(self) -> int | Fraction | None:
        """The value of a polynomial without atoms."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None


def _add_into(total: dict[Monomial, int | Fraction], terms: dict[Monomial, int | Fraction]) -> None:
    for m, c in terms.items():
        s = total.get(m, 0) + c
        if s:
            total[m] = s
        else:
            total.pop(m, None)


LOWEST = Polynomial({(-1,): 1})
"""Stands for minus infinity, which occurs only under max."""


class Polynomials:
    """Polynomials over named atoms, as the ring that tensor expressions are evaluated over."""

    def __init__(self) -> None:
        self.numbers_of: dict[Hashable, int] = {}
        self.maxima: dict[int, frozenset[Polynomial]] = {}
        self.opaque = False
        """Whether an atom other than an input's element was made."""

    def variable(self, name: str, index: int) -> Polynomial:
        return self._atom((name, index))

    def tensor(self, name: str, shape: tuple[int, ...]) -> Array:
        """One variable for every element."""
        count = int(np.prod(shape, dtype=np.int64))
        return _array([self.variable(name, n) for n in range(count)]).reshape(shape)

    def _atom(self, key: Hashable) -> Polynomial:
        return Polynomial({(self.numbers_of.setdefault(key, len(self.numbers_of)),): 1})

    # ---------------------------------------------------------------------------------- ring
    def numbers(self, values: Sequence[float]) -> Array:
        return _array([self._number(v) for v in values])

    def _number(self, value: float) -> Polynomial:
        if value == float("-inf"):
            return LOWEST
        if value != value or value == float("inf"):
            raise NoMeaning(f"the number {value}")
        fraction = simple_fraction(value)
        known = fraction.numerator if fraction.denominator == 1 else fraction
        return Polynomial({(): known} if known else {})

    def integers(self, values: Array) -> Array:
        made = [Polynomial({(): int(v)} if v else {}) for v in values.ravel()]
        return _array(made).reshape(values.shape)

    def infix(self, op: str, left: Array, right: Array) -> Array:
        match op:
            case "add":
                return np.asarray(left + right)
            case "sub":
                return np.asarray(left - right)
            case "mul":
                return np.asarray(left * right)
            case "div":
                return _each(self._divide, left, right)
        raise NoMeaning(f"'{op}' of unknowns")

    def _divide(self, a: Polynomial, b: Polynomial) -> Polynomial:
        known = b.constant
        if known is not None:
            if not known:
                raise DivisionByZero
            return a * Polynomial({(): Fraction(1) / known})
        return a * self._opaque(("reciprocal", b.frozen()))

    def function(self, name: str, values: Sequence[Array]) -> Array:
        match name:
            case "neg":
                return np.asarray(-values[0])
            case "max":
                return _each(self._maximum, *values)
            case "min":
                return np.asarray(-_each(self._maximum, -values[0], -values[1]))
        return _each(lambda *args: self._opaque((name, *(a.frozen() for a in args))), *values)

    def _opaque(self, key: Hashable) -> Polynomial:
        self.opaque = True
        return self._atom(key)

    def _maximum(self, *operands: Polynomial) -> Polynomial:
        parts: dict[Hashable, Polynomial] = {}
        for operand in operands:
            for part in self._maximized(operand):
                parts[part.frozen()] = part
        parts.pop(LOWEST.frozen(), None)
        known = [p.constant for p in parts.values()]
        constants = [c for c in known if c is not None]
        if len(constants) > 1:  # only the largest of several numbers counts
            largest = max(constants)
            parts = {k: p for k, p in parts.items() if p.constant in (None, largest)}
        if not parts:
            return LOWEST
        if len(parts) == 1:
            return next(iter(parts.values()))
        made = self._opaque(("max", frozenset(parts)))
        (number,) = next(iter(made.terms))
        self.maxima[number] = frozenset(parts.values())
        return made

    def _maximized(self, operand: Polynomial) -> Sequence[Polynomial]:
        """The arguments of a maximum, or the operand itself."""
        if len(operand.terms) == 1:
            ((monomial, coefficient),) = operand.terms.items()
            if coefficient == 1 and len(monomial) == 1 and monomial[0] in self.maxima:
                return tuple(self.maxima[monomial[0]])
        return (operand,)

    def choose(self, condition: Array, then: Array, other: Array) -> Array:
        if condition.dtype != np.bool_:
            raise NoMeaning("a choice by unknowns")
        return np.where(condition, then, other)

    def total(self, values: Array, dims: tuple[int, ...]) -> Array:
        kept = [d for n, d in enumerate(values.shape) if n not in dims]
        rows = np.moveaxis(values, dims, range(-len(dims), 0)).reshape(
            int(np.prod(kept, dtype=np.int64)), -1
        )
        sums = []
        for row in rows:
            found: dict[Monomial, int | Fraction] = {}
            for p in row:
                _add_into(found, p.terms)
            sums.append(Polynomial(found))
        return np.expand_dims(_array(sums).reshape(kept), tuple(sorted(dims)))

    def contract(self, left: Array, right: Array, dims: tuple[int, ...]) -> Array:
        return self.total(np.asarray(left * right), dims)

    def extreme(self, kind: str, parts: Array) -> Array:
        return functools.reduce(lambda a, b: self.function(kind, [a, b]), parts)


def _array(items: Sequence[Polynomial]) -> Array:
    made = np.empty(len(items), object)
    made[:] = items
    return made


def _each(function: object, *arrays: Array) -> Array:
    """The function of corresponding elements."""
    spread = np.broadcast_arrays(*arrays)
    flat = zip(*(a.ravel() for a in spread))
    made = [function(*row) for row in flat]  # type: ignore[operator]
    return _array(made).reshape(spread[0].shape)
