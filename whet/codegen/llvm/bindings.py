"""What variables stand for, so that an unrolled body is written again without being rebuilt.

    unroll i in 2:                            i = 0:   y[4 * j] = x[1]
      y[j * 4 + i] = x[i + 1]         ->      i = 1:   y[4 * j + 1] = x[2]

Copies of a body differ by constants in their addresses.  So the linear form of an index is split
once into what stays and the factors of bound variables, and every copy adds up the latter.
Conditions and quotients, which may fold, are rebuilt, but once for all copies that agree on the
variables in them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from whet.core.dtypes import i64
from whet.ir.affine import Affine, affine, combine, rebuild
from whet.ir.expr import Axis, Const, Expr, Var, const
from whet.ir.program import Buffer

Terms = tuple[tuple[Expr, int], ...]


@dataclass(frozen=True, slots=True)
class _Split:
    """A linear form, taken apart by what bindings do with it."""

    form: Affine
    free: Terms
    """Terms that stay as they are."""
    numbers: Terms
    """Variables that are bound to numbers."""
    folds: bool
    """Whether there are other terms, which have to be looked at in every copy."""


@dataclass(slots=True)
class _Frame:
    """What is known as long as the same variables are bound, to whatever values."""

    splits: dict[Hashable, _Split] = field(default_factory=dict)
    bound: dict[Expr, tuple[Expr, ...]] = field(default_factory=dict)
    resolved: dict[tuple[Expr, ...], Expr] = field(default_factory=dict)
    inner: dict[tuple[Var, bool], _Frame] = field(default_factory=dict)


class Bindings:
    """Variables that are bound to numbers (unrolled loops) or to other variables."""

    def __init__(self) -> None:
        self.values: dict[Expr, Expr] = {}
        self.renamed: frozenset[Expr] = frozenset()
        """The variables that are bound to something else than a number."""
        self._numbers: dict[Expr, int] = {}
        self._frame = _Frame()
        self._symbols: dict[Expr, frozenset[Expr]] = {}

    @contextmanager
    def bound(self, var: Var, value: Expr) -> Iterator[None]:
        """Within, `var` stands for `value`."""
        frame, renamed = self._frame, self.renamed
        is_number = isinstance(value, Const)
        self.values[var] = value
        if isinstance(value, Const):
            self._numbers[var] = int(value.value)
        else:
            self.renamed = renamed | {var}
        key = (var, is_number)
        if key not in frame.inner:
            frame.inner[key] = _Frame()
        self._frame = frame.inner[key]
        yield
        self._frame, self.renamed = frame, renamed
        del self.values[var]
        self._numbers.pop(var, None)

    def each(self, var: Var, extent: int) -> Iterator[None]:
        """Between two steps, `var` stands for 0, 1, ... in turn."""
        with self.bound(var, const(0, i64)):
            for step in range(extent):
                self.values[var], self._numbers[var] = const(step, i64), step
                yield

    def symbols(self, e: Expr) -> frozenset[Expr]:
        """The variables and axes in an expression, as it is written."""
        found = self._symbols.get(e)
        if found is None:
            if isinstance(e, (Var, Axis)):
                found = frozenset((e,))
            else:
                found = frozenset().union(*map(self.symbols, e.children()))
            self._symbols[e] = found
        return found

    def resolve(self, e: Expr) -> Expr:
        """The expression with what its variables stand for, constants folded on the way."""
        if isinstance(e, Const):
            return e
        bound = self._frame.bound.get(e)
        if bound is None:
            bound = tuple(v for v in self.values if v in self.symbols(e))
            self._frame.bound[e] = bound
        if not bound:
            return e
        if e in self.values:
            return self.values[e]
        key = (e, *map(self.values.__getitem__, bound))
        found = self._frame.resolved.get(key)
        if found is None:
            found = self._frame.resolved[key] = rebuild(e, map(self.resolve, e.children()))
        return found

    # ------------------------------------------------------------------------ linear forms
    def form(self, e: Expr) -> Affine:
        """The linear form of an integer expression."""
        split = self._frame.splits.get(e)
        if split is None:
            split = self._frame.splits[e] = self._split(affine(e))
        return self._put_together(split)

    def address(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Affine:
        """How many elements behind the base of a buffer an element of it is."""
        split = self._frame.splits.get((buffer, indices))
        if split is None:
            parts = [(affine(i), s) for i, s in zip(indices, buffer.element_strides)]
            split = self._split(combine(parts, buffer.offset))
            self._frame.splits[buffer, indices] = split
        return self._put_together(split)

    def _split(self, form: Affine) -> _Split:
        free = tuple(t for t in form.terms if self.symbols(t[0]).isdisjoint(self.values))
        numbers = tuple(t for t in form.terms if t[0] in self._numbers)
        return _Split(form, free, numbers, len(free) + len(numbers) < len(form.terms))

    def _put_together(self, split: _Split) -> Affine:
        if split.folds:
            parts = [(affine(self.resolve(atom)), factor) for atom, factor in split.form.terms]
            return combine(parts, split.form.constant)
        constant = split.form.constant
        for var, factor in split.numbers:
            constant += self._numbers[var] * factor
        return Affine(split.free, constant)
