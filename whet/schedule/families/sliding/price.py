"""Prices of sliding windows over vectors, for a whole population at once.

A tile is bound by its operations, its loads and stores or its dependency chains; all tiles
together by what the second cache delivers.  A row of the image arrives from there once if the
rows under the window stay in the first cache until the window has passed, and otherwise once for
every row of results that needs it.
"""

from __future__ import annotations

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.expr import elements
from whet.schedule.cost.arrival import with_weights
from whet.schedule.cost.lanes import lanes_for
from whet.schedule.cost.numbers.caches import (
    IN_FLIGHT,
    NEAR_CACHES,
    NEIGHBOURS_LOST,
    NEIGHBOURS_NEAR,
    WAY_BYTES,
)
from whet.schedule.cost.numbers.overheads import SLIDING_TILE_CYCLES
from whet.schedule.cost.numbers.vectors import (
    MISALIGNED,
    RELOADED,
    SLIDING_REGISTERS,
    STORE_SLOTS,
    STRADDLING_LINE,
)
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import (
    halvings,
    lane_step,
    operations,
    overlapped,
    reads,
    shared_out,
    traffic_cycles,
)
from whet.schedule.families.sliding.match import (
    LONGEST_SLIDING_CODE,
    RowRange,
    Sliding,
    can_align,
    code_length,
    window_axes,
    window_kinds,
)
from whet.schedule.program.accumulate import loop_kinds
from whet.schedule.space.sketch import population

NAMES = ("px", "nv", "lanes", "panels_per_step", "whole", "align")


def sliding_holes(s: Sliding, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Tiles that fit the registers, by rows of the image or by panels of channels."""
    bits = max(8, s.stage.target.dtype.bits)
    lanes = lanes_for(s.vector.extent, bits, target)
    found: list[tuple[int, ...]] = []
    for px in (1, 2, 3, 4, 5, 6, 7, 8):
        for nv in (1, 2, 4):
            crowded = px * nv > 1 and 2 * px * nv > target.vector_registers
            if px > s.width or crowded or nv * lanes > s.vector.extent:
                continue
            if px * nv > 1 and _written(s, px, nv) > LONGEST_SLIDING_CODE:
                continue
            for align in (0, 1) if can_align(s, lanes) else (0,):
                panels = -(-s.vector.extent // (nv * lanes)) + align
                shares = halvings(panels) if threads > 1 else [panels]
                found += [(px, nv, lanes, share, 0, align) for share in shares]
                found.append((px, nv, lanes, 1, 1, align))
    return population(NAMES, found)


def _written(s: Sliding, px: int, nv: int) -> int:
    """Operations on vectors in the text of the kernel."""
    axes = window_axes(s, s.reduce)
    kinds = window_kinds(s, axes, px, nv)
    terms = elements([a for a, kind in zip(axes, kinds) if kind == "unroll"])
    return code_length(s, px, nv, terms)


def sliding_costs(s: Sliding, target: CpuTarget, threads: int, holes: dict[str, Array]) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    needed = -(-s.vector.extent // (holes["nv"] * holes["lanes"]))
    chunks = -(-(needed + holes["align"]) // holes["panels_per_step"])
    outer = elements(s.outer)
    steps = outer * chunks * np.where(holes["whole"], 1, s.height)
    terms = elements(s.reduce.axes)
    crowded = holes["nv"] * (terms + holes["px"]) + SLIDING_REGISTERS > target.vector_registers
    axes = window_axes(s, s.reduce)
    sizes = zip(holes["px"].tolist(), holes["nv"].tolist())
    written = np.array([window_kinds(s, axes, *size)[0] == "unroll" for size in sizes], np.bool_)
    kept = (holes["panels_per_step"] == 1) & ~crowded & written
    shape = np.stack([*(holes[n] for n in ("px", "nv", "lanes")), kept])
    shapes, place = np.unique(shape, axis=1, return_inverse=True)
    traffic = _traffic_cycles(s, target, holes)

    facts = _Facts(s, target)
    per_panel = np.array([[facts.panel_cycles(cost, *map(int, x)) for x in shapes.T]
                          for cost in (1.0, STRADDLING_LINE)])  # fmt: skip

    def cycles(panels: Array, straddling: Array) -> Array:
        busy = outer * panels * per_panel[straddling.astype(np.int64), place.reshape(-1)]
        return overlapped(busy, traffic)

    lanes_fill_lines = holes["lanes"] * s.window.read.dtype.itemsize >= target.line_bytes
    unaligned = cycles(needed + holes["align"], (holes["align"] == 0) & lanes_fill_lines)
    total = (1 - MISALIGNED) * cycles(needed, np.zeros_like(kept)) + MISALIGNED * unaligned
    ns = shared_out(total, steps, threads, target)
    return with_weights(ns, s.task.constant_bytes, target, threads)


class _Facts:
    """Facts that are the same for all candidates of a form."""

    def __init__(self, s: Sliding, target: CpuTarget) -> None:
        self.s, self.rates = s, rates_of(target)
        self.bits = max(8, s.stage.target.dtype.bits)
        reduce, slide = s.reduce, s.columns
        self.across = elements(reduce.axes) // (1 if s.down is None else s.down.extent)
        product = reduce.kind == "sum" and operations(reduce.value) > 0
        self.per_term = operations(reduce.value) + (0.0 if product else 1.0)
        self.per_result = operations(s.stage.body)
        self.others = len(reads(reduce.value)) - 1
        self.beside = sum(lane_step(r, s.vector) != 0 for r in reads(s.stage.body))
        self.reach = slide.high - slide.low + 1
        self.shared = loop_kinds(window_axes(s, reduce))[-1] == "unroll"
        self.taps: dict[int, int] = {}
        self.slots: dict[int, tuple[float, float]] = {}

    def passes(self, lanes: int) -> tuple[float, float]:
        """Operations and loads that one on so many lanes amounts to."""
        if lanes not in self.slots:
            width = np.asarray(lanes)
            both = self.rates.passes(width, self.bits), self.rates.load_passes(width, self.bits)
            self.slots[lanes] = float(both[0]), float(both[1])
        return self.slots[lanes]

    def panel_cycles(self, straddling: float, px: int, nv: int, lanes: int, kept: int) -> float:
        """All pixels of an image along one panel of channels; weights may be `kept`."""
        return sum(x.rows * self.row_cycles(x, straddling, px, nv, lanes, kept)
                   for x in self.s.row_ranges)  # fmt: skip

    def row_cycles(
        self, span: RowRange, straddling: float, px: int, nv: int, lanes: int, kept: int
    ) -> float:
        rates, across, step = self.rates, self.across, self.s.columns.step
        passes, load_passes = self.passes(lanes)
        tiles, high = -(-self.s.width // px), span.high - span.low
        work = high * self.taps_inside(px) * self.per_term + tiles * px * self.per_result
        work *= nv * passes
        image = px * across
        if self.shared:
            image = min(image, (px - 1) * step + self.reach)
        weights = 0.0 if kept else tiles * nv * load_passes * high * self.others * across
        loads = tiles * nv * load_passes * high * image * straddling + weights
        loads += tiles * px * nv * load_passes * (STORE_SLOTS + self.beside)
        issue = max(work / rates.operations, loads / rates.loads)
        overlap = max(1.0, IN_FLIGHT * tiles / (work + loads))
        chain = rates.latency * high * across * tiles / overlap
        return max(issue, chain) + RELOADED * weights / rates.loads + SLIDING_TILE_CYCLES * tiles

    def taps_inside(self, px: int) -> int:
        """Taps of the windows of a row that lie in the image, over all its tiles."""
        if px not in self.taps:
            slide, width = self.s.columns, self.s.width
            starts = np.minimum(np.arange(-(-width // px)) * px, width - px)
            pixels = (starts[:, None] + np.arange(px)).reshape(-1, 1)
            places = pixels * slide.step + np.linspace(slide.low, slide.high, self.across)
            inside = (places >= 0) & (places < self.s.image_width)
            self.taps[px] = int(inside.sum())
        return self.taps[px]


def _traffic_cycles(s: Sliding, target: CpuTarget, holes: dict[str, Array]) -> Array:
    """Cycles for what has to come from the second cache, or from where all of it can be at best."""
    rates = rates_of(target)
    image, itemsize = s.window.read.tensor, s.window.read.dtype.itemsize
    kept = np.zeros(len(holes["px"]))
    for whole in (0, 1):
        for nv in np.unique(holes["nv"]):
            mask = (holes["whole"] == whole) & (holes["nv"] == nv)
            if mask.any():
                lanes = int(nv) * int(holes["lanes"][0])
                width = lanes if whole else s.vector.extent
                kept[mask] = _share_kept(s, target, width * itemsize)
    # What is not kept is fetched again for every row of results below.
    step = 1 if s.rows is None else s.rows.step
    high = 1 if s.down is None else s.down.extent
    again = max(0.0, high / step - 1) * (1 - kept) * image.type.nbytes
    nbytes = sum(t.type.nbytes for t in s.task.moving)
    far = traffic_cycles(s.task.moving, target)
    share = 1.0
    if far > nbytes / rates.l2_bytes:
        share = NEIGHBOURS_NEAR if nbytes <= NEAR_CACHES * target.l2_bytes else NEIGHBOURS_LOST
    arriving = np.where(holes["whole"] == 1, far / share, far)
    return np.asarray(arriving + again / rates.l2_bytes)


def _share_kept(s: Sliding, target: CpuTarget, nbytes: int) -> float:
    """The share of the lines under the window that the sets of the first cache can hold."""
    buffer = s.task.buffers[s.window.read.tensor]
    itemsize, line = s.window.read.dtype.itemsize, target.line_bytes
    strides = buffer.element_strides
    high = 1 if s.down is None else s.down.extent
    down = 0 if s.rows is None else strides[s.rows.dim] * itemsize
    across = strides[s.columns.dim] * itemsize
    if high * s.image_width * nbytes > 2 * target.l1d_bytes:
        return 0.0
    first = down * np.arange(high)[:, None] + across * np.arange(s.image_width)
    lines = (first[..., None] + np.arange(0, nbytes, line)).reshape(-1) // line
    sets = np.bincount(np.unique(lines) % (WAY_BYTES // line), minlength=WAY_BYTES // line)
    ways = target.l1d_bytes // WAY_BYTES
    return float(np.minimum(sets, ways).sum() / sets.sum())
