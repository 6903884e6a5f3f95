"""The tensor expressions of any operator, what they say of its cost, and a step taken out of them.

All that is decided about the operators of a body is read off their expressions, so an operator
from outside the package is treated as those inside it are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from whet.core.types import TensorType
from whet.graph.body import fresh_inputs
from whet.graph.graph import Constant, Value, topological
from whet.graph.passes.expand_composites import ExpandingBuilder
from whet.ir.affine import rebuild
from whet.ir.expr import Axis, Const, Expr, Read, Reduce, Select
from whet.ir.tensor import (
    Compute,
    Placeholder,
    Tensor,
    compute,
    placeholder,
    producers,
    stages,
    subexpressions,
)
from whet.ops.base import Op
from whet.ops.shared.control import Control


def tensors_of(op: Op, given: Sequence[Tensor]) -> tuple[Tensor, ...] | None:
    """The operator's results as tensor expressions, composites through their expansion.

    None for what has none: control flow, programs, and what runs on the host.
    """
    if op.compute is not None:
        return op.compute_tensors(tuple(given))
    if op.expand is None or isinstance(op, Control) or not op.deterministic:
        return None
    inputs = fresh_inputs([t.type for t in given])
    results = ExpandingBuilder().results(op, *inputs)
    known: dict[Value, Tensor] = dict(zip(inputs, given, strict=True))
    for node in topological(results):
        if node.op.compute is None:
            return None
        made = node.op.compute_tensors(tuple(_tensor(v, known) for v in node.inputs))
        known.update(zip(node.results, made, strict=True))
    return tuple(_tensor(v, known) for v in results)


def _tensor(value: Value, known: Mapping[Value, Tensor]) -> Tensor:
    """The tensor of a value; constants of equal content are one."""
    if not isinstance(value, Constant):
        return known[value]
    t = value.tensor_type
    return placeholder(t.shape, t.dtype, f"constant:{value.digest}")


# --------------------------------------------------------------------------------------- facts
@dataclass(frozen=True, slots=True)
class Facts:
    """Properties of an operator on certain types."""

    moves: bool
    """Each element of a result is one of an input, or a known number."""
    rounds: bool
    """A kernel may choose the order of its sums, so other extents may give other bits."""
    sums: bool
    """It adds up terms, as a matrix product does."""


@lru_cache(maxsize=1 << 12)
def facts_of(op: Op, types: tuple[TensorType, ...]) -> Facts | None:
    """The facts of an operator that has tensor expressions."""
    given = [placeholder(t.shape, t.dtype, f"x{n}") for n, t in enumerate(types)]
    results = tensors_of(op, given)
    if results is None:
        return None
    bodies = [s.body for s in stages(results) if isinstance(s, Compute)]
    parts = list(subexpressions(*bodies))
    sums = [e for e in parts if isinstance(e, Reduce) and e.kind in ("sum", "prod")]
    return Facts(
        moves=all(map(_moves, bodies)),
        rounds=any(e.dtype.is_float for e in sums),
        sums=bool(sums),
    )


def _moves(e: Expr) -> bool:
    match e:
        case Read() | Const():
            return True
        case Select(then=then, other=other):
            return _moves(then) and _moves(other)
    return False


# ---------------------------------------------------------------------------------------- steps
@dataclass(frozen=True, slots=True)
class Source:
    """The tensor that a step sees of one that holds all steps along its first axis.

    `inserted` axes of extent 1 stand behind the first, for the sake of broadcasting.
    """

    tensor: Tensor
    inserted: int = 0


def without_step(
    outputs: Sequence[Tensor], sources: Mapping[Tensor, Source]
) -> tuple[Tensor, ...] | None:
    """The outputs of a single step; None if steps are not independent of each other.

        y[t, i] = a[t, i] * b[i]    ->    y[i] = a[i] * b[i]      (sources = {a})
        y[t, i] = a[t + 1, i]       ->    None

    Every tensor that depends on a source must have the step as its first axis, read others that
    do at the same step, and use the step for nothing else.
    """
    images: dict[Tensor, Source] = dict(sources)
    for stage in stages(outputs):
        if isinstance(stage, Placeholder) or images.keys().isdisjoint(producers(stage)):
            continue
        assert isinstance(stage, Compute)
        if not stage.axes:
            return None
        try:
            images[stage] = Source(_step_of(stage, images))
        except _Mixed:
            return None
    found = [images.get(t) for t in outputs]
    kept = tuple(f.tensor for f in found if f is not None)
    return kept if len(kept) == len(found) else None


class _Mixed(Exception):  # noqa: N818 - a signal within this file
    """A step depends on more than itself."""


def _step_of(stage: Compute, images: Mapping[Tensor, Source]) -> Tensor:
    """The stage without its first axis."""
    step, *own = stage.axes

    def body(*axes: Axis) -> Expr:
        memo: dict[Expr, Expr] = dict(zip(own, axes, strict=True))

        def visit(e: Expr) -> Expr:
            if e not in memo:
                memo[e] = changed(e)
            return memo[e]

        def changed(e: Expr) -> Expr:
            if e is step:
                raise _Mixed
            if not isinstance(e, Read) or e.tensor not in images:
                return rebuild(e, map(visit, e.children()))
            source = images[e.tensor]
            at, inserted = e.indices[0], e.indices[1 : 1 + source.inserted]
            if at is not step or any(not isinstance(i, Const) or i.value for i in inserted):
                raise _Mixed
            return source.tensor[tuple(map(visit, e.indices[1 + source.inserted :]))]

        return visit(stage.body)

    return compute([a.extent for a in own], body, stage.name)
