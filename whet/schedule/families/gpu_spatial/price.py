"""Candidates of the spatial sketch of GPUs and their prices, for a whole population at once.

Counted is what one thread does: its instructions, where neighbouring outputs share loads, the cache
lines that its warp touches, and the loads that wait for each other.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from whet.core.gpu import GpuTarget
from whet.core.types import Array
from whet.ir.affine import affine
from whet.ir.expr import Axis, Expr, Read, elements
from whet.ir.threads import WARP
from whet.schedule.cost.numbers.gpus import REFILL_NS, ROUND_NS, WINDOW_NS
from whet.schedule.cost.work import addresses, form_of, lane_step, operations, reads
from whet.schedule.families.gpu_spatial.match import tiles, written_out
from whet.schedule.families.gpu_spatial.rates import (
    ADD_CYCLES,
    Work,
    kernel_ns,
    lines_of,
    nbytes_of,
    touched_bytes,
    wasted,
)
from whet.schedule.families.spatial.match import Spatial
from whet.schedule.program.triggers import AT_END, NEVER
from whet.schedule.space.sketch import Population, population

VECTOR_BYTES = 16
"""The widest load or store of a thread."""
WRITTEN_OUT = 512
"""Terms of a tile that are written out at most: compilers take long for more."""
LOADS_AT_ONCE = 4
"""Rounds of a loop whose loads compilers issue together."""
LOADED_ELEMENTS = 64
"""Elements that a thread loads without waiting until registers are free again."""
LOAD_SLOTS = 2
"""Instructions of a load, the one that finds its address included."""
THREAD_OVERHEAD = 24
"""Instructions of a thread to find its place."""


def gpu_spatial_holes(s: Spatial, target: GpuTarget, threads: int) -> Population:
    """Tiles that registers hold and compilers take, in blocks that are not mostly idle."""
    size = s.stage.target.dtype.itemsize
    pixels = 1 if s.pixels is None else s.pixels.extent
    terms = max((elements(written_out(r)) for r in s.stage.reduces), default=1)
    found: list[tuple[int, ...]] = []
    for rows, width in itertools.product((1, 2, 4, 8), (1, 2, 4, 8)):
        fits = rows <= pixels and width <= s.columns and width * size <= VECTOR_BYTES
        crowded = rows * width > 32 or rows * width * terms > WRITTEN_OUT
        if rows * width > 1 and (not fits or crowded):
            continue
        for count in block_sizes(tiles(s, rows, width)):
            found += [(rows, width, count, trigger) for trigger in (NEVER,)]
    return population(("rows", "width", "threads", "trigger"), found)


def block_sizes(positions: int) -> tuple[int, ...]:
    """The threads of a block where so many have something to do."""
    return tuple(n for n in (64, 128, 256) if n // 2 < positions) or (WARP,)


def gpu_spatial_costs(s: Spatial, target: GpuTarget, threads: int, holes: Population) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    shape = np.stack([holes["rows"], holes["width"]])
    shapes, place = np.unique(shape, axis=1, return_inverse=True)
    work = [_thread_work(s, int(rows), int(width)) for rows, width in shapes.T]
    at = place.reshape(-1)
    instructions, lines, rounds, count, nbytes, of_column, loops = (
        np.array([float(getattr(w, name)) for w in work])[at]
        for name in ("instructions", "lines", "rounds", "tiles", "nbytes", "of_column", "loops")
    )
    blocks = np.ceil(count / holes["threads"])
    present = np.minimum(count, target.processors * target.threads_per_processor)
    under_way = np.maximum(present * of_column * holes["width"] / loops, 1.0)
    far = nbytes_of([t for t in s.task.constants if t in s.task.buffers])
    nbytes = nbytes + blocks * of_column * np.minimum(holes["threads"] * holes["width"], s.columns)
    made = Work(blocks, holes["threads"], instructions, lines, nbytes, rounds)
    ns = kernel_ns(made, holes["trigger"] == AT_END, target)
    ns = ns + (WINDOW_NS if s.stage.reduces else 0.0)
    # Few threads with long sums have few loads under way, each of which comes from memory.
    return np.maximum(ns, np.where(of_column > 0, far * REFILL_NS / under_way, 0.0))


@dataclass(frozen=True)
class _ThreadWork:
    """The work of one thread, and what all of them move together."""

    tiles: int
    instructions: float
    lines: float
    """Cache lines that a warp's loads and stores touch."""
    rounds: float
    """Loads that wait for earlier ones, beyond the first."""
    nbytes: float
    of_column: float
    """Bytes of constants that only outputs of one column read, and each block anew."""
    loops: float
    """Rounds in which a thread loads them, each of which waits for the one before."""


def _thread_work(s: Spatial, rows: int, width: int) -> _ThreadWork:
    tally = _Tally(s, rows, width)
    tally.add(s.stage.body, {}, 1)
    rounds, loops = 0.0, 1.0
    chain = 0.0
    for reduce in s.stage.reduces:
        count = elements(reduce.axes)
        written = {a: a.extent for a in written_out(reduce)}
        terms = elements(tuple(written))
        combine = 3.0 if reduce.kind.startswith("arg") else 1.0
        tally.add(reduce.value, written, count / terms, combine)
        if count > terms:
            loops = max(loops, count / max(terms, LOADS_AT_ONCE))
            rounds += count / max(terms, LOADS_AT_ONCE) - 1
        refills = max(tally.elements / LOADED_ELEMENTS - 1, 0.0) * (count / terms)
        rounds += refills * REFILL_NS / ROUND_NS
        chain += ADD_CYCLES * count
    stored = s.vector is None or affine(s.stage.address).coefficient(s.vector) == 1
    tally.lines += rows * (width if stored else 4.0 * width)
    tally.instructions += THREAD_OVERHEAD + rows * (1 if tally.is_aligned(width) else width)
    instructions = max(tally.instructions, chain)
    made = nbytes_of([*s.task.outputs]) + tally.nbytes
    count = tiles(s, rows, width)
    return _ThreadWork(count, instructions, tally.lines, rounds, made, tally.of_column, loops)


class _Tally:
    """Instructions, lines and bytes of the tile of one thread."""

    def __init__(self, s: Spatial, rows: int, width: int) -> None:
        self.s, self.rows, self.width = s, rows, width
        self.instructions = self.lines = self.nbytes = self.of_column = 0.0
        self.elements = 0.0
        """Elements that are loaded in a round of the loops that are left."""
        self.constants = {s.task.buffers[t].name for t in s.task.constants if t in s.task.buffers}

    def add(self, value: Expr, window: dict[Axis, int], times: float, combine: float = 0.0) -> None:
        """Count a value for all outputs and positions of the window, so many times."""
        every = times * self.rows * self.width * elements(tuple(window))
        self.instructions += every * (operations(value) + combine)
        for read in reads(value):
            self.read(read, window, times)

    def read(self, read: Read, window: dict[Axis, int], times: float) -> None:
        s, width = self.s, np.array([self.width])
        pixels = {} if s.pixels is None else {s.pixels: self.rows}
        places = len(addresses(form_of(read), {**window, **pixels}))
        step = lane_step(read, s.vector)
        packed = step not in (0, None) and self.is_packed(read)
        vector = packed or (step == 1 and self.is_aligned(self.width, read))
        count = width if vector else np.ones_like(width)
        loads = 1 if step == 0 or vector else self.width
        lines = float(lines_of(read, 1 if packed else step, width, count)[0])
        self.elements += places * (1 if step == 0 else self.width)
        self.instructions += times * places * loads * LOAD_SLOTS
        self.lines += times * places * loads * (lines + 1)
        inner = (*window, *(a for r in s.stage.reduces for a in r.axes), *pixels)
        if packed:
            self.of_column += times * len(addresses(form_of(read), window)) * read.dtype.itemsize
        else:
            self.nbytes += touched_bytes(read) * wasted(read, s.vector, inner)

    def is_packed(self, read: Read) -> bool:
        """Whether it is a constant, which is stored with the vector axis last."""
        linear = all(isinstance(a, Axis) for a, _ in form_of(read).terms)
        return linear and read.tensor.name in self.constants and self.s.columns % self.width == 0

    def is_aligned(self, width: int, read: Read | None = None) -> bool:
        """Whether a thread's run of elements begins at a multiple of its length."""
        s = self.s
        form = affine(s.stage.address) if read is None else form_of(read)
        steps = [c for a, c in form.terms if a is not s.vector]
        return s.columns % width == 0 and not any(n % width for n in (*steps, form.constant))
