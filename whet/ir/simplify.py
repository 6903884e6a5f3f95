"""Simplification of index and scalar expressions.

    (i * 4 + j) // 4               with j in 0..3   ->  i
    (n // 12) * 12 + n % 12                         ->  n
    0 <= i - 1 and i - 1 < 8                        ->  0 < i and i < 9

The result has the same value wherever the original has one, wrap-around included, and
simplifying it again changes nothing.  `ir.integers` has the rules of integer arithmetic; here
are constants, truth values, and what a condition says about the code that it guards.
"""

from __future__ import annotations

import math

import numpy as np

from whet.core.conversion import convert_array
from whet.core.dtypes import bool_
from whet.ir.affine import Affine, combine, rebuild
from whet.ir.bounds import FALSE, TRUE, Interval, Ranges, has_bounds, outside
from whet.ir.expr import Binary, Call, Cast, Const, Expr, Reduce, Select, const
from whet.ir.functions import FUNCTIONS, INFIX
from whet.ir.integers import Integers, form_of, unit_of

NEGATED = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
"""Comparisons of integers and their opposites."""

MAX_ROUNDS = 8
"""One round is nearly always enough; a rule's result may let another rule apply."""


def simplify(e: Expr, ranges: Ranges | None = None) -> Expr:
    """The expression in its simplest known form; `ranges` says what is known of variables."""
    for _ in range(MAX_ROUNDS):
        before, e = e, _Simplifier(ranges or {}).visit(e)
        if e is before:
            break
    return e


def assume(ranges: Ranges, condition: Expr, holds: bool = True) -> Ranges:
    """Facts that are known where the (simplified) condition holds, or where it does not."""
    match condition:
        case Binary(op="and" | "or" as op, left=left, right=right) if (op == "and") == holds:
            return assume(assume(ranges, left, holds), right, holds)
        case Call(name="not", args=(inner,)) if inner.dtype is bool_:
            return assume(ranges, inner, not holds)
        case Binary(op=op, left=left, right=right) if op in NEGATED and left.dtype.is_integer:
            ranges = _assume_comparison(ranges, op if holds else NEGATED[op], left, right)
    return {**ranges, condition: TRUE if holds else FALSE}


def _assume_comparison(ranges: Ranges, op: str, left: Expr, right: Expr) -> Ranges:
    """Narrows what is known of left - right, where arithmetic is exact."""
    if op in ("gt", "ge"):
        left, right, op = right, left, {"gt": "lt", "ge": "le"}[op]
    known = Integers(ranges)
    a, b = known.exact(left), known.exact(right)
    if op == "ne" or a is None or b is None:
        return ranges
    difference = combine([(a, 1), (b, -1)])
    if not difference.terms:
        return ranges
    # The condition says `unit * key  op  limit`.
    key, unit = unit_of(difference.terms, left.dtype)
    limit = -difference.constant
    reach = known.interval(Affine(difference.terms, 0), left.dtype)
    allowed = reach.intersect(
        Interval(limit if op == "eq" else reach.low, limit - 1 if op == "lt" else limit)
    )
    if unit < 0:
        allowed, unit = allowed.scaled(-1), -unit
    narrowed = Interval(-(-allowed.low // unit), allowed.high // unit)
    if allowed.is_empty or narrowed.is_empty or known.exact(key) is None:
        return ranges
    return {**ranges, key: narrowed}


class _Simplifier:
    """Simplifies bottom-up under fixed knowledge; a guarded part gets a simplifier of its own."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.integers = Integers(ranges)
        self.memo: dict[Expr, Expr] = {}

    def visit(self, e: Expr) -> Expr:
        found = self.memo.get(e)
        if found is None:
            found = self.memo[e] = self._decided(self._visit(e))
        return found

    def where(self, condition: Expr, holds: bool) -> _Simplifier:
        """The simplifier for code that runs only where the condition holds (or does not)."""
        return _Simplifier(assume(self.ranges, condition, holds))

    def _decided(self, e: Expr) -> Expr:
        """A literal if bounds leave one value only."""
        if isinstance(e, Const) or not has_bounds(e):
            return e
        reach = self.integers.bounds.of(e)
        return const(reach.low, e.dtype) if reach.low == reach.high else e

    def _visit(self, e: Expr) -> Expr:
        match e:
            case Select(condition=condition, then=then, other=other):
                return self._select(self.visit(condition), then, other)
            case Binary(op="and" | "or" as op, left=left, right=right):
                return self._junction(op, self.visit(left), right)
            case Reduce(kind=kind, axes=axes, value=value):
                inside = _Simplifier(outside(self.ranges, axes))
                return Reduce(kind, axes, inside.visit(value))
        if not e.children():
            return e
        return self._apply_rules(rebuild(e, (self.visit(child) for child in e.children())))

    def _apply_rules(self, e: Expr) -> Expr:
        """The node simplified, given that its operands are."""
        folded = fold_constants(e)
        if folded is not None:
            return folded
        match e:
            case Binary(left=left) if left.dtype.is_integer:
                return self._integer_binary(e)
            case Binary(op="mul" | "div", left=left, right=Const(value=1.0)):
                return left
            case Binary(op="sub", left=left, right=Const(value=0.0 as zero)) if _positive(zero):
                return left
            case Call(name="neg", args=(value,)) if value.dtype.is_integer:
                return self.integers.sum(combine([(form_of(value), -1)]), e.dtype)
            case Call(name="min" | "max" as name, args=(a, b)) if a.dtype.is_integer:
                return self.integers.extremum(name, a, b)
            case Call(name="abs", args=(value,)) if value.dtype.is_integer:
                return value if self.integers.bounds.of(value).low >= 0 else e
            case Call(name="not", args=(value,)) if value.dtype is bool_:
                return self._negation(e, value)
        return e

    def _integer_binary(self, e: Binary) -> Expr:
        rules = self.integers
        match e:
            case Binary(op="add" | "sub" as op, left=left, right=right):
                sign = 1 if op == "add" else -1
                return rules.sum(combine([(form_of(left), 1), (form_of(right), sign)]), e.dtype)
            case Binary(op="mul", left=left, right=right):
                return rules.product(left, right)
            case Binary(op="floordiv", left=left, right=Const(value=d)) if d > 0:
                return rules.quotient(left, int(d))
            case Binary(op="mod", left=left, right=Const(value=d)) if d > 0:
                return rules.remainder(left, int(d))
            case Binary(op=op, left=left, right=right) if op in NEGATED:
                return rules.compare(op, left, right)
        return e

    # ------------------------------------------------------------------------ truth values
    def _junction(self, op: str, left: Expr, right: Expr) -> Expr:
        """`left and right`, `left or right`; the right side counts only if the left leaves it."""
        neutral = op == "and"
        if isinstance(left, Const):
            return self.visit(right) if left.value == neutral else left
        right = self.where(left, neutral).visit(right)
        if isinstance(right, Const):
            return left if right.value == neutral else right
        return Binary(op, left, right)

    def _negation(self, e: Expr, value: Expr) -> Expr:
        match value:
            case Call(name="not", args=(inner,)) if inner.dtype is bool_:
                return inner
            case Binary(op=op, left=left, right=right) if op in NEGATED and left.dtype.is_integer:
                return self.integers.compare(NEGATED[op], left, right)
        return e

    def _select(self, condition: Expr, then: Expr, other: Expr) -> Expr:
        match condition:
            case Const(value=value):
                return self.visit(then if value else other)
            case Call(name="not", args=(inner,)) if inner.dtype is bool_:
                condition, then, other = inner, other, then
        then = self.where(condition, True).visit(then)
        other = self.where(condition, False).visit(other)
        if then is other:
            return then
        match then, other:
            case Const(value=True, dtype=dtype), Const(value=False) if dtype is bool_:
                return condition
            case Const(value=False, dtype=dtype), Const(value=True) if dtype is bool_:
                return self._negation(Call("not", (condition,)), condition)
        return Select(condition, then, other)


def _positive(zero: float) -> bool:
    return math.copysign(1.0, zero) > 0


# ----------------------------------------------------------------------------------- constants
def fold_constants(e: Expr) -> Const | None:
    """The value of a node whose operands are all literals; None where it has none."""
    operands = e.children()
    if not isinstance(e, (Binary, Call, Cast)) or e.dtype.is_storage_only:
        return None
    values = [x.value for x in operands if isinstance(x, Const)]
    if len(values) < len(operands) or not _is_defined(e, values):
        return None
    arrays = [np.full(1, x.value, x.dtype.numpy) for x in operands if isinstance(x, Const)]
    with np.errstate(all="ignore"):
        match e:
            case Binary(op=op):
                result = INFIX[op].numpy(*arrays)
            case Call(name=name):
                result = FUNCTIONS[name](*arrays)
            case _:
                result = convert_array(arrays[0], e.dtype)
        return const(np.asarray(result).astype(e.dtype.numpy)[0].item(), e.dtype)


def _is_defined(e: Binary | Call | Cast, values: list[int | float | bool]) -> bool:
    """Whether every machine agrees on the result."""
    match e:
        case Binary(op="floordiv" | "mod" | "div") | Call(name="truncdiv" | "truncmod"):
            return e.dtype.is_float or values[1] != 0
        case Call(name="shiftleft" | "shiftright"):
            return 0 <= values[1] < e.dtype.bits
        case Call(name="pow"):
            return e.dtype.is_float or values[1] >= 0
    return True
