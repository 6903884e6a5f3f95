"""Candidates of a structure: one column of integers per hole, and which rows are legal."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.program import SCRATCH_LIMIT_BYTES
from whet.schedule.derive.sizes import value
from whet.schedule.derive.state import Chain
from whet.schedule.derive.structure import LoopStructure
from whet.schedule.derive.trees import Band, Leaf, Tree

LARGEST_INNER = 64
"""Largest tile of the innermost level (Ansor: max_innermost_split_factor)."""
MOST_COPIES = 512
"""Most statements that unrolled loops become (Ansor: auto_unroll_max_step)."""
MOST_CHAINS = 6000
"""Combinations of sizes of one loop that are drawn from."""
SMALL_TILES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32, 48, 64)
"""Innermost tiles where sizes need not divide; outside are doublings of them."""


def lanes_limit(target: CpuTarget, element_bytes: int = 4) -> int:
    return max(1, target.lanes(8 * element_bytes))


# ---------------------------------------------------------------------------------- drawing rows
@lru_cache(maxsize=4096)
def chain_table(extent: int, parts: int, overlap: bool, lanes: int) -> Array:
    """Sizes of the tiles of a loop, largest first, one row per combination.

    All that divide the extent, and with `overlap` some that do not; `lanes` is the most lanes
    that the last size may be, 0 where it is no vector.
    """
    found: set[tuple[int, ...]] = set()
    inner = _powers(min(lanes, extent)) if lanes else [0]

    def grow(chain: tuple[int, ...], left: int, exact: bool) -> None:
        if len(found) >= MOST_CHAINS:
            return
        if not left:
            if not exact or extent % chain[0] == 0:
                found.add(chain)
            return
        below = chain[0] if chain else 1
        is_inner = len(chain) == (1 if lanes else 0)
        for size in _sizes(extent, below, is_inner, exact):
            grow((size, *chain), left - 1, exact)

    for exact in (True, False) if overlap else (True,):
        for width in inner:
            if exact and lanes and extent % width:
                continue
            grow((width,) if lanes else (), parts - (1 if lanes else 0), exact)
    table = np.array(sorted(found), np.int64).reshape(len(found), parts)
    table.setflags(write=False)
    return table


def _sizes(extent: int, below: int, is_inner: bool, exact: bool) -> list[int]:
    """The sizes that a tile around tiles of size `below` may have."""
    if exact:
        found = [n for n in _divisors(extent) if n % below == 0]
    elif is_inner:
        found = [n for n in (below * m for m in SMALL_TILES) if n <= extent]
    else:
        found = [n for n in (below << m for m in range(8)) if n <= extent]
    return [n for n in found if not is_inner or n <= max(LARGEST_INNER, below)]


@lru_cache(maxsize=1024)
def _divisors(extent: int) -> tuple[int, ...]:
    return tuple(n for n in range(1, extent + 1) if extent % n == 0)


def _powers(limit: int) -> list[int]:
    return [1 << n for n in range(max(1, limit).bit_length())]


def draw(
    structure: LoopStructure, target: CpuTarget, threads: int, rows: int, rng: np.random.Generator
) -> dict[str, Array]:
    """Random rows, most of them legal."""
    columns: dict[str, Array] = {}
    most = lanes_limit(target)
    for chain in structure.state.chains:
        lanes = most if chain.has_lanes else 0
        if isinstance(chain.extent, int):
            table = chain_table(chain.extent, len(chain.holes), chain.may_overlap, lanes)
            picked = table[rng.integers(0, len(table), rows)]
        else:
            picked = _doublings(value(chain.extent, columns), chain, lanes, rows, rng)
        columns |= dict(zip(chain.holes, picked.T))
    for hole, _ in structure.state.unrolls:
        columns[hole] = rng.integers(0, 2, rows)
    for hole, loops in structure.spreads.items():
        most_loops = len(loops) if threads > 1 else 0
        columns[hole] = rng.integers(0, most_loops + 1, rows)
    return columns


def _doublings(
    extent: Array, chain: Chain, lanes: int, rows: int, rng: np.random.Generator
) -> Array:
    """Sizes within an extent that depends on other holes: powers of two, largest first."""
    extents = np.broadcast_to(extent, rows)
    limit = np.floor(np.log2(np.maximum(extents, 1)))
    picked = np.empty((rows, len(chain.holes)), np.int64)
    for n in range(len(chain.holes)):
        is_lanes = chain.has_lanes and n == len(chain.holes) - 1
        most = np.minimum(limit, np.log2(lanes)) if is_lanes else limit
        power = np.floor(rng.random(rows) * (most + 1)).astype(np.int64)
        picked[:, n] = 1 << power
        limit = np.minimum(limit, power)
    if not chain.may_overlap:
        # The largest power of two that divides keeps what is left exact.
        picked = np.minimum(picked, (extents & -extents)[:, None])
    return picked


# ------------------------------------------------------------------------------------ legal rows
def legal_rows(
    structure: LoopStructure, target: CpuTarget, threads: int, columns: Mapping[str, Array]
) -> Array:
    """Which rows are candidates: sizes that fit, registers and scratch memory that suffice."""
    first = next(iter(columns.values()))
    good: Array = np.ones(len(first), bool)
    exact: Array = np.ones(len(first), bool)
    most = lanes_limit(target)
    for chain in structure.state.chains:
        extent = np.broadcast_to(value(chain.extent, columns), len(first))
        sizes = [np.asarray(columns[h]) for h in chain.holes]
        good &= np.logical_and.reduce([s >= 1 for s in sizes])
        good &= sizes[0] <= extent
        fits = extent % np.maximum(sizes[0], 1) == 0
        if chain.may_overlap:
            exact &= fits
        else:
            good &= fits
        for large, small in pairwise(sizes):
            good &= large % np.maximum(small, 1) == 0
        if chain.has_lanes:
            last = sizes[-1]
            good &= (last <= most) & ((last & (last - 1)) == 0)
    for hole, _ in structure.state.unrolls:
        good &= (columns[hole] == 0) | (columns[hole] == 1)
    for hole, loops in structure.spreads.items():
        depth = np.asarray(columns[hole])
        good &= (depth >= 0) & (depth <= (len(loops) if threads > 1 else 0))
        if hole in structure.in_place:
            # Two threads must not add to the same elements.
            good &= exact | (depth == 0)
    rows = np.flatnonzero(good)
    if len(rows):
        chosen = {h: np.asarray(c)[rows] for h, c in columns.items()}
        good[rows] = _within_limits(structure, target, chosen, len(rows))
    return good


def _within_limits(
    structure: LoopStructure, target: CpuTarget, columns: Mapping[str, Array], rows: int
) -> Array:
    good: Array = np.ones(rows, bool)
    for name in structure.scratch:
        stored = structure.state.storage[name]
        good &= np.broadcast_to(value(stored.bytes(), columns), rows) <= SCRATCH_LIMIT_BYTES
    unrolled = {loop: hole for hole, loop in structure.state.unrolls}
    for copies, sums in _copies(structure.state.trees, columns, unrolled, np.ones(rows), target):
        good &= np.broadcast_to(copies, rows) <= MOST_COPIES
        good &= np.broadcast_to(sums, rows) <= target.vector_registers - 2
    return good


def _copies(
    trees: tuple[Tree, ...],
    columns: Mapping[str, Array],
    unrolled: Mapping[str, str],
    copies: Array,
    target: CpuTarget,
) -> list[tuple[Array, Array]]:
    """How often each statement is written, and the vectors that an update keeps in registers."""
    found: list[tuple[Array, Array]] = []
    for tree in trees:
        if isinstance(tree, Leaf):
            sums = copies if tree.role == "update" else np.ones(())
            found.append((copies, sums))
        elif isinstance(tree, Band):
            extent = value(tree.extent, columns)
            inner = copies * extent if tree.kind == "unroll" else copies
            below = _copies(tree.body, columns, unrolled, inner, target)
            if tree.name in unrolled:
                times = np.where(columns[unrolled[tree.name]] > 0, extent, 1)
                below = [(c * times, s) for c, s in below]
            found += below
        else:
            found += _copies(tree.body, columns, unrolled, copies, target)
    return found
