"""What normalizations are off by because the mean of a row is.

It is off by units of rounding of the row's largest number, and all elements of the row with it.
Noise on single inputs does not show that: what it adds to an element, it takes off the others, so
that the sum of a row stays what it is.
"""

from __future__ import annotations

import numpy as np

from tools.graph_fuzz.rounding import ROUNDING, Noise
from whet.core.types import Array
from whet.graph.graph import Node
from whet.ops.normalize import GroupNorm, InstanceNorm, LayerNorm

CENTRED = frozenset(["layer_norm", "group_norm", "instance_norm"])
"""Operators that subtract the mean of a row."""


def off_centre(node: Node, x: Array, scale: Array, inner: str, noise: Noise) -> Array:
    """What is added to each result."""
    if not x.size:
        return np.zeros(x.shape)
    count, epsilon, factor = _rows(node, x, scale)
    rows = x.reshape(count, -1)
    with np.errstate(all="ignore"):
        deviation = np.sqrt(rows.var(1, keepdims=True) + epsilon)
        unit = noise.amplitude * ROUNDING[inner] * np.abs(rows).max(1, keepdims=True)
        off = noise.rng.uniform(-1, 1, (count, 1)) * unit / deviation
        spread = np.broadcast_to(off, rows.shape).reshape(x.shape) * factor
    return np.where(np.isfinite(spread), spread, 0.0)


def _rows(node: Node, x: Array, scale: Array) -> tuple[int, float, Array]:
    """How many rows have a mean of their own, what is added to variances, and the factor of
    each element."""
    match node.op:
        case LayerNorm(axis=axis, epsilon=epsilon):
            return int(np.prod(x.shape[:axis])), epsilon, scale
        case GroupNorm(groups=groups, epsilon=epsilon):
            count = x.shape[0] * groups
        case InstanceNorm(epsilon=epsilon):
            count = x.shape[0] * x.shape[1]
        case _:
            raise AssertionError(node.op.name)
    return count, epsilon, scale.reshape(-1, *(1,) * (x.ndim - 2))
