"""Terms in first-order logic: the language of gate (a).

One sort per rank, one function per operator and ranks with its attributes as integer
arguments, `dim` for extents.  Lists are terms of a function per length; an attribute of
another kind is a number of its own.  Products and quotients of unknowns are functions about
which nothing is known, so that the arithmetic stays easy.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import z3

from whet.graph.attributes import (
    COMPARISONS,
    Expression,
    Infix,
    Item,
    ListOf,
    Literal,
    Measure,
    Name,
)
from whet.graph.terms import Apply, Number, Term, Variable
from whet.ops.base import REGISTRY

INT = z3.IntSort()


class NoTranslation(Exception):  # noqa: N818 - an answer, not a failure
    """The term says something that this language has no words for."""


class Language:
    """The functions of the logic, made when first used."""

    def __init__(self) -> None:
        self.functions: dict[str, Any] = {}
        self.sorts: dict[int, Any] = {}
        self.background: dict[str, list[Any]] = {}
        """What is true of some functions themselves: items of lists, factors of one."""

    def sort(self, rank: int) -> Any:
        if rank not in self.sorts:
            self.sorts[rank] = z3.DeclareSort(f"T{rank}")
        return self.sorts[rank]

    def function(self, name: str, *sorts: Any) -> Any:
        if name not in self.functions:
            self.functions[name] = z3.Function(name, *sorts)
        return self.functions[name]

    def tensor(self, name: str, rank: int) -> Any:
        return z3.Const(name, self.sort(rank))

    def dim(self, tensor: Any, rank: int, axis: Any) -> Any:
        return self.function(f"dim/{rank}", self.sort(rank), INT, INT)(tensor, axis)

    def items(self, values: list[Any]) -> Any:
        """The list of these values; what its items are becomes an axiom on first use."""
        n = len(values)
        name = list_name(n)
        if name not in self.functions:
            make = self.function(name, *([INT] * (n + 1)))
            if n:
                bound = [z3.Int(f"item{k}") for k in range(n)]
                whole = make(*bound)
                facts = z3.And([self.item(whole, z3.IntVal(k)) == b for k, b in enumerate(bound)])
                self.background[name] = [z3.ForAll(bound, facts, patterns=[whole])]
        return self.functions[name](*values)

    def opaque(self, op: str) -> Any:
        """A product or quotient of unknowns: only what 1 and equal operands do is known."""
        name = opaque_name(op)
        if name not in self.functions:
            function = self.function(name, INT, INT, INT)
            a, one = z3.Int("operand"), z3.IntVal(1)
            known = {
                "*": [(function(a, one), a), (function(one, a), a)],
                "//": [(function(a, one), a), (function(a, a), one)],
                "%": [(function(a, one), z3.IntVal(0)), (function(a, a), z3.IntVal(0))],
            }
            self.background[name] = [z3.ForAll([a], x == y, patterns=[x]) for x, y in known[op]]
        return self.functions[name]

    def item(self, value: Any, index: Any) -> Any:
        return self.function("item", INT, INT, INT)(value, index)

    def known_of(self, names: Iterable[str]) -> list[Any]:
        """Formulas that are true of the functions of these names."""
        return [f for name in sorted(set(names)) for f in self.background.get(name, ())]


def list_name(length: int) -> str:
    return f"list/{length}"


def opaque_name(op: str) -> str:
    return f"arithmetic {op}"


class Translation:
    """Terms and expressions over given variables.

    `tensors` gives constants to tensor variables and `attributes` to attribute variables;
    `ranks` gives the ranks of all terms.  `used` collects the names of lists and opaque
    functions that occur.
    """

    def __init__(
        self,
        language: Language,
        tensors: Mapping[str, tuple[Any, int]],
        attributes: Mapping[str, Any],
        ranks: Mapping[Term, tuple[int, ...]],
    ) -> None:
        self.language, self.tensors, self.attributes = language, tensors, attributes
        self.ranks = ranks
        self.used: set[str] = set()
        self._translated: dict[Term, list[Any]] = {}
        self.abstracted: list[tuple[Any, Any]] | None = None

    def abstracting(self) -> Translation:
        """The same, but compound attributes become fresh variables: see `abstracted`.

        `split(concat(x, y), sizes=[dim(x, 0), dim(y, 0)])` reads `split(concat(x, y), sizes=z)`
        with the condition z = [dim(x, 0), dim(y, 0)], which matches more.
        """
        made = Translation(self.language, self.tensors, self.attributes, self.ranks)
        made.used, made.abstracted = self.used, []
        return made

    def term(self, term: Term) -> Any:
        (found,) = self.terms(term)
        return found

    def terms(self, term: Term) -> list[Any]:
        """The results of the term: several where an operator has several."""
        if isinstance(term, Variable):
            return [self.tensors[term.name][0]]
        if isinstance(term, Number):
            return [self.language.tensor(f"number {term.value}", 0)]
        if self.abstracted is not None:  # every place gets variables of its own
            return self._applied(term)
        if term not in self._translated:
            self._translated[term] = self._applied(term)
        return self._translated[term]

    def _applied(self, term: Apply) -> list[Any]:
        inputs = [(v, r) for t in term.inputs for v, r in zip(self.terms(t), self.ranks[t])]
        attributes = [self._attribute(e) for e in _all_attributes(term)]
        out = self.ranks[term]
        picked = range(len(out)) if term.result is None else [term.result]
        several = term.result is not None or len(out) > 1
        made = []
        for n, rank in zip(picked, out):
            number = f"[{n}]" if several else ""
            name = f"{term.op}{number}/{','.join(str(r) for _, r in inputs)}>{rank}"
            sorts = [*(self.language.sort(r) for _, r in inputs), *([INT] * len(attributes)),
                     self.language.sort(rank)]  # fmt: skip
            function = self.language.function(name, *sorts)
            arguments = [*(v for v, _ in inputs), *attributes]
            made.append(function(*arguments) if arguments else function())
        return made

    def _attribute(self, e: Expression) -> Any:
        simple = isinstance(e, Literal | Name) or (
            isinstance(e, ListOf) and all(isinstance(i, Literal) for i in e.items)
        )
        if simple or self.abstracted is None:
            return self.value(e)
        fresh = z3.Int(f"abstract{len(self.abstracted)}")
        self.abstracted.append((fresh, self.value(e)))
        return fresh

    def value(self, e: Expression) -> Any:
        """An integer term."""
        match e:
            case Literal(value=value):
                return z3.IntVal(_code(value))
            case Name(name=name):
                return self.attributes[name]
            case ListOf(items=items):
                return self._items([self.value(i) for i in items])
            case Measure():
                return self._measure(e)
            case Item(value=value, index=index):
                return self.language.item(self.value(value), self.value(index))
            case Infix(op=op, left=left, right=right) if op not in COMPARISONS:
                return self._arithmetic(op, self.value(left), self.value(right))
        raise NoTranslation(str(e))

    def _items(self, values: list[Any]) -> Any:
        self.used.add(list_name(len(values)))
        return self.language.items(values)

    def _measure(self, e: Measure) -> Any:
        tensor, rank = self.tensors[e.tensor]
        if e.kind == "rank":
            return z3.IntVal(rank)
        if e.kind == "dim":
            assert e.axis is not None
            return self.language.dim(tensor, rank, self.value(e.axis))
        dims = [self.language.dim(tensor, rank, z3.IntVal(n)) for n in range(rank)]
        if e.kind == "shape":
            return self._items(dims)
        size = z3.IntVal(1)
        for d in dims:
            size = self._arithmetic("*", size, d)
        return size

    def _arithmetic(self, op: str, left: Any, right: Any) -> Any:
        if op == "+":
            return left + right
        if op == "-":
            return left - right
        known = [z3.is_int_value(left), z3.is_int_value(right)]
        if op == "*" and any(known):
            return left * right
        if op in ("//", "%") and known[1] and right.as_long() > 0:
            return left / right if op == "//" else left % right
        self.used.add(opaque_name(op))
        return self.language.opaque(op)(left, right)

    def guard(self, e: Expression) -> Any:
        """A truth value."""
        if isinstance(e, Infix):
            match e.op:
                case "and":
                    return z3.And(self.guard(e.left), self.guard(e.right))
                case "or":
                    return z3.Or(self.guard(e.left), self.guard(e.right))
            if e.op in COMPARISONS:
                a, b = self.value(e.left), self.value(e.right)
                return {
                    "==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b,
                }[e.op]  # fmt: skip
        raise NoTranslation(str(e))


def _all_attributes(term: Apply) -> list[Expression]:
    """The attributes in order of definition, with the defaults of those that are not given."""
    given = dict(term.attributes)
    found: list[Expression] = []
    for field in dataclasses.fields(REGISTRY[term.op]):  # type: ignore[arg-type]
        if field.name in given:
            found.append(given[field.name])
        elif field.default is not dataclasses.MISSING:
            found.append(_literal(field.default))
        else:
            raise NoTranslation(f"{term.op} lacks {field.name}")
    return found


def _literal(value: Any) -> Expression:
    if isinstance(value, tuple):
        return ListOf(tuple(map(_literal, value)))
    return Literal(value)


def _code(value: Any) -> int:
    """Integers and truth values are themselves, anything else a large number of its own."""
    if isinstance(value, int):
        return int(value)
    return (1 << 40) + zlib.crc32(repr(value).encode())


def attribute_constant(language: Language, name: str, value: Any) -> Any:
    """An unknown attribute of the kind that `value` is: a list gets one unknown per item."""
    if isinstance(value, tuple):
        return language.items([z3.Int(f"{name}.{n}") for n in range(len(value))])
    return z3.Int(name)
