"""Attribute expressions: what may stand for an attribute in a term, and the guards of laws.

    strides=s    sizes=[dim(w, 0), dim(v, 0)]    groups=g * 2    pads=[p[0] + 1, 0]
    g == 1       shape(x) == shape(y)            dim(w, 0) % g == 0

`dim(x, n)`, `shape(x)`, `rank(x)` and `size(x)` measure a tensor variable; other names are
attribute variables.  `+` adds numbers and joins lists, as in Python.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from whet.core.dtypes import DType, parse_dtype
from whet.core.errors import WhetError
from whet.core.types import Shape
from whet.graph.syntax import WORDS, Reader, refuse, tokenize
from whet.ops.base import show_attribute

MEASURES = ("dim", "shape", "rank", "size")
_INFIX: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "or": (1, lambda a, b: bool(a) or bool(b)),
    "and": (2, lambda a, b: bool(a) and bool(b)),
    "==": (3, operator.eq),
    "!=": (3, operator.ne),
    "<=": (3, operator.le),
    ">=": (3, operator.ge),
    "<": (3, operator.lt),
    ">": (3, operator.gt),
    "+": (4, operator.add),
    "-": (4, operator.sub),
    "*": (5, operator.mul),
    "//": (5, operator.floordiv),
    "%": (5, operator.mod),
}
COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<number>\d[\w.]*(?:(?<=[eE])[+-]\d+)?)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<mark>==|!=|<=|>=|//|[()\[\],=<>+*%-])""",
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Literal:
    """A known value."""

    value: int | float | bool | str | DType | None

    def __str__(self) -> str:
        return show_attribute(self.value)


@dataclass(frozen=True, slots=True)
class Name:
    """An attribute variable."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values."""

    items: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.items))}]"


@dataclass(frozen=True, slots=True)
class Measure:
    """The shape, the rank, the number of elements or one extent of a tensor variable."""

    kind: str
    tensor: str
    axis: Expression | None = None

    def __str__(self) -> str:
        inner = self.tensor if self.axis is None else f"{self.tensor}, {self.axis}"
        return f"{self.kind}({inner})"


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a list."""

    value: Expression
    index: Expression

    def __str__(self) -> str:
        return f"{self.value}[{self.index}]"


@dataclass(frozen=True, slots=True)
class Infix:
    """Two values joined by an arithmetic operator or a comparison."""

    op: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        def inner(e: Expression, strength: int) -> str:
            weak = isinstance(e, Infix) and _INFIX[e.op][0] < strength
            return f"({e})" if weak else str(e)

        strength = _INFIX[self.op][0]
        return f"{inner(self.left, strength)} {self.op} {inner(self.right, strength + 1)}"


Expression = Literal | Name | ListOf | Measure | Item | Infix


def parts(e: Expression) -> tuple[Expression, ...]:
    """The direct sub-expressions."""
    match e:
        case ListOf(items=items):
            return items
        case Measure(axis=axis):
            return () if axis is None else (axis,)
        case Item(value=value, index=index):
            return (value, index)
        case Infix(left=left, right=right):
            return (left, right)
    return ()


def walk(e: Expression) -> Iterator[Expression]:
    """The expression and everything in it, parents first."""
    yield e
    for part in parts(e):
        yield from walk(part)


def evaluate(e: Expression, values: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Any:
    """The value, given those of the attribute variables and the shapes of the tensors.

    Raises: `KeyError` for a name without a value, and what Python raises for a division by
    zero, an index outside a list, or operands that do not fit.
    """
    match e:
        case Literal(value=value):
            return value
        case Name(name=name):
            return values[name]
        case ListOf(items=items):
            return tuple(evaluate(i, values, shapes) for i in items)
        case Measure(kind=kind, tensor=tensor, axis=axis):
            shape = shapes[tensor]
            if kind == "dim":
                assert axis is not None
                return shape[evaluate(axis, values, shapes)]
            return _measure(kind, shape)
        case Item(value=value, index=index):
            return evaluate(value, values, shapes)[evaluate(index, values, shapes)]
        case Infix(op=op, left=left, right=right):
            return _INFIX[op][1](evaluate(left, values, shapes), evaluate(right, values, shapes))


Evaluator = Callable[[Mapping[str, Any], Mapping[str, Shape]], Any]


def compiled(e: Expression) -> Evaluator:
    """`evaluate` of the expression as a function, for expressions that are evaluated often."""
    match e:
        case Literal(value=value):
            return lambda values, shapes: value
        case Name(name=name):
            return lambda values, shapes: values[name]
        case ListOf(items=items):
            if all(isinstance(i, Literal) for i in items):
                known = evaluate(e, {}, {})
                return lambda values, shapes: known
            each = tuple(map(compiled, items))
            return lambda values, shapes: tuple(f(values, shapes) for f in each)
        case Measure(kind="dim", tensor=tensor, axis=Literal(value=int(axis))):
            return lambda values, shapes: shapes[tensor][axis]
        case Item(value=value, index=index):
            whole, position = compiled(value), compiled(index)
            return lambda values, shapes: whole(values, shapes)[position(values, shapes)]
        case Infix(op=op, left=left, right=right):
            function, a, b = _INFIX[op][1], compiled(left), compiled(right)
            return lambda values, shapes: function(a(values, shapes), b(values, shapes))
    return lambda values, shapes: evaluate(e, values, shapes)


def _measure(kind: str, shape: Shape) -> Any:
    if kind == "size":
        product = 1
        for extent in shape:
            product *= extent
        return product
    return len(shape) if kind == "rank" else shape


# ------------------------------------------------------------------------------------- reading
class ExpressionReader(Reader):
    """A cursor over the tokens of terms and attribute expressions."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text, _TOKEN)
        self.position = 0
        self.depth = 0

    def expression(self, strength: int = 0) -> Expression:
        left = self._operand()
        while (found := _INFIX.get(self.peek().text)) and self.peek().kind in ("mark", "name"):
            if found[0] <= strength:
                break
            op = self.next().text
            right: Expression = self.nested(functools.partial(self.expression, found[0]))
            left = Infix(op, left, right)
        return left

    def _operand(self) -> Expression:
        value = self._primary()
        while self.accept("["):
            value = Item(value, self.nested(self.expression))
            self.expect("]")
        return value

    def _primary(self) -> Expression:
        token = self.peek()
        if self.accept("-"):
            number = self.number()
            return Literal(-number)
        if token.kind == "number":
            return Literal(self.number())
        if token.kind == "string":
            return Literal(self.string())
        if self.accept("("):
            inner: Expression = self.nested(self.expression)
            self.expect(")")
            return inner
        if self.accept("["):
            return ListOf(tuple(self.nested(lambda: self.sequence("]", self.expression))))
        name = self.name()
        if name in MEASURES and self.accept("("):
            return self._measure(name)
        return _word(name)

    def _measure(self, kind: str) -> Measure:
        tensor = self.name()
        axis: Expression | None = None
        if kind == "dim":
            self.expect(",")
            axis = self.nested(self.expression)
        self.expect(")")
        return Measure(kind, tensor, axis)

    def end(self) -> None:
        """Refuse anything that follows."""
        if self.peek().kind != "end":
            refuse(self.line, f"expected the end of the text, found {self.shown()}")


def _word(name: str) -> Expression:
    if name in WORDS:
        return Literal(WORDS[name])
    if name in ("inf", "nan"):
        return Literal(float(name))
    try:
        return Literal(parse_dtype(name))
    except WhetError:
        return Name(name)


def read_expression(text: str) -> Expression:
    """The expression; `WH1201` if the text is none."""
    reader = ExpressionReader(text)
    found = reader.expression()
    reader.end()
    return found
