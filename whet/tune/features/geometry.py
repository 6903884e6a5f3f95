"""The memory that a statement touches at every level of its loops, for all candidates at once.

    for i in 4: for k in 8: y[i] += a[i, k]      elements of a within each level:  32, 8, 1

Level l stands for one pass of loops l and deeper, with those outside standing still; level
`depth` is one execution.  Arrays are [level, candidate], so that a level is one stretch of memory.
Addresses are linear in the loops, hence footprints follow from extents and strides alone (bounding
boxes of dimensions, runs of lines): no candidate is lowered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whet.core.types import Array
from whet.schedule.space.statements import Access, Statement


@dataclass(frozen=True, eq=False)
class Touched:
    """The accesses of a statement to one buffer that move alike."""

    element_bytes: int
    reads: int
    writes: int
    in_registers: bool
    strides: Array
    """[depth, n] in elements."""
    elements: Array
    """[depth + 1, n]: distinct elements within a level."""
    lines: Array
    """[depth + 1, n]: distinct cache lines."""
    buffer_bytes: Array
    """[n]"""

    @property
    def touches(self) -> int:
        return self.reads + self.writes


@dataclass(frozen=True, eq=False)
class Geometry:
    """A statement's loops and footprints."""

    extents: Array
    """[depth, n]"""
    inner: Array
    """[depth + 1, n]: executions within a level."""
    outer: Array
    """[depth + 1, n]: how often a level is entered."""
    touched: tuple[Touched, ...]
    nbytes: Array
    """[depth + 1, n]: bytes of memory, without registers, that a level touches, by elements."""
    line_bytes: Array
    """[depth + 1, n]: the same by whole lines."""

    @property
    def depth(self) -> int:
        return len(self.extents)

    @property
    def total(self) -> Array:
        result: Array = self.inner[0]
        return result


def geometry_of(s: Statement, line: int) -> Geometry:
    """The footprints of a statement on a machine with cache lines of that many bytes."""
    extents = np.ascontiguousarray(s.loops.T, np.float32)
    depth, count = extents.shape
    inner = np.ones((depth + 1, count), np.float32)
    outer = np.ones((depth + 1, count), np.float32)
    for n in range(depth):
        outer[n + 1] = outer[n] * extents[n]
        inner[depth - 1 - n] = inner[depth - n] * extents[depth - 1 - n]
    touched = tuple(_touched(group, extents, line) for group in _alike(s.accesses))
    nbytes = np.zeros((depth + 1, count), np.float32)
    line_bytes = np.zeros((depth + 1, count), np.float32)
    for t in touched:
        if not t.in_registers:
            nbytes += t.elements * t.element_bytes
            line_bytes += t.lines * line
    return Geometry(extents, inner, outer, touched, nbytes, line_bytes)


def _alike(accesses: tuple[Access, ...]) -> list[tuple[Access, int, int]]:
    """Accesses of one buffer with equal strides as one, with how often it reads and writes.

    acc[i] = acc[i] + a[k] * a[k + 1]   ->   acc (one read, one write), a (two reads)
    """
    found: list[tuple[Access, int, int]] = []
    for access in accesses:
        for n, (known, reads, writes) in enumerate(found):
            if known.buffer == access.buffer and np.array_equal(known.indices, access.indices):
                found[n] = (known, reads + (not access.is_write), writes + access.is_write)
                break
        else:
            found.append((access, int(not access.is_write), int(access.is_write)))
    return found


def _touched(group: tuple[Access, int, int], extents: Array, line: int) -> Touched:
    access, reads, writes = group
    depth, count = extents.shape
    size = access.element_bytes
    moves = np.abs(access.indices.transpose(1, 2, 0)).astype(np.float32)  # [depth, rank, n]
    strides = np.ascontiguousarray(access.strides.T)
    far = np.abs(strides).astype(np.float32)
    steps = extents - 1.0
    boxes = np.ones((moves.shape[1], count), np.float32)
    points, span = np.ones(count, np.float32), np.ones(count, np.float32)
    run, apart = np.ones(count, np.float32), np.ones(count, np.float32)
    elements = np.ones((depth + 1, count), np.float32)
    lines = np.ones((depth + 1, count), np.float32)
    most = np.maximum(access.buffer_bytes / size, 1.0).astype(np.float32)
    most_lines = 1.0 + most * (size / line)
    for n in reversed(range(depth)):
        moved = far[n] != 0
        boxes = boxes + moves[n] * steps[n]
        reach = far[n] * steps[n]
        points = np.where(moved, points * extents[n], points)
        span = span + reach
        near = far[n] * size < line
        run = np.where(near, run + reach, run)
        apart = np.where(near, apart, apart * extents[n])
        distinct = np.minimum(np.minimum(points, boxes.prod(axis=0)), most)
        elements[n] = distinct
        by_runs = apart * (1.0 + (run - 1.0) * (size / line))
        by_span = 1.0 + (span - 1.0) * (size / line)
        lines[n] = np.minimum(
            np.minimum(by_runs, by_span), np.minimum(distinct, most_lines)
        )  # fmt: skip
    return Touched(
        size, reads, writes, access.in_registers, strides, elements, lines,
        access.buffer_bytes.astype(np.float32),
    )  # fmt: skip
