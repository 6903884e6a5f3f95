"""Index arithmetic: in 32 bits where numbers are known to fit, with what is known about them.

(b * 4 + i) // 7        ->    (int)((unsigned)(b * 4 + i) / 7u)       where it is not negative
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from whet.codegen.cuda.lines import Lines
from whet.core.dtypes import i64
from whet.ir.affine import Affine, affine, free_symbols, interval
from whet.ir.expr import Binary, Call, Const, Expr, Var

_NARROW = 1 << 31
_WRITTEN = {"add": "+", "sub": "-", "mul": "*"}


class Indices:
    """Symbols that are known here, with their text, extent and divisors."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.names: dict[Expr, str] = {}
        self.extents: dict[Expr, int] = {}
        self.divisors: dict[Expr, int] = {}
        self.wide: set[Expr] = set()
        """Symbols that need 64 bits."""
        self.unrolled: set[Expr] = set()
        """Variables of loops that the compiler writes out: constants, for machine code."""

    @contextmanager
    def symbol(
        self, var: Var, name: str, extent: int | None, divisor: int = 1, *, wide: bool = False
    ) -> Iterator[None]:
        """Within, the variable has this text and is below the extent, if that is known."""
        saved = {
            key: (table.get(var), table)
            for key, table in (("n", self.names), ("e", self.extents), ("d", self.divisors))
        }
        was_wide = var in self.wide
        self.names[var] = name
        self.divisors[var] = divisor
        self.extents.pop(var, None)
        self.wide.discard(var)
        if extent is not None:
            self.extents[var] = extent
        if wide:
            self.wide.add(var)
        yield
        for value, table in saved.values():
            table.pop(var, None)
            if value is not None:
                table[var] = value  # type: ignore[assignment]
        self.wide.discard(var)
        if was_wide:
            self.wide.add(var)

    def reach(self, e: Expr) -> tuple[int, int] | None:
        """Smallest and largest value, where they are known."""
        return interval(e, self.extents)

    def is_narrow(self, e: Expr) -> bool:
        """Whether 32 bits hold an index and all that it is computed from."""
        match e:
            case Const(value=value):
                return abs(int(value)) < _NARROW
            case Var():
                return e in self.names and e not in self.wide
            case Binary(op="add" | "sub" | "mul" | "floordiv" | "mod", left=left, right=right):
                found = self.reach(e)
                fits = found is not None and found[0] > -_NARROW and found[1] < _NARROW
                return fits and self.is_narrow(left) and self.is_narrow(right)
            case Call(name="min" | "max" | "neg", args=args):
                return all(map(self.is_narrow, args))
        return False

    def is_index(self, e: Expr) -> bool:
        """True for integers that are computed from variables alone, in ways known here."""
        if e.dtype is not i64:
            return False
        match e:
            case Const():
                return True
            case Var():
                return e in self.names
            case Binary(op="add" | "sub" | "mul", left=left, right=right):
                return self.is_index(left) and self.is_index(right)
            case Binary(op="floordiv" | "mod", left=left, right=Const(value=by)):
                return by > 0 and self.is_index(left)
            case Call(name="min" | "max" | "neg", args=args):
                return all(map(self.is_index, args))
        return False

    def index(self, e: Expr) -> str:
        """The text of an index."""
        match e:
            case Const(value=value):
                wide = "" if abs(int(value)) < _NARROW else "LL"
                return f"{value}{wide}" if value >= 0 else f"({value}{wide})"
            case Var():
                return self.names[e]
            case Binary(op="floordiv" | "mod" as op, left=left, right=Const(value=by)):
                return self._quotient(op, left, int(by))
            case Binary(op=op, left=left, right=right):
                a, b = self.index(left), self.index(right)
                if not self.is_narrow(e) and self.is_narrow(left):
                    a = f"(long long){a}"
                return f"({a} {_WRITTEN[op]} {b})"
            case Call(name="neg", args=(value,)):
                return f"(-{self.index(value)})"
            case Call(name=name, args=(left, right)):
                kind = "int" if self.is_narrow(e) else "long long"
                return f"{self.lines.call(name)}<{kind}>({self.index(left)}, {self.index(right)})"
        raise AssertionError(f"{e} is no index")

    def _quotient(self, op: str, left: Expr, by: int) -> str:
        a, found, narrow = self.index(left), self.reach(left), self.is_narrow(left)
        if found is not None and found[0] >= 0 and found[1] < by:
            return "0" if op == "floordiv" else a
        sign = "/" if op == "floordiv" else "%"
        if found is not None and found[0] >= 0:
            return f"(int)((unsigned)({a}) {sign} {by}u)" if narrow else f"({a} {sign} {by})"
        kind = "int" if narrow else "long long"
        return f"{self.lines.call(op)}<{kind}>({a}, {by})"

    def address(self, form: Affine) -> str:
        """The text of a linear form."""
        return self.index(form.expr())

    def split(self, form: Affine) -> tuple[Affine, Affine]:
        """What an address varies by, and what is a number in machine code."""
        written_out = [t for t in form.terms if free_symbols(t[0]) <= self.unrolled]
        rest = tuple(t for t in form.terms if t not in written_out)
        return Affine(rest, 0), Affine(tuple(written_out), form.constant)

    def divisor(self, form: Affine) -> int:
        """A number that divides every value of the form; 0 if that is always 0."""
        return math.gcd(form.constant, *(c * self._divisor_of(atom) for atom, c in form.terms))

    def _divisor_of(self, atom: Expr) -> int:
        match atom:
            case Var():
                return self.divisors.get(atom, 1)
            case Call(name="min" | "max", args=args):
                return math.gcd(*(self.divisor(affine(a)) for a in args))
            case Binary(op="mod", left=left, right=Const(value=by)) if by > 0:
                return math.gcd(self.divisor(affine(left)), int(by))
        return 1
