"""Tiles of windows whose taps lie apart: every output once, no read outside."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from whet.ir.expr import Axis, Expr
from whet.schedule.algorithms.dilation import Pair
from whet.schedule.space.levels import position


def values(e: Expr, tile: Axis) -> list[int]:
    """An expression for every tile."""
    return [int(position(e, {tile: n})) for n in range(tile.extent)]


@given(st.integers(2, 60), st.integers(1, 9), st.integers(2, 6), st.integers(2, 7))
@settings(max_examples=300, deadline=None)
def test_every_output_is_written_once_from_what_it_reads(
    extent: int, step: int, m: int, taps: int
) -> None:
    pair = Pair(Axis("s", extent), Axis("k", taps), step)
    assume(m <= pair.longest)
    tile = Axis("tile", pair.tiles(m))
    starts = values(pair.start(tile, m), tile)
    written = []
    for n in range(m):
        for at, keep in zip(starts, values(pair.to_write(tile, m, n), tile)):
            written += [at + n * step] if keep else []
    assert sorted(written) == list(range(extent))
    reads = np.array([values(pair.read(tile, m, n), tile) for n in range(m + taps - 1)])
    assert reads.min() >= 0
    assert reads.max() <= extent - 1 + step * (taps - 1)
    # What an output needs is read where it is, whatever happens at the edges.
    for n in range(m):
        kept = np.array(values(pair.to_write(tile, m, n), tile), bool)
        for k in range(taps):
            np.testing.assert_array_equal(
                reads[n + k, kept], np.array(starts)[kept] + (n + k) * step
            )


@pytest.mark.parametrize(
    ("extent", "step", "m", "starts"),
    [
        (7, 1, 3, [0, 3, 4]),
        (8, 2, 2, [0, 1, 4, 5]),
        (7, 2, 3, [0, 1, 2]),  # phases of 4 and 3: the second tile of the first is moved back
        (7, 2, 2, [0, 1, 4, 3]),
        (5, 2, 3, [0, 1]),  # phases of 3 and 2
    ],
)
def test_phases_take_turns(extent: int, step: int, m: int, starts: list[int]) -> None:
    pair = Pair(Axis("s", extent), Axis("k", 3), step)
    tile = Axis("tile", pair.tiles(m))
    assert values(pair.start(tile, m), tile) == starts
    assert pair.is_ragged(m) == (extent % step != 0 or extent // step % m != 0)
