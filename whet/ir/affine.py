"""Integer expressions as linear forms: constant + sum of coefficient * atom.

An atom is a variable, an axis, or a sub-expression that is not linear (a quotient, a value
read from a tensor).  Linear forms answer what code generation and bounds ask: how does an
address move when a loop variable steps by one?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

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
    as_expr,
    binary,
    cast,
    reinterpret,
    select,
)


@dataclass(frozen=True, slots=True)
class Affine:
    """constant + sum of coefficient * atom, with atoms in order of first appearance."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int

    def coefficient(self, atom: Expr) -> int:
        return dict(self.terms).get(atom, 0)

    def expr(self) -> Expr:
        """The form as an expression again."""
        total: Expr = as_expr(0)
        for atom, factor in self.terms:
            total = total + atom * factor
        return total + self.constant


def combine(parts: Iterable[tuple[Affine, int]], constant: int = 0) -> Affine:
    """The sum of forms, each multiplied by a number."""
    terms: dict[Expr, int] = {}
    for form, factor in parts:
        constant += form.constant * factor
        for atom, c in form.terms:
            terms[atom] = terms.get(atom, 0) + c * factor
    return Affine(tuple((a, c) for a, c in terms.items() if c), constant)


@lru_cache(maxsize=1 << 14)
def affine(e: Expr) -> Affine:
    """The linear form of an integer expression."""
    match e:
        case Const(value=value):
            return Affine((), int(value))
        case Binary(op="add", left=left, right=right):
            return combine([(affine(left), 1), (affine(right), 1)])
        case Binary(op="sub", left=left, right=right):
            return combine([(affine(left), 1), (affine(right), -1)])
        case Binary(op="mul", left=left, right=Const(value=factor)):
            return combine([(affine(left), int(factor))])
        case Binary(op="mul", left=Const(value=factor), right=right):
            return combine([(affine(right), int(factor))])
        case Call(name="neg", args=(value,)):
            return combine([(affine(value), -1)])
        case Binary(op="floordiv" | "mod" as op, left=left, right=Const(value=by)) if by > 0:
            return _quotient(op, affine(left), int(by), e)
    return Affine(((e, 1),), 0)


def _quotient(op: str, form: Affine, by: int, e: Expr) -> Affine:
    """A quotient or remainder of which the multiples of the divisor are known.

    (8 * i + 5) // 4  ->  2 * i + 1      (8 * i + 5) % 4  ->  1
    """
    if any(factor % by for _, factor in form.terms):
        return Affine(((e, 1),), 0)
    if op == "mod":
        return Affine((), form.constant % by)
    return Affine(tuple((a, factor // by) for a, factor in form.terms), form.constant // by)


def interval(e: Expr, extents: Mapping[Expr, int]) -> tuple[int, int] | None:
    """Smallest and largest value, given the extents of symbols (0 <= symbol < extent).

    None when the expression holds something of unknown range.
    """
    return form_interval(affine(e), extents)


def form_interval(form: Affine, extents: Mapping[Expr, int]) -> tuple[int, int] | None:
    """`interval` of a linear form."""
    low = high = form.constant
    for atom, factor in form.terms:
        bounds = _atom_interval(atom, extents)
        if bounds is None:
            return None
        ends = (bounds[0] * factor, bounds[1] * factor)
        low, high = low + min(ends), high + max(ends)
    return low, high


def _atom_interval(atom: Expr, extents: Mapping[Expr, int]) -> tuple[int, int] | None:
    if atom in extents:
        return 0, extents[atom] - 1
    match atom:
        case Binary(op="floordiv", left=left, right=Const(value=by)) if by > 0:
            inner = interval(left, extents)
            return None if inner is None else (inner[0] // int(by), inner[1] // int(by))
        case Binary(op="mod", right=Const(value=by)) if by > 0:
            return 0, int(by) - 1
        case Call(name="min" | "max" as name, args=args):
            inner_bounds = [interval(a, extents) for a in args]
            known = [b for b in inner_bounds if b is not None]
            if len(known) < len(args):
                return None
            pick = min if name == "min" else max
            return pick(b[0] for b in known), pick(b[1] for b in known)
    return None


@lru_cache(maxsize=4096)
def free_symbols(e: Expr) -> frozenset[Expr]:
    """The variables and axes that occur in an expression (reduced axes included)."""
    found: set[Expr] = set()
    stack = [e]
    while stack:
        x = stack.pop()
        if isinstance(x, (Var, Axis)):
            found.add(x)
        stack.extend(x.children())
    return frozenset(found)


Replacements = Mapping[Expr, Expr] | Mapping[Axis, Expr] | Mapping[Var, Expr]


def substitute(e: Expr, values: Replacements) -> Expr:
    """The expression with variables and axes replaced, constants folded on the way."""
    memo: dict[Expr, Expr] = dict(values.items())

    def visit(x: Expr) -> Expr:
        found = memo.get(x)
        if found is None:
            children = x.children()
            changed = tuple(map(visit, children))
            found = memo[x] = x if changed == children else rebuild(x, changed)
        return found

    return visit(e)


def rebuild(e: Expr, children: Iterable[Expr]) -> Expr:
    """The same kind of node over other children; the node itself over its own."""
    found = tuple(children)
    if found == e.children():
        return e
    match e, found:
        case Binary(op=op), (left, right):
            return binary(op, left, right)
        case Call(name=name), args:
            return Call(name, args)
        case Select(), (condition, then, other):
            return select(condition, then, other)
        case Cast(dtype=dtype), (value,):
            return cast(value, dtype)
        case Reinterpret(dtype=dtype), (value,):
            return reinterpret(value, dtype)
        case Read(tensor=tensor), indices:
            return Read(tensor, indices)
        case Reduce(kind=kind, axes=axes), (value,):
            return Reduce(kind, axes, value)
    raise AssertionError(type(e))
