"""Index arithmetic of row-major order: what `reshape` and its users share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from whet.ir.expr import Expr, as_expr


def matching_groups(
    old: Sequence[int], new: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The finest division of both shapes' axes into consecutive runs of equal size.

        (2, 3, 4) and (6, 4)   ->   [((0, 1), (0,)), ((2,), (1,))]

    An axis that a reshape leaves alone is then a group of its own and keeps its plain index.
    """
    if math.prod(old) == 0:
        return [(tuple(range(len(old))), tuple(range(len(new))))]
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    a = b = 0
    while a < len(old) or b < len(new):
        start_a, start_b = a, b
        size_a = size_b = 1
        if a < len(old) and b < len(new):
            size_a, size_b, a, b = old[a], new[b], a + 1, b + 1
        while size_a != size_b or (a < len(old)) != (b < len(new)):
            if b == len(new) or (a < len(old) and size_a <= size_b):
                size_a, a = size_a * old[a], a + 1
            else:
                size_b, b = size_b * new[b], b + 1
        groups.append((tuple(range(start_a, a)), tuple(range(start_b, b))))
    return groups


def flat_index(index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The row-major position of an index within the shape."""
    flat = as_expr(0)
    for i, extent in zip(index, shape):
        flat = flat * extent + i
    return flat


def unflatten(flat: Expr, shape: Sequence[int]) -> list[Expr]:
    """The index within the shape that has this row-major position."""
    index: list[Expr] = []
    stride = math.prod(shape)
    for n, extent in enumerate(shape):
        stride = stride // extent if extent else 0
        quotient = flat if stride == 1 else flat // stride
        index.append(quotient if n == 0 else quotient % extent)
    return index
