"""Reductions, positions of extremes, running sums."""

from __future__ import annotations

import numpy as np

from tools.graph_fuzz.families.movement import some_axis
from tools.graph_fuzz.families.ranges import within
from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from whet.core.dtypes import i32, i64

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


@generates(*REDUCTIONS)
def reduction(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    if name == "ReduceProd":
        _check_product(g, v)
    if name == "ReduceLogSum":
        v = within(g, v, 0.05, 1e4) if v.dtype.is_float else v
    if not v.dtype.is_float and "Log" in name and (v.array <= 0).any():
        raise Impossible
    axes = g.draw.some(range(v.rank), 0.5)
    if g.opset >= 11:
        axes = [a - v.rank if g.draw.chance(0.3) else a for a in axes]
    keep = g.draw.pick([None, 0, 1])
    as_input = g.opset >= (13 if name == "ReduceSum" else 18)
    if not as_input:
        return g.emit(name, v, axes=axes or None, keepdims=keep)
    given = g.ints(axes) if axes or g.draw.chance(0.3) else None
    noop = g.draw.pick([None, 0, 1])
    return g.emit(name, v, given, keepdims=keep, noop_with_empty_axes=noop)


def _check_product(g: Growth, v: Held) -> None:
    """No factors whose product is infinite or zero depending on where one begins."""
    if g.special and v.dtype.is_float and (np.abs(v.array.astype(np.float64)) > 1e4).any():
        raise Impossible


@generates("ArgMax", "ArgMin")
def arg_reduction(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 6), where=lambda v: v.size > 0)
    axis = some_axis(g, v.rank)
    last = g.draw.pick([None, 0, 1]) if g.opset >= 12 else None
    return g.emit(name, v, axis=axis if g.opset >= 11 else axis % v.rank,
                  keepdims=g.draw.pick([None, 0, 1]), select_last_index=last)  # fmt: skip


@generates("CumSum", "CumProd")
def running(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 6))
    if name == "CumProd":
        _check_product(g, v)
    axis = np.asarray(some_axis(g, v.rank), g.draw.pick([i32, i64]).numpy)
    return g.emit(name, v, g.constant(axis), exclusive=g.draw.pick([None, 0, 1]),
                  reverse=g.draw.pick([None, 0, 1]))  # fmt: skip
