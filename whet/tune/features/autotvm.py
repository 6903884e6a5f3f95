"""AutoTVM's features of a candidate: knobs, loops and curves, one row per candidate.

knob       the holes themselves; for candidates of one sketch and task only
itervar    every loop of the statement that does most of the work, innermost first
curve      how reuse and footprints grow from the inside out, sampled at fixed places, so that
           rows of all tasks and sketches mean the same (Chen et al. 2018, "relation features")
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.errors import check
from whet.core.types import Array
from whet.schedule.space.statements import MARKS, Statement
from whet.tune.features.ansor import interpolate, operations_per_execution
from whet.tune.features.columns import Columns
from whet.tune.features.geometry import Geometry, Touched, geometry_of
from whet.tune.features.program import statements_of
from whet.tune.models.protocol import Batch

LOOPS = 12
"""Loops that are described; those further out are not."""
BUFFERS = 3
SAMPLES = 20


def knob_features(batch: Batch) -> Array:
    """[candidates, holes]: by the logarithm, for sizes of tiles matter by ratios."""
    holes = [np.log2(1.0 + np.asarray(c, np.float32)) for _, c in sorted(batch.holes.items())]
    result: Array = np.stack(holes, axis=1)
    return result


def itervar_features(batch: Batch) -> Array:
    """[candidates, columns]: the loops of the main statement."""
    return _of_main_statement(batch, _loops)


def curve_features(batch: Batch) -> Array:
    """[candidates, columns]: the curves of the main statement."""
    return _of_main_statement(batch, _curves)


Describe = Callable[[Columns, Statement, Geometry], None]


def _of_main_statement(batch: Batch, describe: Describe) -> Array:
    """The columns of the statement that executes most operations, candidate by candidate."""
    statements, target = statements_of(batch), batch.target
    assert isinstance(target, CpuTarget), "these features are about loops of a CPU"
    check(len(statements) > 0, "WH2121",
          f"the sketch '{batch.sketch.name}' does not describe its loops")  # fmt: skip
    work = np.full((len(statements), len(batch)), -1.0)
    for n, s in enumerate(statements):
        work[n, s.rows] = s.loops.prod(axis=1) * max(operations_per_execution(s), 0.25)
    main = work.argmax(axis=0)
    found: Array | None = None
    for n, s in enumerate(statements):
        chosen = np.flatnonzero(main[s.rows] == n)
        if not len(chosen):
            continue
        to = Columns(len(s.rows))
        describe(to, s, geometry_of(s, target.line_bytes))
        table = to.matrix()
        if found is None:
            found = np.zeros((len(batch), table.shape[1]), np.float32)
        found[s.rows[chosen]] = table[chosen]
    assert found is not None, "a program without statements"
    return found


def _most_moving(g: Geometry) -> list[Touched]:
    """The buffers in memory that are touched most, in an order that all candidates share."""
    memory = [t for t in g.touched if not t.in_registers]
    return sorted(memory, key=lambda t: -float(t.elements[0].mean()))[:BUFFERS]


def _loops(to: Columns, s: Statement, g: Geometry) -> None:
    buffers = _most_moving(g)
    nothing = np.zeros(to.count, np.float32)
    for place in range(LOOPS):
        n = g.depth - 1 - place
        inside = n >= 0
        to.size(f"loop {place} extent", g.extents[n] if inside else nothing)
        to.size(f"loop {place} bottom up", g.inner[n] if inside else nothing)
        to.size(f"loop {place} top down", g.outer[n + 1] if inside else nothing)
        marks = s.marks[:, n] if inside else np.full(to.count, -1)
        for mark, number in MARKS.items():
            to.add(f"loop {place} {mark}", marks == number)
        to.add(f"loop {place} reduces", float(inside and s.reduces[n]))
        for which in range(BUFFERS):
            t = buffers[which] if inside and which < len(buffers) else None
            stride = nothing if t is None else np.abs(t.strides[n])
            to.size(f"loop {place} buffer {which} stride", stride)
            to.size(f"loop {place} buffer {which} count", nothing if t is None else t.elements[n])
            reuse = nothing if t is None else g.inner[n] / t.elements[n]
            to.size(f"loop {place} buffer {which} reuse", reuse)
    to.add("operations", operations_per_execution(s))


def _curves(to: Columns, s: Statement, g: Geometry) -> None:
    buffers = _most_moving(g)
    inside = np.log2(g.inner)
    for which in range(BUFFERS):
        if which < len(buffers):
            count = np.log2(buffers[which].elements)
            reuse = inside - count
        else:
            count = reuse = np.zeros_like(inside)
        for n in range(SAMPLES):
            # Places are absolute (a step is a factor of three): tasks of any size compare.
            at = np.full(to.count, n * np.log2(3.0), np.float32)
            to.add(f"buffer {which} count {n}", interpolate(inside, count, at))
            to.add(f"buffer {which} reuse {n}", interpolate(inside, reuse, at))
    to.size("operations", operations_per_execution(s) * g.total)
    parallel = (s.marks == MARKS["parallel"]).T
    vector = (s.marks == MARKS["vector"]).T
    to.size("steps", np.where(parallel, g.extents, np.float32(1)).prod(axis=0))
    to.size("lanes", np.where(vector, g.extents, np.float32(1)).prod(axis=0))
    to.size("copies", s.unroll)
