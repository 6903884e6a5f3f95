"""Tensor expressions evaluated fast enough for whole networks: sums of products as matmuls.

    sum(x[i, l + k0, m + k1, c] * w[j, k0, k1, c] for c, k0, k1)
        ->   X[i l m, k0 k1 c] @ W[k0 k1 c, j]     (X: every window, as `evaluate` reads it)

The factors are evaluated by definition over their own axes only, which takes as many steps as
there are multiplications divided by what the factors share.  All else is `ir.evaluate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.errors import WhetError
from whet.core.types import Array
from whet.ir.affine import free_symbols, substitute
from whet.ir.evaluate import evaluate_stage
from whet.ir.expr import Axis, Binary, Expr, Read, Reduce, elements
from whet.ir.tensor import Compute, Placeholder, Tensor, stages, subexpressions
from whet.tasks.views import windows

CHUNK_BYTES = 256 << 20
"""The most memory that windows are written out to at once."""


def evaluate_fast(outputs: Sequence[Tensor], inputs: Mapping[Tensor, Array]) -> tuple[Array, ...]:
    """The results of `evaluate`, up to the order of sums."""
    arrays = dict(inputs)
    for stage in stages(outputs):
        if isinstance(stage, Compute):
            arrays[stage] = _evaluate_stage(stage, arrays)
    return tuple(arrays[t] for t in outputs)


def _evaluate_stage(stage: Compute, arrays: Mapping[Tensor, Array]) -> Array:
    """The stage with its products replaced by reads of what they give."""
    known = dict(arrays)
    replaced: dict[Expr, Expr] = {}
    for e in subexpressions(stage.body):
        product = _find_product(e, stage.axes)
        if product is not None:
            shape = tuple(a.extent for a in product.kept)
            name = Placeholder(f"product{len(replaced)}", shape, e.dtype)
            try:
                known[name] = _multiply(product, arrays).astype(e.dtype.numpy)
            except WhetError:
                continue  # it reads outside, so it is under a condition: by definition then
            replaced[e] = Read(name, product.kept)
    simpler = Compute(stage.name, stage.axes, substitute(stage.body, replaced))
    return evaluate_stage(simpler, known)


@dataclass(frozen=True, eq=False)
class _Product:
    left: Expr
    right: Expr
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    reduced: tuple[Axis, ...]

    @property
    def kept(self) -> tuple[Axis, ...]:
        return (*self.batch, *self.rows, *self.columns)


def _find_product(e: Expr, axes: Sequence[Axis]) -> _Product | None:
    """A sum over a product of two factors that both run along every reduced axis."""
    if not (isinstance(e, Reduce) and e.kind == "sum" and e.dtype.is_float):
        return None
    if not (isinstance(e.value, Binary) and e.value.op == "mul"):
        return None
    left, right = e.value.left, e.value.right
    a, b = free_symbols(left), free_symbols(right)
    if any(isinstance(x, Reduce) for x in subexpressions(e.value)):
        return None
    if not set(e.axes) <= a & b:
        return None
    return _Product(
        left,
        right,
        tuple(x for x in axes if x in a and x in b),
        tuple(x for x in axes if x in a and x not in b),
        tuple(x for x in axes if x in b and x not in a),
        e.axes,
    )


def _multiply(p: _Product, arrays: Mapping[Tensor, Array]) -> Array:
    a = _factor(p.left, (*p.batch, *p.rows, *p.reduced), arrays)
    b = _factor(p.right, (*p.batch, *p.reduced, *p.columns), arrays)
    batch, depth = elements(p.batch), elements(p.reduced)
    b = _wide(b.reshape(batch, depth, elements(p.columns)))
    # Windows overlap: as a matrix they take many times the memory of what they are read from.
    step = max(1, CHUNK_BYTES * max(1, len(a)) // max(1, a.size * a.itemsize))
    if p.batch or step >= len(a):
        found = _wide(a.reshape(batch, elements(p.rows), depth)) @ b
    else:
        parts = [_wide(a[n : n + step].reshape(-1, depth)) @ b[0] for n in range(0, len(a), step)]
        found = np.concatenate(parts)
    return np.asarray(found).reshape([x.extent for x in p.kept])


def _wide(array: Array) -> Array:
    wide = array.dtype if array.dtype in (np.float32, np.float64) else np.dtype(np.float32)
    return array.astype(wide, copy=False)


def _factor(e: Expr, axes: Sequence[Axis], arrays: Mapping[Tensor, Array]) -> Array:
    """The factor over its axes."""
    # Reduced axes are plain positions here, as all others.
    plain = {a: Axis(f"f{n}", a.extent) for n, a in enumerate(axes)}
    e = substitute(e, plain)
    found = windows(e, tuple(plain.values()), arrays)
    if found is not None:
        return found
    return evaluate_stage(Compute("factor", tuple(plain.values()), e), arrays)
