"""Features of candidates: a row per statement, and which candidate each row belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from whet.core.cpu import PRESETS, CpuTarget
from whet.core.dtypes import f32
from whet.core.types import Array
from whet.ir.program import Buffer
from whet.ir.tensor import Tensor, compute, placeholder
from whet.schedule.space.registry import SKETCHES
from whet.schedule.space.statements import Statement
from whet.tasks.task import Task
from whet.tune.features.ansor import add_statement
from whet.tune.features.columns import Columns
from whet.tune.features.geometry import geometry_of
from whet.tune.features.machine import add_machine
from whet.tune.models.protocol import Batch

SKETCH_NUMBERS = {
    "contraction": 0, "winograd": 1, "spatial": 2, "groups": 3, "rows": 4, "transposed": 5,
}  # fmt: skip
"""Estimates of one sketch are wrong in the same way; all that are not listed share a number."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Statements of all candidates."""

    matrix: Array
    """[rows, columns] in float32."""
    owners: Array
    """[rows]: the candidate of each row."""
    names: tuple[str, ...]


def features_of(batch: Batch) -> Rows:
    """The features of all candidates of a batch; no rows if its sketch does not describe loops of a
    CPU, which is what they are about."""
    draft = batch.draft
    parts: list[Array] = []
    owners: list[Array] = []
    least: list[Array] = []
    names: list[str] = []
    statements, target = statements_of(batch), batch.target
    if not statements or not isinstance(target, CpuTarget):
        width = len(column_names())
        return Rows(np.zeros((0, width), np.float32), np.zeros(0, np.int64), column_names())
    shared = [_written(statements, but=s) for s in statements]
    for s, others in zip(statements, shared):
        to = Columns(len(s.rows))
        own = draft[s.rows]
        g = geometry_of(s, target.line_bytes)
        add_statement(to, s, g, target, batch.threads, others)
        least.append(add_machine(to, s, g, target, batch.threads, own))
        parts.append(to.matrix())
        owners.append(s.rows)
        names = to.names
    every = np.concatenate(owners)
    whole = _program_columns(batch, every, np.concatenate(least))
    matrix = np.concatenate([np.concatenate(parts), whole.matrix()], axis=1)
    return Rows(matrix, every, (*names, *whole.names))


def summary_of(batch: Batch) -> Rows:
    """One row per candidate: its most expensive statement, and the mean of all."""
    found = features_of(batch)
    names = (*found.names, *(f"mean {name}" for name in found.names))
    if not len(found.owners):
        return Rows(np.zeros((0, len(names)), np.float32), found.owners, names)
    share = found.matrix[:, found.names.index("share")]
    order = np.lexsort((share, found.owners))
    last = np.append(found.owners[order][1:] != found.owners[order][:-1], True)
    ordered = found.matrix[order]
    starts = np.append(0, np.flatnonzero(last)[:-1] + 1)
    number = np.diff(np.append(starts, len(order))).astype(np.float32)
    mean = np.add.reduceat(ordered, starts, axis=0) / number[:, None]
    matrix = np.concatenate([ordered[last], mean], axis=1)
    return Rows(matrix, found.owners[order][last], names)


def statements_of(batch: Batch) -> tuple[Statement, ...]:
    """The loop nests of a batch, without those that only set registers to a constant."""
    found = batch.sketch.nests(batch.form, batch.target, batch.threads, batch.holes)
    return tuple(s for s in found if len(s.accesses) > 1)


def _written(statements: tuple[Statement, ...], but: Statement) -> frozenset[str]:
    """Buffers that other statements of the same candidates write."""
    return frozenset(
        s.accesses[-1].buffer
        for s in statements
        if s is not but and bool((but.rows == s.rows[0]).any())
    )


def _program_columns(batch: Batch, owners: Array, least: Array) -> Columns:
    """Features that a candidate's statements have in common, and how much of it is this one's."""
    to = Columns(len(owners))
    count = len(batch)
    total = np.bincount(owners, least, count)
    number = np.bincount(owners, minlength=count)
    draft = batch.draft[owners]
    moving = sum(t.type.nbytes for t in (*batch.task.inputs, *batch.task.outputs))
    to.ratio("share", least, total[owners])
    to.size("statements", number[owners])
    to.size("draft", draft * 1e9)
    to.ratio("all by draft", total[owners], draft * 1e9)
    to.ratio("operations by draft", batch.task.operations, draft * 1e9)
    to.ratio("bytes by draft", float(moving), draft * 1e9)
    to.size("task operations", batch.task.operations)
    to.size("task bytes", moving)
    to.size("constant bytes", batch.task.constant_bytes)
    hints = batch.holes.get("prefetch")
    to.add("hints", 0.0 if hints is None else np.asarray(hints)[owners])
    known = SKETCH_NUMBERS.get(batch.sketch.name, len(SKETCH_NUMBERS))
    to.add("sketch", float(known))
    return to


@lru_cache(maxsize=1)
def column_names() -> tuple[str, ...]:
    """The names of the columns, in order."""
    x = placeholder((2, 2), f32, "x")
    y = compute((2, 2), lambda i, j: x[i, j] + 1.0, "y")
    buffers: dict[Tensor, Buffer] = {t: Buffer(t.name, t.shape, t.dtype) for t in (x, y)}
    task = Task((y,), buffers, frozenset(), {})
    sketch = SKETCHES["spatial"]
    form, target = sketch.fits(task), PRESETS["x86-64-v3"]
    batch = Batch(task, sketch, form, target, 1, sketch.space(form, target, 1))
    return features_of(batch).names
