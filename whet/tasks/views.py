"""Reads along linear indices as views: nothing is gathered element by element.

x[i, l * 2 + k - 1]  over i, l, k       ->   a view of x with strides (s0, 2 * s1, s1)
select(0 <= l * 2 + k - 1, x[...], 0)   ->   the same of x with zeros around it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from whet.core.types import Array
from whet.ir.affine import affine
from whet.ir.expr import Axis, Binary, Const, Expr, Read, Select, as_expr
from whet.ir.tensor import Tensor


def windows(e: Expr, axes: Sequence[Axis], arrays: Mapping[Tensor, Array]) -> Array | None:
    """The values of a read over the axes; None if it is not as above.

    A condition must say no more and no less than that the indices lie inside.
    """
    tests: list[Expr] = []
    if isinstance(e, Select):
        if not (isinstance(e.other, Const) and e.other.value == 0):
            return None
        tests, e = list(_conjuncts(e.condition)), e.then
    if not isinstance(e, Read) or e.tensor not in arrays or not e.indices:
        return None
    array = arrays[e.tensor]
    allowed: dict[Expr, None] = {}
    edges: list[tuple[int, int]] = []
    starts: list[int] = []
    coefficients: list[list[int]] = []
    for index, extent in zip(e.indices, array.shape, strict=True):
        form = affine(index)
        if not extent or any(atom not in axes for atom, _ in form.terms):
            return None
        reach = [(c, form.coefficient(a) * (a.extent - 1)) for c, a in enumerate(axes)]
        low = form.constant + sum(min(0, r) for _, r in reach)
        high = form.constant + sum(max(0, r) for _, r in reach)
        before, after = max(0, -low), max(0, high - extent + 1)
        inside = [as_expr(0) <= index, index < extent]
        needed = [t for t, out in zip(inside, (before, after)) if out]
        if any(t not in tests for t in needed):
            return None
        allowed |= dict.fromkeys(inside)
        edges.append((before, after))
        starts.append(form.constant + before)
        coefficients.append([form.coefficient(a) for a in axes])
    if any(t not in allowed for t in tests):
        return None
    padded = np.ascontiguousarray(np.pad(array, edges))
    steps = [s // padded.itemsize for s in padded.strides]
    first = sum(n * s for n, s in zip(starts, steps))
    strides = [
        padded.itemsize * sum(c[k] * s for c, s in zip(coefficients, steps))
        for k in range(len(axes))
    ]
    flat = padded.reshape(-1)
    return as_strided(flat[first:], [a.extent for a in axes], strides, writeable=False)


def _conjuncts(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Binary) and e.op == "and":
        yield from _conjuncts(e.left)
        yield from _conjuncts(e.right)
    else:
        yield e
