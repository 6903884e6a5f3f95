"""Interval bounds of integer expressions.

    bounds(i * 4 + j)  with i in 0..2, j in 0..3     ->  0..11

Bounds are sound under wrap-around: whenever exact arithmetic could leave the expression's
type, the answer is the whole range of that type.  Truth values count as 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from whet.core.dtypes import DType, bool_, integer_range
from whet.ir.affine import free_symbols
from whet.ir.expr import (
    Axis,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Read,
    Reduce,
    Reinterpret,
    Select,
    Var,
    elements,
)


@dataclass(frozen=True, slots=True)
class Interval:
    """The integers from `low` to `high`, both included."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high

    @property
    def is_empty(self) -> bool:
        return self.low > self.high

    def within(self, other: Interval) -> bool:
        return other.low <= self.low and self.high <= other.high

    def intersect(self, other: Interval) -> Interval:
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def scaled(self, factor: int) -> Interval:
        """The interval of factor * x."""
        return hull((self.low * factor, self.high * factor))

    def plus(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)


Ranges = Mapping[Expr, Interval]
"""What is known of some expressions, usually variables; of sums, in exact arithmetic."""

TRUTH = Interval(0, 1)
TRUE, FALSE = Interval(1, 1), Interval(0, 0)


def hull(values: Iterable[int]) -> Interval:
    """The smallest interval with all the values."""
    known = tuple(values)
    return Interval(min(known), max(known))


def type_range(dtype: DType) -> Interval:
    """All values of an integer type."""
    if dtype is bool_:
        return TRUTH
    return Interval(*integer_range(dtype))


def has_bounds(e: Expr) -> bool:
    """Whether the expression is of an integer type or a truth value."""
    return e.dtype.is_integer or e.dtype is bool_


def bounds(e: Expr, ranges: Ranges | None = None) -> Interval:
    """The values that an integer expression or truth value can take.

    `ranges` may hold what is known of variables and of any other sub-expression.
    """
    return Bounds(ranges or {}).of(e)


def outside(ranges: Ranges, axes: Iterable[Axis]) -> Ranges:
    """Facts that stay known inside a reduction, which gives its axes values of their own."""
    own = frozenset(axes)
    return {e: r for e, r in ranges.items() if own.isdisjoint(free_symbols(e))}


class Bounds:
    """Bounds of many expressions under the same knowledge, each computed once."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self._known: dict[Expr, Interval] = {}

    def of(self, e: Expr) -> Interval:
        assert has_bounds(e), f"{e} is of type {e.dtype}"
        found = self._known.get(e)
        if found is None:
            found = self._known[e] = self._intersected(e)
        return found

    def _intersected(self, e: Expr) -> Interval:
        whole = type_range(e.dtype)
        computed = self._compute(e)
        if not computed.within(whole):
            computed = whole
        given = self.ranges.get(e)
        if given is None:
            return computed
        both = computed.intersect(given)
        # Contradictory knowledge means that the expression is never evaluated.
        return computed if both.is_empty else both

    def _compute(self, e: Expr) -> Interval:
        match e:
            case Const(value=value):
                return Interval(int(value), int(value))
            case Axis(extent=extent):
                return Interval(0, max(extent - 1, 0))
            case Binary(op="and" | "or" as op, left=left, right=right):
                a, b = self.of(left), self.of(right)
                choose = min if op == "and" else max
                return Interval(choose(a.low, b.low), choose(a.high, b.high))
            case Binary(op=op, left=left, right=right) if has_bounds(left):
                return _binary(op, self.of(left), self.of(right), type_range(e.dtype))
            case Call(name=name, args=args) if all(has_bounds(a) for a in args):
                return _call(name, [self.of(a) for a in args], type_range(e.dtype))
            case Select(then=then, other=other):
                a, b = self.of(then), self.of(other)
                return hull((a.low, a.high, b.low, b.high))
            case Cast(value=value) if has_bounds(value):
                if e.dtype is bool_:
                    return _compare("ne", self.of(value), FALSE)
                return self.of(value)
            case Reduce():
                return self._reduce(e)
            case Binary() | Call() | Cast() | Read() | Reinterpret() | Var():
                return type_range(e.dtype)
        raise AssertionError(type(e))

    def _reduce(self, e: Reduce) -> Interval:
        count = elements(e.axes)
        if e.kind in ("argmax", "argmin"):
            return Interval(0, max(count - 1, 0))
        value = Bounds(outside(self.ranges, e.axes)).of(e.value) if has_bounds(e.value) else None
        if value is not None and count and e.kind in ("max", "min", "any", "all"):
            return value
        if value is not None and e.kind == "sum":
            return value.scaled(count)
        return type_range(e.dtype)


def _binary(op: str, a: Interval, b: Interval, whole: Interval) -> Interval:
    match op:
        case "add":
            return a.plus(b)
        case "sub":
            return a.plus(b.scaled(-1))
        case "mul":
            return hull(x * y for x in (a.low, a.high) for y in (b.low, b.high))
        case "floordiv" if 0 not in b:
            return hull(x // y for x in (a.low, a.high) for y in (b.low, b.high))
        case "mod" if b.low > 0:
            return _modulo(a, b)
        case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
            return _compare(op, a, b)
    return whole


def _modulo(a: Interval, b: Interval) -> Interval:
    """a % b for b > 0, with a result of 0 or more."""
    if b.low == b.high and a.low // b.low == a.high // b.low:
        return Interval(a.low % b.low, a.high % b.low)
    if a.low >= 0:
        return Interval(0, min(a.high, b.high - 1))
    return Interval(0, b.high - 1)


def _compare(op: str, a: Interval, b: Interval) -> Interval:
    """The truth value of a comparison as far as bounds decide it."""
    match op:
        case "gt" | "ge":
            return _compare({"gt": "lt", "ge": "le"}[op], b, a)
        case "lt":
            true, false = a.high < b.low, a.low >= b.high
        case "le":
            true, false = a.high <= b.low, a.low > b.high
        case _:
            true = a.low == a.high == b.low == b.high
            false = a.intersect(b).is_empty
            if op == "ne":
                true, false = false, true
    return TRUE if true else FALSE if false else TRUTH


def _call(name: str, args: list[Interval], whole: Interval) -> Interval:
    match name, args:
        case "neg", [a]:
            return a.scaled(-1)
        case "abs", [a]:
            largest = max(abs(a.low), abs(a.high))
            return Interval(0 if 0 in a else min(abs(a.low), abs(a.high)), largest)
        case "sign", [a]:
            return Interval(_sign(a.low), _sign(a.high))
        case "min", [a, b]:
            return Interval(min(a.low, b.low), min(a.high, b.high))
        case "max", [a, b]:
            return Interval(max(a.low, b.low), max(a.high, b.high))
        case "not", [a]:
            return _compare("eq", a, FALSE)
        case "truncdiv", [a, b] if 0 not in b:
            return hull(truncated(x, y) for x in (a.low, a.high) for y in (b.low, b.high))
        case "truncmod", [a, b] if 0 not in b:
            limit = max(abs(b.low), abs(b.high)) - 1
            return Interval(max(a.low, -limit) if a.low < 0 else 0, max(min(a.high, limit), 0))
        case "bitand", [a, b] if a.low >= 0 and b.low >= 0:
            return Interval(0, min(a.high, b.high))
        case "shiftright", [a, b] if b.low >= 0 and b.high < 64:
            return hull(x >> y for x in (a.low, a.high) for y in (b.low, b.high))
    return whole


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


def truncated(a: int, b: int) -> int:
    """The quotient rounded toward zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient
