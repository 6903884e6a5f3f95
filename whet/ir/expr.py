"""Scalar and index expressions: small immutable trees that print as ordinary formulas.

Nodes are interned, so two equal expressions are one object and `is` compares them.  Python
operators build nodes (`i * 2 + k`, `a < b`); `equal` builds `==`, which Python keeps for
identity.  Only trivial folding happens here (x + 0, constants); `ir.simplify` does the rest.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Union

import numpy as np

from whet.core.dtypes import DType, bool_, i64
from whet.core.errors import check, fail
from whet.ir.functions import FUNCTIONS, INFIX, PREDICATES
from whet.ir.interning import Interned

if TYPE_CHECKING:
    from whet.ir.tensor import Tensor

Scalar = Union["Expr", int, float, bool]


class Expr(metaclass=Interned):
    """Base of all expressions.  `dtype` is the element type of the value."""

    __slots__ = ()
    dtype: DType

    def __add__(self, other: Scalar) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Scalar) -> Expr:
        return binary("add", as_expr(other, self.dtype), self)

    def __sub__(self, other: Scalar) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Scalar) -> Expr:
        return binary("sub", as_expr(other, self.dtype), self)

    def __mul__(self, other: Scalar) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: Scalar) -> Expr:
        return binary("mul", as_expr(other, self.dtype), self)

    def __truediv__(self, other: Scalar) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: Scalar) -> Expr:
        return binary("div", as_expr(other, self.dtype), self)

    def __floordiv__(self, other: Scalar) -> Expr:
        return binary("floordiv", self, other)

    def __mod__(self, other: Scalar) -> Expr:
        return binary("mod", self, other)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __lt__(self, other: Scalar) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: Scalar) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: Scalar) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: Scalar) -> Expr:
        return binary("ge", self, other)

    def __and__(self, other: Scalar) -> Expr:
        return binary("and", self, other)

    def __or__(self, other: Scalar) -> Expr:
        return binary("or", self, other)

    def __str__(self) -> str:
        return _show(self, 0)

    def children(self) -> tuple[Expr, ...]:
        """The direct sub-expressions."""
        return ()


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, repr=False)
class Const(Expr):
    """A literal."""

    value: int | float | bool
    dtype: DType


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, repr=False)
class Var(Expr):
    """A free scalar: a loop variable of a program or a parameter."""

    name: str
    dtype: DType = i64


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, repr=False)
class Axis(Expr):
    """An iteration axis 0 <= name < extent; role S is spatial, R is reduced (as in Ansor)."""

    name: str
    extent: int
    role: Literal["S", "R"] = "S"

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return i64


def elements(axes: Iterable[Axis]) -> int:
    """The number of positions that the axes have together."""
    return math.prod(a.extent for a in axes)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, repr=False)
class Binary(Expr):
    """An infix operator of `functions.INFIX` on two operands of one type."""

    op: str
    left: Expr
    right: Expr

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return bool_ if INFIX[self.op].gives_bool else self.left.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, repr=False)
class Call(Expr):
    """A function of `functions.FUNCTIONS` on operands of one type."""

    name: str
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return bool_ if self.name in PREDICATES else self.args[0].dtype

    def children(self) -> tuple[Expr, ...]:
        return self.args


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, repr=False)
class Select(Expr):
    """`then` where the condition holds, else `other`.

    Only the chosen side is meant to be evaluated: reads in it may rely on the condition.
    """

    condition: Expr
    then: Expr
    other: Expr

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.then.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.condition, self.then, self.other)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, repr=False)
class Cast(Expr):
    """The value converted to another element type (floats to integers truncate)."""

    value: Expr
    dtype: DType

    def children(self) -> tuple[Expr, ...]:
        return (self.value,)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, repr=False)
class Reinterpret(Expr):
    """The bits of the value read as another element type of the same width."""

    value: Expr
    dtype: DType

    def children(self) -> tuple[Expr, ...]:
        return (self.value,)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, repr=False)
class Read(Expr):
    """One element of a tensor."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.tensor.dtype

    def children(self) -> tuple[Expr, ...]:
        return self.indices


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, repr=False)
class Reduce(Expr):
    """`kind` (sum, max, min, prod, any, all, argmax, argmin) of a value over axes of role R.

    An arg-reduction gives the row-major position within the axes; the first one wins ties.
    """

    kind: str
    axes: tuple[Axis, ...]
    value: Expr

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return i64 if self.kind.startswith("arg") else self.value.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.value,)


# ------------------------------------------------------------------------------ construction
_SMALL = {n: Const(n, i64) for n in range(-1, 257)}
"""Indices are made of few numbers, again and again."""


def const(value: int | float | bool, dtype: DType) -> Const:
    """A literal of the given type, with a Python value of the matching kind."""
    if dtype is i64 and value in _SMALL:
        return _SMALL[int(value)]
    if dtype.is_float:
        return Const(float(value), dtype)
    return Const(bool(value) if dtype is bool_ else int(value), dtype)


def as_expr(value: Scalar, dtype: DType = i64) -> Expr:
    """The value itself, or a literal of the given type."""
    return value if isinstance(value, Expr) else const(value, dtype)


def binary(op: str, left: Expr, right: Scalar) -> Expr:
    """`left op right`; a Python number on the right takes the left operand's type."""
    dtype = left.dtype
    right = as_expr(right, dtype)
    if dtype != right.dtype:
        fail("WH1301", f"operands of '{INFIX[op].symbol}' have types {dtype} and {right.dtype}")
    if dtype.is_integer:
        folded = _fold_integers(op, left, right)
        if folded is not None:
            return folded
    return Binary(op, left, right)


def _fold_integers(op: str, left: Expr, right: Expr) -> Expr | None:
    """Constant operands and neutral elements; None when nothing applies."""
    a = left.value if isinstance(left, Const) else None
    b = right.value if isinstance(right, Const) else None
    if a is not None and b is not None and not (op in ("floordiv", "mod", "div") and b == 0):
        return _fold_constants(op, int(a), int(b), left.dtype)
    if (op in ("add", "sub") and b == 0) or (op in ("mul", "floordiv") and b == 1):
        return left
    if (op == "add" and a == 0) or (op == "mul" and a == 1):
        return right
    if op == "mul" and (a == 0 or b == 0):
        return const(0, left.dtype)
    if op == "mod" and b == 1:
        return const(0, left.dtype)
    return None


_EXACT: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floordiv": operator.floordiv, "mod": operator.mod,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
"""What Python's own integers say as NumPy does, as long as nothing wraps around."""


def _fold_constants(op: str, a: int, b: int, dtype: DType) -> Const:
    """The result on two numbers of an integer type."""
    made = bool_ if INFIX[op].gives_bool else dtype
    if dtype is i64 and op in _EXACT and abs(value := _EXACT[op](a, b)) < 1 << 63:
        return const(value, made)
    # In arrays of the type, because numbers of a narrow type wrap around.
    operands = (np.full(1, v, dtype.numpy) for v in (a, b))
    with np.errstate(all="ignore"):
        return const(INFIX[op].numpy(*operands)[0].item(), made)


def call(name: str, *args: Scalar) -> Expr:
    """A function call; Python numbers take the type of the first expression argument."""
    check(name in FUNCTIONS, "WH1301", f"unknown scalar function '{name}'")
    dtype = next(a.dtype for a in args if isinstance(a, Expr))
    operands = tuple(as_expr(a, dtype) for a in args)
    if any(a.dtype != dtype for a in operands):
        fail("WH1301", f"operands of '{name}' have types {[str(a.dtype) for a in operands]}")
    return Call(name, operands)


def equal(left: Expr, right: Scalar) -> Expr:
    return binary("eq", left, right)


def select(condition: Expr, then: Scalar, other: Scalar) -> Expr:
    """`then if condition else other`; a Python number takes the other side's type."""
    if not isinstance(then, Expr):
        assert isinstance(other, Expr), "one side of a select must be an expression"
        then = as_expr(then, other.dtype)
    other = as_expr(other, then.dtype)
    if condition.dtype is not bool_ or then.dtype != other.dtype:
        fail("WH1301", f"select of {condition.dtype}, {then.dtype}, {other.dtype}")
    if isinstance(condition, Const):
        return then if condition.value else other
    return Select(condition, then, other)


def cast(value: Expr, dtype: DType) -> Expr:
    """The value as `dtype`; nothing is built when it already has that type."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Const) and dtype.is_float:
        return const(value.value, dtype)
    return Cast(value, dtype)


def reinterpret(value: Expr, dtype: DType) -> Expr:
    """The bits of the value as `dtype`; nothing is built when it already has that type."""
    if value.dtype.bits != dtype.bits:
        fail("WH1301", f"{value.dtype} and {dtype} have not the same number of bits")
    return value if value.dtype == dtype else Reinterpret(value, dtype)


def all_of(conditions: Sequence[Expr]) -> Expr:
    """The conjunction; true when there are none."""
    result: Expr = const(True, bool_)
    for condition in conditions:
        if isinstance(condition, Const) and condition.value:
            continue
        result = condition if isinstance(result, Const) and result.value else result & condition
    return result


# ---------------------------------------------------------------------------------- printing
def _show(e: Expr, strength: int) -> str:
    """Text of e, in parentheses when it binds weaker than its surroundings."""
    match e:
        case Const(value=value, dtype=dtype):
            if dtype.is_float or dtype in (i64, bool_):
                return str(value).lower() if dtype is bool_ else repr(value)
            return f"{dtype}({value!r})"
        case Var(name=name) | Axis(name=name):
            return name
        case Binary(op=op, left=left, right=right):
            infix = INFIX[op]
            text = (
                f"{_show(left, infix.precedence)} {infix.symbol} "
                f"{_show(right, infix.precedence + 1)}"
            )
            return f"({text})" if infix.precedence < strength else text
        case Call(name=name, args=args):
            return f"{name}({', '.join(map(str, args))})"
        case Select(condition=condition, then=then, other=other):
            return f"select({condition}, {then}, {other})"
        case Cast(value=value, dtype=dtype):
            return f"{dtype}({value})"
        case Reinterpret(value=value, dtype=dtype):
            return f"reinterpret({value}, {dtype})"
        case Read(tensor=tensor, indices=indices):
            return f"{tensor.name}[{', '.join(map(str, indices))}]"
        case Reduce(kind=kind, axes=axes, value=value):
            over = ", ".join(f"{a.name} in {a.extent}" for a in axes)
            return f"{kind}({value} for {over})"
    raise AssertionError(type(e))
