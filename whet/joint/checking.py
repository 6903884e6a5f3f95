"""Rewritten parts against what they replace, on numbers: proved rules, checked once more."""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import bf16, f16
from whet.core.errors import InternalError
from whet.core.types import Array
from whet.graph.graph import Constant, Graph, Input
from whet.graph.interpret import interpret
from whet.joint.recipe import follow_recipe, write_recipe
from whet.superopt.apply.rewrite import Part

TOLERANCE = 1e-5
"""Largest difference relative to the largest element: merged weights are rounded to single
precision, everything else is carried in double precision."""
COARSE = {f16: 1e-2, bf16: 6e-2}
"""The same where there are weights of these types: some 20 times what one rounding makes."""


def check_part(before: Part, after: Part, rules: str) -> float:
    """The largest relative difference of the outputs on random inputs.

    Raises: `InternalError` if it is too large for rounding.
    """
    inputs = tuple(v for v in before.inputs if isinstance(v, Input))
    first = Graph(inputs, before.outputs, tuple(f"y{n}" for n in range(len(before.outputs))))
    recipe = write_recipe(first, after.outputs)
    assert recipe is not None, "rewrites make no arrays"
    arrays = random_inputs(first)
    both = (interpret(g, arrays, precise=True) for g in (first, follow_recipe(recipe, first)))
    off = max((relative_difference(a, b) for a, b in zip(*both, strict=True)), default=0.0)
    if off > _tolerance(before, after):
        raise InternalError("WH1007", f"a rewritten block is off by {off:.1e}", details=(rules,))
    return off


def _tolerance(*parts: Part) -> float:
    """The largest difference of parts that rounding of their weights explains."""
    read = (v for part in parts for node in part.nodes for v in node.inputs)
    kinds = {v.tensor_type.dtype for v in read if isinstance(v, Constant)}
    return max((COARSE.get(kind, TOLERANCE) for kind in kinds), default=TOLERANCE)


def random_inputs(graph: Graph, seed: int = 0) -> list[Array]:
    """Mild random numbers; integers, which may be positions, are zero."""
    rng = np.random.default_rng(seed)
    arrays: list[Array] = []
    for value in graph.inputs:
        t = value.tensor_type
        numbers = rng.standard_normal(t.shape) if t.dtype.is_float else np.zeros(t.shape)
        arrays.append(numbers.astype(t.dtype.numpy))
    return arrays


def relative_difference(left: Array, right: Array) -> float:
    """The largest difference, relative to the largest finite element; what is no number must be
    none on both sides."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return np.inf
    if not finite.any():
        return 0.0
    scale = max(float(np.max(np.abs(a[finite]))), np.finfo(np.float64).tiny)
    return float(np.max(np.abs(a[finite] - b[finite]))) / scale
