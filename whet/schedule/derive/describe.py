"""The loop nests of many candidates of a structure, in closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from whet.core.types import Array
from whet.schedule.derive.sizes import Size, value
from whet.schedule.derive.structure import LoopStructure
from whet.schedule.derive.trees import Band, Leaf, SizedBuffer, Touch, Tree
from whet.schedule.space.statements import MARKS, Access, Statement


def described(
    structure: LoopStructure, columns: Mapping[str, Array], rows: Array
) -> Iterator[tuple[int, Statement]]:
    """Every statement with the number of the root that it lies in; `rows` number the candidates."""
    for number, root in enumerate(structure.state.trees):
        spread: tuple[str, tuple[str, ...]] = ("", ())
        if isinstance(root, Band):
            hole = f"{root.name}.parallel"
            spread = (hole, structure.spreads.get(hole, ()))
        for leaf, around in _leaves((root,), ()):
            yield number, _statement(structure, leaf, around, columns, rows, spread)


def _leaves(
    trees: Sequence[Tree], around: tuple[Band, ...]
) -> Iterator[tuple[Leaf, tuple[Band, ...]]]:
    for tree in trees:
        if isinstance(tree, Leaf):
            yield tree, around
        else:
            inner = (*around, tree) if isinstance(tree, Band) else around
            yield from _leaves(tree.body, inner)


def _statement(
    structure: LoopStructure,
    leaf: Leaf,
    around: tuple[Band, ...],
    columns: Mapping[str, Array],
    rows: Array,
    spread: tuple[str, tuple[str, ...]],
) -> Statement:
    count, depth = len(rows), len(around)
    loops: Array = np.ones((count, depth), np.int64)
    marks: Array = np.zeros((count, depth), np.int8)
    unrolled = {loop: hole for hole, loop in structure.state.unrolls}
    hole, outer = spread
    for n, band in enumerate(around):
        loops[:, n] = value(band.extent, columns)
        marks[:, n] = MARKS[band.kind]
        if band.name in unrolled:
            marks[:, n] = np.where(columns[unrolled[band.name]] > 0, MARKS["unroll"], 0)
        if band.name in outer:
            taken = columns[hole] > outer.index(band.name)
            marks[:, n] = np.where(taken, MARKS["parallel"], marks[:, n])
    memo: dict[Size, Array] = {}

    def column(size: Size) -> Array:
        if size not in memo:
            memo[size] = np.broadcast_to(value(size, columns), count)
        return memo[size]

    storage = structure.state.storage
    accesses = tuple(_access(t, storage[t.buffer], around, count, column) for t in leaf.touches)
    return Statement(
        leaf.written.buffer,
        rows,
        loops,
        marks,
        tuple(b.reduces for b in around),
        accesses,
        dict(leaf.operations),
    )


def _access(
    touch: Touch,
    stored: SizedBuffer,
    around: Sequence[Band],
    count: int,
    column: Callable[[Size], Array],
) -> Access:
    rank = len(touch.indices)
    indices: Array = np.zeros((count, len(around), rank), np.int64)
    for d, index in enumerate(touch.indices):
        steps = dict(index.terms)
        for n, band in enumerate(around):
            if band.name in steps:
                indices[:, n, d] = column(steps[band.name])
    strides = [column(s) for s in stored.steps()]
    apart: Array = np.stack(strides, axis=1) if rank else np.zeros((count, 0), np.int64)
    return Access(
        touch.buffer,
        stored.element_bytes,
        touch.is_write,
        indices,
        apart,
        column(stored.bytes()),
        stored.scope == "register",
    )
