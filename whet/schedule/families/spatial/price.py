"""Prices of spatial schedules, for a whole population at once.

A tile is bound by its operations, its loads, its dependency chains or the cache lines it touches,
whichever is slowest.  Loads that neighbouring pixels share are counted once when the reduction is
written out, as the code generator does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.affine import Affine, affine, free_symbols
from whet.ir.expr import Axis, Binary, Expr, Read, Reduce, elements
from whet.schedule.cost.arrival import with_weights
from whet.schedule.cost.lanes import lanes_for
from whet.schedule.cost.locality import distance, visit_cycles
from whet.schedule.cost.numbers.caches import APART, IN_FLIGHT, MANY_ROWS, SCATTERED
from whet.schedule.cost.numbers.overheads import SCATTER_CYCLES, WINDOW_TILE_CYCLES
from whet.schedule.cost.rates import rates_of
from whet.schedule.cost.work import (
    addresses,
    covered,
    distinct,
    form_of,
    halvings,
    lane_places,
    lane_step,
    operations,
    reads,
    shared_out,
    step_along,
    streamed_cycles,
    traffic_cycles,
)
from whet.schedule.families.spatial.match import Spatial, can_stream
from whet.schedule.program.accumulate import loop_kinds
from whet.schedule.space.sketch import population


def spatial_holes(s: Spatial, target: CpuTarget, threads: int) -> dict[str, Array]:
    """Tiles that fit the registers, and shares of the work from everything down to one tile."""
    bits = max(8, s.stage.target.dtype.bits)
    lanes = lanes_for(s.columns, bits, target)
    pixels = 1 if s.pixels is None else s.pixels.extent
    accumulators = sum(2 if r.kind.startswith("arg") else 1 for r in s.stage.reduces)
    # A result that the last cache cannot hold is not found there again.
    large = 0 < target.l3_bytes < s.stage.target.type.nbytes
    streams = (0, 1) if large and can_stream(s, lanes) else (0,)
    rows: list[tuple[int, ...]] = []
    for px in (1, 2, 3, 4, 5, 6, 7, 8):
        for nv in (4, 3, 2, 1):
            # The other half of the registers holds what the terms of a window share.
            crowded = 2 * px * nv * accumulators > target.vector_registers
            if px > pixels or nv * lanes > s.columns or (crowded and px * nv > 1):
                continue
            for stream in streams:
                tiles, panels = -(-pixels // px), -(-s.columns // (nv * lanes)) + stream
                shares = [(t, p) for t in halvings(tiles) for p in halvings(panels)]
                if threads == 1:
                    # One after the other, in either order: all columns of a tile, or of a panel.
                    shares = list(dict.fromkeys([(tiles, panels), (tiles, 1)]))
                rows += [(px, nv, lanes, *share, stream) for share in shares]
    names = ("px", "nv", "lanes", "tiles_per_step", "panels_per_step", "stream")
    columns = population(names, rows)
    if len(streams) == 1:
        del columns["stream"]
    return columns


def spatial_costs(s: Spatial, target: CpuTarget, threads: int, holes: dict[str, Array]) -> Array:
    """Estimated nanoseconds for every row of the holes."""
    px, nv, lanes = holes["px"], holes["nv"], holes["lanes"]
    pixels = 1 if s.pixels is None else s.pixels.extent
    stream = holes.get("stream", np.zeros_like(px))
    tiles, panels = -(-pixels // px), -(-s.columns // (nv * lanes)) + stream
    outer = elements(s.outer)
    steps = outer * -(-tiles // holes["tiles_per_step"]) * -(-panels // holes["panels_per_step"])
    count = steps * holes["tiles_per_step"] * holes["panels_per_step"]
    # The weights of a panel stay in registers from tile to tile.
    kept = (holes["panels_per_step"] == 1) & (holes["tiles_per_step"] > 1)
    shapes, place = np.unique(np.stack([px, nv, lanes, kept]), axis=1, return_inverse=True)
    per_tile = _tile_cycles(s, target, _Tiles(shapes[0], shapes[1], shapes[2], shapes[3] > 0))
    moving = s.task.moving
    traffic = np.where(stream, streamed_cycles(moving, target), traffic_cycles(moving, target))
    cycles = np.maximum(count * per_tile[place.reshape(-1)], traffic)
    ns = shared_out(cycles, steps, threads, target)
    return with_weights(ns, s.task.constant_bytes, target, threads)


@dataclass(frozen=True, eq=False)
class _Tiles:
    """Tiles of px pixels and nv vectors; `kept` where they find their weights loaded."""

    px: Array
    nv: Array
    lanes: Array
    kept: Array

    @property
    def width(self) -> Array:
        return self.nv * self.lanes

    @property
    def sizes(self) -> list[int]:
        """The numbers of pixels that occur."""
        return [int(px) for px in np.unique(self.px)]

    def by_pixels(self, numbers: Mapping[int, int]) -> Array:
        """A number that depends on the pixels of a tile alone."""
        return np.array([numbers[px] for px in map(int, self.px)], np.float64)


def _tile_cycles(s: Spatial, target: CpuTarget, tiles: _Tiles) -> Array:
    """Cycles of one tile of each kind."""
    epilogue = _Tally(s, target, tiles, tiles.kept)
    epilogue.add(s.stage.body, {})
    stored = affine(s.stage.address).coefficient(s.vector) if s.vector is not None else 1
    # Results that are no neighbours are stored one by one.
    near = (tiles.lanes == 1) | (stored == 1)
    stores = np.where(near, epilogue.passes, SCATTER_CYCLES * tiles.lanes)
    cycles = np.maximum(epilogue.cycles(), stores * tiles.px * tiles.nv) + WINDOW_TILE_CYCLES
    for reduce in s.stage.reduces:
        cycles = cycles + _reduction_cycles(s, target, reduce, tiles)
    return cycles


def _reduction_cycles(s: Spatial, target: CpuTarget, reduce: Reduce, tiles: _Tiles) -> Array:
    count = elements(reduce.axes)
    few = tiles.nv * count <= target.vector_registers // 2
    tally = _Tally(s, target, tiles, tiles.kept & few)
    apart = np.where(_steps_over(s, reduce, tiles.width), APART, 1.0)
    combine = 3.0 if reduce.kind.startswith("arg") else 1.0
    written = {a: a.extent for a, kind in zip(reduce.axes, loop_kinds(reduce.axes))
               if kind == "unroll"}  # fmt: skip
    terms = elements(tuple(written))
    tally.add(reduce.value, written, combine)
    visits = count * _visits(s, target, reduce, tiles)
    if terms == count:
        overlap = np.maximum(1.0, IN_FLIGHT / (tally.operations + tally.loads))
        cycles = np.maximum(apart * tally.cycles(), tally.rates.latency * count / overlap)
        # What a few terms read goes on where the tile before ended.
        return cycles + (visits if count >= MANY_ROWS else 0.0)
    # One step of the loop after the other: chains cannot overlap.
    cycles = np.maximum(apart * tally.cycles(), tally.rates.latency * terms) + 1.0
    return count / terms * cycles + visits


def _visits(s: Spatial, target: CpuTarget, reduce: Reduce, tiles: _Tiles) -> Array:
    """Cycles that a term waits for the lines that it steps to, where they are read once and no
    cache of the core's own holds all of them."""
    total = np.zeros(len(tiles.px))
    for read in reads(reduce.value):
        known = free_symbols(read)
        times = elements([a for a in (*s.stage.axes, *reduce.axes) if a in known])
        far = read.tensor.type.nbytes > target.l2_bytes and times <= read.tensor.type.size
        if not far or lane_step(read, s.vector) != 1:
            continue
        form, size = form_of(read), read.dtype.itemsize
        steps = [abs(form.coefficient(k)) for k in reduce.axes]
        step = min((n for n in steps if n), default=0)
        lines = np.ceil(tiles.width * size / target.line_bytes)
        places = tiles.by_pixels({px: distinct(form, _pixels(s, px)) for px in tiles.sizes})
        waits = places * distance(step * size) * visit_cycles(lines)
        total += np.where(step > tiles.width, waits, 0.0)
    return total


def _pixels(s: Spatial, px: int) -> dict[Axis, int]:
    return {} if s.pixels is None else {s.pixels: px}


def _steps_over(s: Spatial, reduce: Reduce, width: Array) -> Array:
    """Tiles in which the vectors of one term do not follow those of the term before."""
    moves = any(
        lane_step(read, s.vector) != 0 and any(a in free_symbols(read) for a in reduce.axes)
        for read in reads(reduce.value)
    )
    return (s.columns > width) & moves


class _Tally:
    """Operations, loads and bytes of tiles."""

    def __init__(self, s: Spatial, target: CpuTarget, tiles: _Tiles, kept: Array) -> None:
        self.s, self.target, self.tiles, self.kept = s, target, tiles, kept
        bits = max(8, s.stage.target.dtype.bits)
        self.rates = rates_of(target)
        self.passes = self.rates.passes(tiles.lanes, bits)
        self.load_passes = self.rates.load_passes(tiles.lanes, bits)
        self.operations = np.zeros(len(tiles.px))
        self.loads, self.bytes = self.operations.copy(), self.operations.copy()
        self.constants = {s.task.buffers[t].name for t in s.task.constants if t in s.task.buffers}

    def add(self, value: Expr, window: dict[Axis, int], combine: float = 0.0) -> None:
        """Count a value for all pixels, vectors and positions of the window."""
        positions = elements(tuple(window))
        every = self.tiles.px * self.tiles.nv * positions * self.passes
        product = 1.0 if combine and _multiplies(value) else 0.0  # fused with the sum
        self.operations += every * (operations(value) + combine - product)
        for read in reads(value):
            self.read(read, window)

    def read(self, read: Read, window: dict[Axis, int]) -> None:
        form, nv, lanes = form_of(read), self.tiles.nv, self.tiles.lanes
        held = self.is_stored_to_fit(read) and not self.moves_within_step(form)
        again = ~self.kept if held else np.ones(len(nv), bool)
        count, area = self.addresses(form, window)
        places = again * count
        step = lane_step(read, self.s.vector)
        if step == 0:
            self.loads += places
            return
        size = read.dtype.itemsize
        if step == 1 or self.is_stored_to_fit(read):
            self.loads += places * nv * self.load_passes
            self.bytes += again * area * size
            return
        if step in (-2, -1, 2):
            # Two vectors that overlap or follow each other, and one shuffle.
            self.loads += places * nv * 2 * self.load_passes
            self.operations += places * nv * self.passes
            self.bytes += places * nv * 2 * lanes * size
            return
        known = {n: lane_places(read, self.s.vector, n) for n in map(int, np.unique(lanes))}
        apart = np.array([known[n] for n in map(int, lanes)])
        self.loads += places * nv * apart
        # Few elements that groups of lanes share are shuffled into place; else lanes are gathered
        # one by one, each from a line that neighbouring pixels may share.
        shuffled = apart < lanes
        near = self.s.pixels is not None and form.coefficient(self.s.pixels) in (0, 1)
        lines = places / self.tiles.px if near else places
        gathered = lines * nv * lanes * self.target.line_bytes
        self.operations += places * nv * np.where(shuffled, 2, lanes * 2)
        self.bytes += np.where(shuffled, places * nv * lanes * size, gathered)

    def addresses(self, form: Affine, window: dict[Axis, int]) -> tuple[Array, Array]:
        """How many addresses each tile reads from, and the elements that its vectors cover."""
        px, width = self.tiles.px, self.tiles.width
        one = addresses(form, window)
        step = 0 if self.s.pixels is None else step_along(form, self.s.pixels)
        if step == 0:
            return np.full(len(px), len(one)), covered(one, width)
        if step > one[-1]:  # every pixel has a place of its own
            inside = covered(one, width) - width
            between = np.minimum(step - one[-1], width)
            return px * len(one), px * inside + (px - 1) * between + width
        count, area = np.zeros(len(px), np.int64), np.zeros(len(px), np.int64)
        for n in self.tiles.sizes:
            rows, found = px == n, addresses(form, {**window, **_pixels(self.s, n)})
            count[rows], area[rows] = len(found), covered(found, width[rows])
        return count, area

    def moves_within_step(self, form: Affine) -> bool:
        return self.s.pixels is not None and form.coefficient(self.s.pixels) != 0

    def is_stored_to_fit(self, read: Read) -> bool:
        """Constants are stored with the vector axis last."""
        form = form_of(read)
        linear = all(isinstance(a, Axis) for a, _ in form.terms)
        return linear and read.tensor.name in self.constants

    def cycles(self) -> Array:
        issue = np.maximum(self.operations / self.rates.operations, self.loads / self.rates.loads)
        return np.maximum(issue, self.bytes / (SCATTERED * self.rates.l2_bytes))


def _multiplies(value: Expr) -> bool:
    return isinstance(value, Binary) and value.op == "mul" and bool(free_symbols(value))
