"""The 164 features of a statement (Ansor, appendix B).

What differs from the original, on purpose: products that are added count as multiply-adds; the
position of an annotation is one of the named ones unless loops of several positions have it;
cache lines follow from the strides of all loops; several accesses of one buffer are summed up
instead of overwriting each other; the intensity curve is sampled evenly in the logarithm of the
operations, where its inner part is visible.  The eight columns about GPU threads describe how
statements use the threads and registers of a CPU.
"""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.program import LoopKind
from whet.schedule.space.statements import MARKS, OPERATIONS, Statement
from whet.tune.features.columns import Columns
from whet.tune.features.geometry import Geometry, Touched

POSITIONS = (
    "none", "inner spatial", "middle spatial", "outer spatial", "inner reduce", "middle reduce",
    "outer reduce", "mixed",
)  # fmt: skip
MARKED: tuple[LoopKind, ...] = ("vector", "unroll", "parallel")
REUSES = ("loop", "serial", "none")
BUFFERS = 5
SAMPLES = 10
COUNT = 57 + 18 * BUFFERS + SAMPLES + 4 + 3


def add_statement(
    to: Columns, s: Statement, g: Geometry, target: CpuTarget, threads: int, shared: frozenset[str]
) -> None:
    """Adds the features; `shared` are buffers that other statements write."""
    _computation(to, s, g, target, threads)
    _accesses(to, s, g, shared)
    _intensity(to, s, g)
    outer = g.total / np.maximum(_product(s, g, "unroll") * _product(s, g, "vector"), 1.0)
    stored = s.accesses[-1].buffer_bytes
    to.size("allocated bytes", stored)
    to.size("allocated bytes x outer", stored * outer)
    to.size("allocation outer", outer)
    to.size("allocation inner", g.total / outer)
    to.size("outer product", outer)
    to.add("loops", (g.extents > 1).sum(axis=0))
    to.size("unrolled", s.unroll)


def operations_per_execution(s: Statement) -> float:
    return float(sum(s.operations.values()))


def _marked(s: Statement, mark: LoopKind) -> Array:
    found: Array = s.marks == MARKS[mark]
    return found.T


def _product(s: Statement, g: Geometry, mark: LoopKind) -> Array:
    result: Array = np.where(_marked(s, mark), g.extents, np.float32(1)).prod(axis=0)
    return result


# -------------------------------------------------------------------------------- computation
def _computation(to: Columns, s: Statement, g: Geometry, target: CpuTarget, threads: int) -> None:
    for kind in OPERATIONS:
        to.size(kind, s.operations.get(kind, 0.0) * g.total)
    places = _places(s, g)
    for mark in MARKED:
        marked = _marked(s, mark) & (g.extents > 1)
        to.add(f"{mark} loops", marked.sum(axis=0))
        to.size(f"{mark} product", np.where(marked, g.extents, np.float32(1)).prod(axis=0))
        length, at = np.zeros(to.count, np.float32), np.zeros(to.count, np.int8)
        for n in range(g.depth):
            length = np.where(marked[n], g.extents[n], length)
            mixed = np.where((at == 0) | (at == places[n]), places[n], np.int8(7))
            at = np.where(marked[n], mixed, at)
        to.size(f"{mark} length", length)
        to.one_of(f"{mark} at", at, POSITIONS)
    steps = _product(s, g, "parallel")
    bits = s.accesses[-1].element_bytes * 8
    to.size("threads", threads)
    to.size("steps per thread", steps / threads)
    to.add("imbalance", np.ceil(steps / threads) * threads / steps)
    to.add("idle threads", np.maximum(0.0, threads - steps))
    to.add("vector share", _product(s, g, "vector") * bits / target.vector_bits)
    to.add("register share", _registers(g, target))
    to.add("guarded", float(s.guarded))
    to.add("carried", float(any(s.reduces)))


def _registers(g: Geometry, target: CpuTarget) -> Array:
    """Registers that the statement's tile needs, as a share of what there is."""
    found = np.zeros(g.extents.shape[1], np.float32)
    for t in g.touched:
        if t.in_registers:
            found = found + t.buffer_bytes
    result: Array = found / (target.vector_registers * target.vector_bits / 8)
    return result


def _places(s: Statement, g: Geometry) -> Array:
    """[depth, n]: the position of each loop among those of its kind, as a number in POSITIONS."""
    found = np.zeros(g.extents.shape, np.int8)
    wide = g.extents > 1
    for reduce, first in ((False, 1), (True, 4)):
        own = [n for n in range(g.depth) if s.reduces[n] == reduce]
        for place, n in enumerate(own):
            inside = np.any(wide[own[place + 1 :]], axis=0) if place + 1 < len(own) else False
            outside = np.any(wide[own[:place]], axis=0) if place else False
            found[n] = np.where(~np.asarray(inside), first, np.where(outside, first + 1, first + 2))
    return found


# ----------------------------------------------------------------------------------- accesses
def _accesses(to: Columns, s: Statement, g: Geometry, shared: frozenset[str]) -> None:
    """The buffers that cause most traffic first."""
    tables, keys = [], []
    for t, name in zip(g.touched, _names(s)):
        table = Columns(to.count)
        lines = _access(table, t, g, name in shared)
        tables.append(table.matrix())
        keys.append(lines)
    width = 18
    stacked = np.zeros((max(BUFFERS, len(tables)), to.count, width), np.float32)
    weight = np.full((max(BUFFERS, len(tables)), to.count), -1.0, np.float32)
    for n, (found, key) in enumerate(zip(tables, keys)):
        stacked[n], weight[n] = found, key
    order = np.argsort(-weight, axis=0, kind="stable")[:BUFFERS]
    chosen = np.take_along_axis(stacked, order[:, :, None], axis=0)
    for n in range(BUFFERS):
        for column, name in enumerate(ACCESS):
            to.add(f"buffer {n} {name}", chosen[n, :, column])


def _names(s: Statement) -> list[str]:
    """The buffer of every group of accesses, in the order of the geometry."""
    found: list[tuple[str, Array]] = []
    for a in s.accesses:
        if not any(a.buffer == b and np.array_equal(a.indices, i) for b, i in found):
            found.append((a.buffer, a.indices))
    return [name for name, _ in found]


ACCESS = (
    "is read", "is written", "is both", "bytes", "distinct bytes", "lines", "distinct lines",
    "reuse loop", "reuse serial", "reuse none", "reuse distance", "reuse distance bytes",
    "reuse count", "bytes per reuse", "distinct bytes per reuse", "lines per reuse",
    "distinct lines per reuse", "stride",
)  # fmt: skip


def _access(to: Columns, t: Touched, g: Geometry, shared: bool) -> Array:
    """The columns of one buffer; how many lines it touches, which ranks buffers."""
    nbytes = g.total * (t.element_bytes * t.touches)
    distinct = t.elements[0] * t.element_bytes
    # A line is touched once per pass of the innermost loop, however long that runs within it.
    last = max(g.depth - 1, 0)
    lines = g.outer[last] * t.lines[last] * t.touches
    count, distance, far = reuse_of(t, g)
    kind = np.where(count > 1, 0, 1 if shared else 2)
    times = np.where(count > 1, count, 0.5).astype(np.float32)
    to.add("is read", float(t.writes == 0))
    to.add("is written", float(t.reads == 0))
    to.add("is both", float(t.reads > 0 and t.writes > 0))
    to.size("bytes", nbytes)
    to.size("distinct bytes", distinct)
    to.size("lines", lines)
    to.size("distinct lines", t.lines[0])
    to.one_of("reuse", kind, REUSES)
    to.size("reuse distance", distance)
    to.size("reuse distance bytes", far)
    to.size("reuse count", count)
    to.size("bytes per reuse", nbytes / times)
    to.size("distinct bytes per reuse", distinct / times)
    to.size("lines per reuse", lines / times)
    to.size("distinct lines per reuse", t.lines[0] / times)
    to.size("stride", innermost_stride(t, g))
    return np.where(t.in_registers, np.float32(0), lines)


def reuse_of(t: Touched, g: Geometry) -> tuple[Array, Array, Array]:
    """By the innermost loop along which the access stands still: its extent, and how many
    executions and bytes lie between two uses."""
    count = np.zeros(g.extents.shape[1], np.float32)
    distance, far = np.zeros_like(count), np.zeros_like(count)
    for n in reversed(range(g.depth)):
        here = (t.strides[n] == 0) & (g.extents[n] > 1) & (count == 0)
        count = np.where(here, g.extents[n], count)
        distance = np.where(here, g.inner[n + 1], distance)
        far = np.where(here, g.nbytes[n + 1], far)
    return count, distance, far


def innermost_stride(t: Touched, g: Geometry) -> Array:
    """The distance that the address moves along the innermost loop that is one."""
    found = np.zeros(g.extents.shape[1], np.float32)
    for n in range(g.depth):
        found = np.where(g.extents[n] > 1, np.abs(t.strides[n]).astype(np.float32), found)
    return found


# ---------------------------------------------------------------------------------- intensity
def _intensity(to: Columns, s: Statement, g: Geometry) -> None:
    """Operations per byte at every level, sampled evenly between one execution and all."""
    each = max(operations_per_execution(s), 1.0)
    done = np.log2(g.inner)
    intensity = np.log2(1.0 + each * g.inner / np.maximum(g.nbytes, 1.0))
    shares = np.linspace(0.0, 1.0, SAMPLES, dtype=np.float32)
    for n, found in enumerate(interpolate(done, intensity, shares[:, None] * done[0])):
        to.add(f"intensity {n}", found)


def interpolate(x: Array, y: Array, at: Array) -> Array:
    """y at given places, linear between neighbours; x falls from the first level to the last."""
    found = np.broadcast_to(y[0], at.shape)
    for n in range(len(x) - 1):
        above, below = x[n], x[n + 1]
        width = np.maximum(above - below, np.float32(1e-6))
        part = np.clip((at - below) / width, 0.0, 1.0)
        value = y[n + 1] + (y[n] - y[n + 1]) * part
        found = np.where(at <= above, value, found)
    result: Array = found
    return result
