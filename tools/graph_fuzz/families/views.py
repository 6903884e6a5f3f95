"""Other sights of a value: slices, reversals, transpositions, parts in another order.

They are what the generators of single operators draw by chance, drawn on purpose: the planner
makes views of them, places values in the memory of others, or reads backwards.
"""

from __future__ import annotations

import numpy as np

from tools.graph_fuzz.families.movement import drawn_bounds, sliced
from tools.graph_fuzz.growth import Growth, Held

KINDS = {"leading": 4, "reversed": 4, "slice": 4, "transposed": 3, "flat": 2, "column": 2,
         "rows": 2, "same": 1}  # fmt: skip


def view_of(g: Growth, v: Held) -> Held:
    """A part of the value, or the value turned or reversed."""
    if not v.rank or not v.size:
        return g.emit("Identity", v)
    kind = g.draw.weighted(KINDS)
    axis = g.draw.integer(0, v.rank - 1)
    extent = v.shape[axis]
    if kind == "leading":
        return sliced(g, v, [0], [(0, max(1, v.shape[0] - 1), 1)])
    if kind == "reversed" and g.opset >= 10:
        return sliced(g, v, [axis], [(extent - 1, -(1 << 40), -1)])
    if kind == "slice":
        return sliced(g, v, [axis], [drawn_bounds(g, extent)])
    if kind == "transposed":
        return g.emit("Transpose", v, perm=g.draw.shuffled(range(v.rank)))
    if kind == "flat":
        return g.reshaped(v, (v.size,))
    if kind == "column":
        at = g.constant(np.asarray(g.draw.integer(0, extent - 1), np.int64))
        return g.emit("Gather", v, at, axis=axis)
    if kind == "rows":
        chosen = [g.draw.integer(0, extent - 1) for _ in range(g.draw.integer(1, 3))]
        return g.emit("Gather", v, g.constant(np.asarray(chosen, np.int64)), axis=axis)
    return g.emit("Identity", v)
