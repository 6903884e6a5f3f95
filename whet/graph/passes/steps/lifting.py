"""Operators that do for all steps at once what another does in each.

Which operator that is, is found and not listed: attributes are shifted as an axis in front would
shift them, and what comes of it is compared, as tensor expressions, with the operator of one step.

    softmax(axis=0) on f32[8]                ->  softmax(axis=1) on f32[T, 8]
    transpose(perm=[1, 0]) on f32[2, 3]      ->  transpose(perm=[0, 2, 1]) on f32[T, 2, 3]
    matmul of f32[2, 8] and a whole f32[8, 4]  ->  matmul of f32[T, 2, 8] and f32[8, 4]
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from whet.core.errors import WhetError
from whet.core.types import TensorType
from whet.graph.passes.steps.expressions import Source, tensors_of, without_step
from whet.ir.tensor import Tensor, placeholder
from whet.ops.base import Op


@dataclass(frozen=True, slots=True)
class Lifted:
    """An operator on values with the step as first axis.

    `inserted` says of each operand how many axes of extent 1 go behind that axis, so that it
    broadcasts as it does within a step.
    """

    op: Op
    inserted: tuple[int, ...]


@lru_cache(maxsize=1 << 12)
def lift(
    op: Op, types: tuple[TensorType, ...], stepped: tuple[bool, ...], length: int
) -> Lifted | None:
    """The operator for `length` steps at once, or None where none is found.

    `types` are those within a step; operands that are not `stepped` are the same in all steps.
    """
    originals = [placeholder(t.shape, t.dtype, f"x{n}") for n, t in enumerate(types)]
    wanted = tensors_of(op, originals)
    if wanted is None:
        return None
    rank = max(t.rank for t in (*types, *(w.type for w in wanted)))
    aligned = tuple(rank - t.rank if s else 0 for t, s in zip(types, stepped))
    for inserted in dict.fromkeys((aligned, (0,) * len(types))):
        whole = [
            t.with_shape((length, *(1,) * n, *t.shape)) if s else t
            for t, s, n in zip(types, stepped, inserted)
        ]
        given = [placeholder(t.shape, t.dtype, f"x{n}") for n, t in enumerate(whole)]
        sources: dict[Tensor, Source] = {
            g: Source(x, n) for g, x, s, n in zip(given, originals, stepped, inserted) if s
        }
        for candidate in _shifted(op, length):
            if not _gives(candidate, whole, [(length, *t.shape) for t in wanted]):
                continue
            made = tensors_of(candidate, given)
            if made is not None and without_step(made, sources) == wanted:
                return Lifted(candidate, inserted)
    return None


def _gives(op: Op, types: list[TensorType], shapes: list[tuple[int, ...]]) -> bool:
    """Whether the operator takes these types and gives these shapes."""
    try:
        results = op.infer_types(tuple(types))
    except WhetError:
        return False
    return [t.shape if isinstance(t, TensorType) else None for t in results] == shapes


def _shifted(op: Op, length: int) -> Iterator[Op]:
    """The operator with its attributes as one more axis in front might change them."""
    fields = [f.name for f in dataclasses.fields(op)]  # type: ignore[arg-type]
    options = [_options(getattr(op, name), length) for name in fields]
    for values in itertools.product(*options):
        yield dataclasses.replace(op, **dict(zip(fields, values)))  # type: ignore[type-var]


def _options(value: Any, length: int) -> tuple[Any, ...]:
    """The attribute for an axis more: numbers of axes, or lists with an entry for every axis."""
    if isinstance(value, bool):
        return (value,)
    if isinstance(value, int):
        return (value, value + 1)
    numbers = isinstance(value, tuple) and all(
        isinstance(v, int) and not isinstance(v, bool) for v in value
    )
    if not numbers:
        return (value,)
    half = len(value) // 2
    return tuple(
        dict.fromkeys(
            (
                value,
                tuple(v + 1 for v in value),  # axes
                (0, *(v + 1 for v in value)),  # an order of axes
                (length, *value),  # extents, ends
                (0, *value),  # starts
                (1, *value),  # strides, repetitions
                (0, *value[:half], 0, *value[half:]),  # borders on both sides
            )
        )
    )
