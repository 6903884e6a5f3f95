"""Whole runs: rows along a sum, filled up with zeros to what one copy brings.

A convolution of an image with three channels sums over them.  Kernels that bring elements in runs
of four could not, if the next pixel followed at once:

    r g b r g b r g b ...     ->     r g b 0 r g b 0 r g b 0 ...

The zeros are a border of the contiguous axis like those around images, which are written once.
"""

from __future__ import annotations

from dataclasses import replace

from whet.graph.graph import Constant, Value
from whet.tasks.dag import Dag
from whet.tasks.layout import Layouts
from whet.tasks.structure import structure_of, vector_axis_of_contraction
from whet.tasks.task import Border, wider_border

MOST = 1.5
"""How many times as long rows become at most."""


def with_whole_runs(graph: Dag, layouts: Layouts, run: int) -> Layouts:
    """The layouts with borders that make rows along sums multiples of `run` elements.

    Only values that are not as callers have them get any: others would need a copy for it.
    """
    if run == 1:
        return layouts
    border = dict(layouts.border)
    for node in graph.nodes:
        s = structure_of(node)
        if s is None:
            continue
        weights = frozenset(p for p, v in zip(s.inputs, node.inputs) if isinstance(v, Constant))
        wanted = vector_axis_of_contraction(s, weights) if weights else None
        if wanted is None:
            continue
        _, operand, axis = wanted
        names = [p.name for p in s.inputs]
        value = node.inputs[names.index(operand.tensor.name)]
        extent = value.tensor_type.shape[axis]
        whole = -(-extent // run) * run
        if layouts.inner.get(value) == axis and extent < whole <= MOST * extent:
            need = _behind(value, axis, whole - extent)
            border[value] = wider_border(border.get(value), need)
    return replace(layouts, border=border)


def _behind(value: Value, axis: int, count: int) -> Border:
    """Zeros behind one axis."""
    return tuple((0, count if n == axis else 0) for n in range(value.tensor_type.rank))
