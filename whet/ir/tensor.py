"""Tensor expressions: what to compute, element by element, without saying in which order.

a = placeholder((4, 6), f32, "a")
b = placeholder((6, 3), f32, "b")
k = reduce_axis(6, "k")
y = compute((4, 3), lambda i, j: sum_(a[i, k] * b[k, j], k), "y")

print(describe(y))      y[i, j in 4, 3] = sum(a[i, k] * b[k, j] for k in 6)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakKeyDictionary

from whet.core.dtypes import DType
from whet.core.errors import check, fail
from whet.core.types import Shape, TensorType
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
    Scalar,
    Select,
    Var,
    all_of,
    as_expr,
    const,
    select,
)
from whet.ir.interning import Interned

AXIS_NAMES = "ijlmnopqrstuv"


class Tensor(metaclass=Interned):
    """A named array of known type that expressions can read."""

    __slots__ = ()
    name: str
    shape: Shape
    dtype: DType

    @property
    def type(self) -> TensorType:
        return TensorType(self.shape, self.dtype)

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __getitem__(self, indices: Scalar | tuple[Scalar, ...]) -> Expr:
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != self.rank:
            read = f"is read with {len(given)} indices"
            fail("WH1301", f"'{self.name}' has rank {self.rank} and {read}")
        return Read(self, tuple(as_expr(i) for i in given))


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Placeholder(Tensor):
    """A tensor that is given from outside."""

    name: str
    shape: Shape
    dtype: DType
    finite: bool = True
    """False where it is known to hold NaN or infinities: zero times an element may not be zero."""


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Compute(Tensor):
    """A tensor defined by one expression over its axes (one stage of a task)."""

    name: str
    axes: tuple[Axis, ...]
    body: Expr

    @property
    def shape(self) -> Shape:  # type: ignore[override]
        return tuple(a.extent for a in self.axes)

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.body.dtype


def placeholder(shape: Sequence[int], dtype: DType, name: str) -> Placeholder:
    return Placeholder(name, tuple(shape), dtype)


def compute(shape: Sequence[int], body: Callable[..., Scalar], name: str) -> Compute:
    """The tensor whose element at (i, j, ...) is body(i, j, ...)."""
    axes = tuple(
        Axis(AXIS_NAMES[n] if n < len(AXIS_NAMES) else f"i{n}", extent)
        for n, extent in enumerate(shape)
    )
    value = body(*axes)
    assert isinstance(value, Expr), "the body of a compute must be an expression"
    return Compute(name, axes, value)


def reduce_axis(extent: int, name: str) -> Axis:
    return Axis(name, extent, "R")


def reduce(kind: str, value: Expr, *axes: Axis) -> Expr:
    """`kind` of the value over the axes; no axes means the value itself."""
    check(all(a.role == "R" for a in axes), "WH1301", "only axes of role R can be reduced")
    return Reduce(kind, axes, value) if axes else value


def sum_(value: Expr, *axes: Axis) -> Expr:
    return reduce("sum", value, *axes)


def max_(value: Expr, *axes: Axis) -> Expr:
    return reduce("max", value, *axes)


def min_(value: Expr, *axes: Axis) -> Expr:
    return reduce("min", value, *axes)


def prod_(value: Expr, *axes: Axis) -> Expr:
    return reduce("prod", value, *axes)


def broadcast_read(tensor: Tensor, indices: Sequence[Expr]) -> Expr:
    """The element that NumPy broadcasting pairs with output position `indices`.

    Axes of size 1 are read at 0, and missing leading axes are dropped.
    """
    own = indices[len(indices) - tensor.rank :]
    return tensor[tuple(const_index(0) if d == 1 else i for d, i in zip(tensor.shape, own))]


def const_index(value: int) -> Expr:
    return as_expr(value)


def guarded_read(tensor: Tensor, indices: Sequence[Expr], fill: float | int) -> Expr:
    """The element at `indices`, or `fill` outside the tensor (zero padding and the like)."""
    inside: list[Expr] = []
    for index, extent in zip(indices, tensor.shape):
        inside += [as_expr(0) <= index, index < extent]
    return select(all_of(inside), tensor[tuple(indices)], const(fill, tensor.dtype))


def subexpressions(*roots: Expr) -> Iterator[Expr]:
    """Every distinct sub-expression of the roots, parents first, left to right."""
    return iter(_subexpressions(roots))


@lru_cache(maxsize=1 << 12)
def _subexpressions(roots: tuple[Expr, ...]) -> tuple[Expr, ...]:
    seen: dict[Expr, None] = {}
    stack = list(reversed(roots))
    while stack:
        e = stack.pop()
        if e not in seen:
            seen[e] = None
            children = e.children()
            if children:
                stack.extend(reversed(children))
    return tuple(seen)


def read_tensors(e: Expr) -> list[Tensor]:
    """The tensors that an expression reads, one for every read."""
    return [x.tensor for x in subexpressions(e) if isinstance(x, Read)]


def producers(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors that this one reads directly, each once, in order of appearance."""
    if not isinstance(tensor, Compute):
        return ()
    found = _PRODUCERS.get(tensor)
    if found is None:
        reads = (e.tensor for e in subexpressions(tensor.body) if isinstance(e, Read))
        found = _PRODUCERS[tensor] = tuple(dict.fromkeys(reads))
    return found


_PRODUCERS: WeakKeyDictionary[Compute, tuple[Tensor, ...]] = WeakKeyDictionary()


def stages(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """All tensors that the outputs depend on, producers before their readers."""
    order: dict[Tensor, None] = {}
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(outputs)]
    while stack:
        tensor, ready = stack.pop()
        if tensor in order:
            continue
        if ready:
            order[tensor] = None
        else:
            stack.append((tensor, True))
            stack.extend((p, False) for p in reversed(producers(tensor)))
    return tuple(order)


def describe(*outputs: Tensor) -> str:
    """The stages as text, one line each."""
    lines = []
    for t in stages(outputs):
        extents = ", ".join(map(str, t.shape))
        if isinstance(t, Compute):
            names = ", ".join(a.name for a in t.axes)
            axes = f"{names} in {extents}" if t.axes else ""
            lines.append(f"{t.name}[{axes}] = {t.body}{_types_of_literals(t.body)}")
        else:
            known = "" if not isinstance(t, Placeholder) or t.finite else " not finite"
            lines.append(f"{t.name} = placeholder {t.type}{known}")
    return "\n".join(lines)


_USUAL_TYPES = ("f32", "i64", "bool")
"""Types of literals that go without saying, so that keys stay what they were."""


def _types_of_literals(body: Expr) -> str:
    """The types that a formula does not show, because they are those of literals alone.

    select(x[] > 0, 0.5, 1.0)  ->  " as f64", or nothing where it is f32
    """
    literals = [e for e in subexpressions(body) if isinstance(e, Const)]
    if all(e.dtype.name in _USUAL_TYPES for e in literals):
        return ""
    found = dict.fromkeys(_hidden_types(body))
    hidden = [name for name in found if name not in _USUAL_TYPES]
    return f" as {', '.join(hidden)}" if hidden else ""


def _hidden_types(body: Expr) -> Iterator[str]:
    """The types of parts of a formula that nothing they read or convert shows."""
    waiting: list[tuple[Expr, ...]] = [(body,)]
    seen: set[Expr] = set()
    while waiting:
        alike, others = _of_one_type(waiting.pop())
        if not any(isinstance(e, Cast | Reinterpret | Read | Axis | Var) for e in alike):
            yield alike[0].dtype.name
        waiting += [group for group in others if not seen.issuperset(group)]
        seen.update(e for group in others for e in group)


def _of_one_type(parts: tuple[Expr, ...]) -> tuple[list[Expr], list[tuple[Expr, ...]]]:
    """Parts that must have the same type as these, and groups of what else they are made of."""
    alike: dict[Expr, None] = {}
    others: list[tuple[Expr, ...]] = []
    waiting = [*parts]
    while waiting:
        e = waiting.pop()
        if e in alike:
            continue
        alike[e] = None
        match e:
            case Select():
                waiting += [e.then, e.other]
                others.append((e.condition,))
            case Binary() | Call() | Reduce() if e.dtype == e.children()[0].dtype:
                waiting += e.children()
            case Binary() | Call():
                others.append(e.children())  # of one type among themselves
            case _:
                others += [(child,) for child in e.children()]
    return list(alike), others
