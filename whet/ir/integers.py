"""Normal forms of integer expressions: sums, quotients, remainders and comparisons.

Sums are linear forms, and identities between them hold modulo the size of the type, so they
are true under wrap-around.  What needs exact arithmetic (quotients, remainders, comparisons)
is done only where bounds prove that a form cannot leave its type.
"""

from __future__ import annotations

import math

from whet.core.dtypes import DType, bool_
from whet.ir.affine import Affine, affine, combine
from whet.ir.bounds import Bounds, Interval, Ranges, type_range
from whet.ir.expr import Binary, Call, Const, Expr, const

Terms = tuple[tuple[Expr, int], ...]


def literal(value: int, dtype: DType) -> Const:
    """A literal of an integer type, wrapped around into its range."""
    low = type_range(dtype).low
    return const((value - low) % (1 << dtype.bits) + low, dtype)


def form_of(e: Expr) -> Affine:
    """The linear form with coefficients as near to zero as wrap-around allows."""
    return _wrapped(affine(e), e.dtype)


def _wrapped(form: Affine, dtype: DType) -> Affine:
    half = 1 << (dtype.bits - 1)

    def near_zero(value: int) -> int:
        return (value + half) % (2 * half) - half

    terms = tuple((atom, near_zero(c)) for atom, c in form.terms)
    return Affine(tuple(t for t in terms if t[1]), near_zero(form.constant))


def _in_order(terms: Terms) -> Terms:
    return tuple(sorted(terms, key=lambda t: str(t[0])))


def sum_of(form: Affine, dtype: DType) -> Expr:
    """The form as an expression: `i * 4 + j - k * 2 - 1`, terms by name, subtrahends last."""
    form = _wrapped(form, dtype)
    terms = sorted(_in_order(form.terms), key=lambda t: t[1] < 0)
    constant = form.constant
    total: Expr | None = None
    if constant > 0 and terms and terms[0][1] < 0:
        total, constant = literal(constant, dtype), 0  # 5 - i rather than i * -1 + 5
    for atom, c in terms:
        total = _plus(total, atom, c, dtype)
    if total is None:
        return literal(constant, dtype)
    return total if constant == 0 else _plus(total, None, constant, dtype)


def _plus(total: Expr | None, atom: Expr | None, c: int, dtype: DType) -> Expr:
    """total + atom * c, with c > 0 written where the type allows it; no atom stands for 1."""
    subtract = total is not None and c < 0 and -c in type_range(dtype)
    factor = literal(-c if subtract else c, dtype)
    if atom is None:
        term: Expr = factor
    else:
        term = atom if factor.value == 1 else Binary("mul", atom, factor)
    if total is None:
        return term
    return Binary("sub" if subtract else "add", total, term)


def unit_of(terms: Terms, dtype: DType) -> tuple[Expr, int]:
    """An expression K and a number u with terms = u * K, K having no common factor."""
    ordered = _in_order(terms)
    unit = math.gcd(*(c for _, c in ordered))
    if ordered[0][1] < 0:
        unit = -unit
    return sum_of(Affine(tuple((a, c // unit) for a, c in ordered), 0), dtype), unit


class Integers:
    """Rules for integer expressions whose operands are simplified already."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.bounds = Bounds(ranges)

    # ---------------------------------------------------------------------------- exactness
    def interval(self, form: Affine, dtype: DType) -> Interval:
        """The values of the form in exact arithmetic, without wrap-around."""
        total = Interval(0, 0)
        for atom, c in form.terms:
            total = total.plus(self.bounds.of(atom).scaled(c))
        if len(form.terms) > 1:
            key, unit = unit_of(form.terms, dtype)
            known = self.ranges.get(key)
            if known is not None and not (both := total.intersect(known.scaled(unit))).is_empty:
                total = both
        return total.plus(Interval(form.constant, form.constant))

    def fits(self, form: Affine, dtype: DType) -> bool:
        """Whether the form, computed in the type, cannot wrap around."""
        return self.interval(form, dtype).within(type_range(dtype))

    def exact(self, e: Expr) -> Affine | None:
        """The linear form, if it equals the expression in exact arithmetic too."""
        form = form_of(e)
        return form if self.fits(form, e.dtype) else None

    # --------------------------------------------------------------------------------- sums
    def sum(self, form: Affine, dtype: DType) -> Expr:
        """The form as an expression, with `(x // a) * a + x % a` put together as x."""
        form = _wrapped(form, dtype)
        for atom, c in form.terms:
            match atom:
                case Binary(op="floordiv", left=x, right=Const(value=a)) if a > 0 and c % a == 0:
                    rest = form_of(self.remainder(x, int(a)))
                    wanted = _wrapped(combine([(rest, c // int(a))]), dtype)
                    if wanted.terms and set(wanted.terms) <= set(form.terms):
                        step = [(form, 1), (Affine(((atom, 1),), 0), -c),
                                (rest, -(c // int(a))), (form_of(x), c // int(a))]  # fmt: skip
                        return self.sum(combine(step), dtype)
        return sum_of(form, dtype)

    def product(self, left: Expr, right: Expr) -> Expr:
        """left * right, with constant factors outside and the others in order."""
        dtype = left.dtype
        factor = 1
        atoms: list[Expr] = []
        for side in (left, right):
            form = form_of(side)
            if not form.terms:
                factor *= form.constant
            elif len(form.terms) == 1 and not form.constant:
                factor *= form.terms[0][1]
                atoms += _factors(form.terms[0][0])
            else:
                atoms.append(side)
        if len(atoms) < 2:
            return self.sum(combine([(form_of(a), factor) for a in atoms]), dtype)
        first, *others = sorted(atoms, key=str)
        for other in others:
            first = Binary("mul", first, other)
        return self.sum(Affine(((first, factor),), 0), dtype)

    # -------------------------------------------------------------- quotients and remainders
    def quotient(self, e: Expr, d: int) -> Expr:
        """e // d for d > 0: multiples of d leave the quotient, a common factor cancels."""
        dtype = e.dtype
        form = self.exact(e)
        if form is None or d == 1:
            return Binary("floordiv", e, literal(d, dtype)) if d > 1 else e
        whole = Affine(tuple((a, c // d) for a, c in form.terms if c % d == 0), form.constant // d)
        rest = Affine(tuple(t for t in form.terms if t[1] % d), form.constant % d)
        reach = self.interval(rest, dtype)
        if reach.low // d == reach.high // d:
            return self.sum(combine([(whole, 1)], reach.low // d), dtype)
        if not reach.within(type_range(dtype)):
            return Binary("floordiv", e, literal(d, dtype))
        rest, _, d = _cancel(rest, d)
        inner = self._nested_quotient(rest, d, dtype)
        if inner is None:
            inner = Binary("floordiv", self.sum(rest, dtype), literal(d, dtype))
        return self.sum(combine([(whole, 1), (form_of(inner), 1)]), dtype)

    def _nested_quotient(self, rest: Affine, d: int, dtype: DType) -> Expr | None:
        """(x // b + k) // d  ->  (x + k * b) // (b * d)"""
        match rest.terms:
            case ((Binary(op="floordiv", left=x, right=Const(value=b)), 1),) if b > 0:
                b = int(b)
                moved = combine([(form_of(x), 1)], rest.constant * b)
                if (
                    b * d in type_range(dtype)
                    and self.exact(x) is not None
                    and self.fits(moved, dtype)
                ):
                    return self.quotient(self.sum(moved, dtype), b * d)
        return None

    def remainder(self, e: Expr, d: int) -> Expr:
        """e % d for d > 0: multiples of d vanish, a common factor moves outside."""
        dtype = e.dtype
        form = self.exact(e)
        if form is None:
            return Binary("mod", e, literal(d, dtype))
        rest = self._reduce_terms(form, d, dtype)
        reach = self.interval(rest, dtype)
        if reach.low // d == reach.high // d:
            return self.sum(combine([(rest, 1)], -d * (reach.low // d)), dtype)
        if not reach.within(type_range(dtype)):
            return Binary("mod", e, literal(d, dtype))
        rest, low, inner_d = _cancel(rest, d)
        inner = Binary("mod", self.sum(rest, dtype), literal(inner_d, dtype))
        return self.sum(combine([(form_of(inner), d // inner_d)], low), dtype)

    def _reduce_terms(self, form: Affine, d: int, dtype: DType) -> Affine:
        """A form with the same remainder: coefficients below d, and x for x % a where d | a."""
        parts: list[tuple[Affine, int]] = []
        for atom, c in form.terms:
            c = c % d if c > 0 else -(-c % d)
            match atom:
                case Binary(op="mod", left=x, right=Const(value=a)) if a > 0 and c * a % d == 0:
                    inner = self.exact(x)
                    if inner is not None:
                        parts.append((self._reduce_terms(inner, d, dtype), c))
                        continue
            parts.append((Affine(((atom, 1),), 0), c))
        total = combine(parts)
        terms = tuple(t for t in total.terms if t[1] % d)
        return Affine(terms, (form.constant + total.constant) % d)

    # -------------------------------------------------------------------------- comparisons
    def compare(self, op: str, left: Expr, right: Expr) -> Expr:
        """A comparison of integers as `terms < terms + constant`, `==` or `!=`."""
        if op in ("gt", "ge"):
            left, right, op = right, left, {"gt": "lt", "ge": "le"}[op]
        if left is right:
            return const(op in ("le", "eq"), bool_)
        a, b = self.exact(left), self.exact(right)
        if a is None or b is None:
            return Binary(op, left, right)
        dtype = left.dtype
        given = Binary(op, left, right)
        difference = combine([(a, 1), (b, -1)], -1 if op == "le" else 0)
        op = "lt" if op == "le" else op
        reach = self.interval(difference, dtype)
        decided = _decide(op, difference, reach)
        if decided is not None:
            return const(decided, bool_)
        factor = math.gcd(*(c for _, c in difference.terms))
        if op != "lt" and _in_order(difference.terms)[0][1] < 0:
            factor = -factor
        limit = -(difference.constant // factor)
        low = Affine(tuple((t, c // factor) for t, c in difference.terms if c // factor > 0), 0)
        high = Affine(tuple((t, -c // factor) for t, c in difference.terms if c // factor < 0), 0)
        if not low.terms or (high.terms and limit < 0):
            low = Affine(low.terms, -limit)
        else:
            high = Affine(high.terms, limit)
        if not (self.fits(low, dtype) and self.fits(high, dtype)):
            return given
        return Binary(op, self.sum(low, dtype), self.sum(high, dtype))

    def extremum(self, name: str, left: Expr, right: Expr) -> Expr:
        """min or max: one side where bounds decide it, else the sides in order."""
        if left is right:
            return left
        a, b = self.exact(left), self.exact(right)
        if a is not None and b is not None:
            reach = self.interval(combine([(a, 1), (b, -1)]), left.dtype)
            if reach.high <= 0:
                return left if name == "min" else right
            if reach.low >= 0:
                return right if name == "min" else left
        return Call(name, tuple(sorted((left, right), key=str)))


def _factors(e: Expr) -> list[Expr]:
    match e:
        case Binary(op="mul", left=left, right=right):
            return [*_factors(left), *_factors(right)]
    return [e]


def _cancel(form: Affine, d: int) -> tuple[Affine, int, int]:
    """form = g * inner + low and d = g * inner_d for the largest g, as (inner, low, inner_d)."""
    g = math.gcd(d, *(c for _, c in form.terms))
    inner = Affine(tuple((a, c // g) for a, c in form.terms), form.constant // g)
    return inner, form.constant % g, d // g


def _decide(op: str, difference: Affine, reach: Interval) -> bool | None:
    """Whether `difference op 0` is known."""
    if op == "lt":
        return True if reach.high < 0 else False if reach.low >= 0 else None
    factor = math.gcd(*(c for _, c in difference.terms))
    if 0 not in reach or (factor and difference.constant % factor):
        return op == "ne"
    return op == "eq" if reach == Interval(0, 0) else None
