"""Taps that lie outside the image for a whole tile: found, left out, and priced."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.schedule.cheapest import best_tiling
from tests.schedule.windows import Windows, relative_error
from tests.targets import HOST
from whet.core.cpu import PRESETS
from whet.ir.expr import Axis, Var
from whet.schedule.families.contraction.halo import least_needed, part_needed, span
from whet.schedule.families.contraction.lower import lower_contraction
from whet.schedule.families.contraction.match import Contraction, Tiling, find_contraction
from whet.schedule.families.contraction.price import contraction_holes
from whet.schedule.space.levels import position

WIDE = PRESETS["x86-64-v4"]


def contraction(case: Windows) -> Contraction:
    found = find_contraction(case.task)
    assert found is not None
    return found


@given(st.lists(st.integers(2, 5), min_size=1, max_size=3), st.integers(1, 8), st.data())
@settings(max_examples=60, deadline=None)
def test_a_span_holds_all_positions_of_a_run(
    extents: list[int], count: int, data: st.DataObject
) -> None:
    axes = [Axis(f"a{n}", extent) for n, extent in enumerate(extents)]
    start = data.draw(st.integers(0, max(0, int(np.prod(extents)) - count)))
    run = np.arange(start, min(start + count, int(np.prod(extents))))
    first, last = Var("first"), Var("last")
    at = {first: run[0], last: run[-1]}
    for axis, places in zip(axes, np.unravel_index(run, extents)):
        low, high = (position(e, at) for e in span(axis, axes, first, last))
        assert low <= places.min()
        assert high >= places.max()
        if len(run) == 1:
            assert low == high


def test_edges_are_guarded_positions() -> None:
    c = contraction(Windows((7, 9), 8, 16, dilation=2, pad=2, batch=2))
    assert [(e.extent, e.rows.extent, e.taps.extent) for e in c.edges] == [(7, 7, 3), (9, 9, 3)]
    assert not contraction(Windows((7, 9), 8, 16, pad=0)).edges
    assert not contraction(Windows((7, 9), 8, 16, dilation=2, constant=False)).edges


def test_taps_next_to_each_other_are_one_loop_with_the_channels() -> None:
    """Neighbouring taps and channels lie in a row, so only the taps down are left out."""
    assert [e.extent for e in contraction(Windows((7, 9), 8, 16)).edges] == [7]


@pytest.mark.parametrize(
    ("case", "rows", "part"),
    [
        (Windows((6, 6), 8, 16, dilation=6, pad=6), 6, 1 / 9),
        (Windows((6, 6), 8, 16, dilation=4, pad=4), 6, (6 + 2 + 2) / 18),
        (Windows((6, 6), 8, 16, dilation=4, pad=4), 1, ((6 + 2 + 2) / 18) ** 2),
        (Windows((6, 6), 8, 16, dilation=4, pad=4), 36, 1.0),
        (Windows((9, 9), 8, 16, pad=0), 3, 1.0),
    ],
)
def test_the_part_that_is_needed(case: Windows, rows: int, part: float) -> None:
    c = contraction(case)
    assert part_needed(c.edges, c.m_axes, rows) == pytest.approx(part)


@pytest.mark.parametrize("stride", [1, 2])
def test_single_rows_need_the_least(stride: int) -> None:
    c = contraction(Windows((6, 7), 8, 16, dilation=3, pad=3, stride=stride, batch=2))
    parts = [part_needed(c.edges, c.m_axes, rows) for rows in (1, 2, 3, 6)]
    assert least_needed(c.edges) == pytest.approx(parts[0])
    assert parts == sorted(parts)
    assert parts[0] < parts[-1]


@st.composite
def padded_windows(draw: st.DrawFn) -> Windows:
    rank = draw(st.integers(1, 3))
    dilation = draw(st.integers(1, 5))
    return Windows(
        tuple(draw(st.integers(3, 8)) for _ in range(rank)), draw(st.sampled_from([3, 8])), 16,
        draw(st.integers(1, 2)), 3, dilation, draw(st.integers(1, 2)), dilation,
        border=draw(st.booleans()), epilogue=draw(st.booleans()),
    )  # fmt: skip


@given(padded_windows(), st.integers(1, 7), st.sampled_from([0, 5, 30]))
@settings(max_examples=25, deadline=None)
def test_what_is_left_out_adds_nothing(case: Windows, rows: int, terms: int) -> None:
    c = contraction(case)
    tiling = Tiling(min(rows, c.rows), 1, 8, 2, 1, terms=terms, skip=1)
    kernel = lower_contraction(c, tiling, "kernel")
    for at_end in (True, False):
        assert relative_error(case.run(kernel, HOST, at_end=at_end), case.expected) < 2e-6


@pytest.mark.parametrize("terms", [0, 4, 12])
def test_steps_that_no_tile_needs_are_not_taken(terms: int) -> None:
    """Weights that meet only zeros are nan: whoever multiplies by them shows it."""
    case = Windows((5, 5), 8, 16, dilation=5, pad=5)
    weights = case.arrays[case.w]
    middle = weights[:, :, 1, 1].copy()
    expected = case.expected.copy()
    weights[...] = np.nan
    weights[:, :, 1, 1] = middle
    for skip in (0, 1):
        tiling = Tiling(5, 1, 8, 1, 2, terms=terms, skip=skip)
        found = case.run(lower_contraction(contraction(case), tiling, "kernel"), HOST)
        assert bool(np.isnan(found).any()) != bool(skip)
    assert relative_error(found, expected) < 1e-6


def test_the_model_chooses_it_where_images_are_small() -> None:
    far = contraction(Windows((33, 33), 64, 64, dilation=24, pad=24))
    cost, tiling = best_tiling(far, WIDE, 1)
    assert tiling.skip
    assert part_needed(far.edges, far.m_axes, tiling.mr) < 0.4
    near = contraction(Windows((33, 33), 64, 64, dilation=2, pad=2))
    assert not best_tiling(near, WIDE, 1)[1].skip
    assert cost < 0.5 * best_tiling(near, WIDE, 1)[0]
    usual = contraction(Windows((7, 7), 512, 512))
    assert not contraction_holes(usual, WIDE, 1)["skip"].any()


def test_tilings_leave_nothing_out_unless_told() -> None:
    c = contraction(Windows((6, 6), 8, 16, dilation=4, pad=4))
    plain = Tiling(6, 1, 16, 1, 1)
    text = str(lower_contraction(c, plain, "k").program)
    assert text != str(lower_contraction(c, dataclasses.replace(plain, skip=1), "k").program)
    assert " if " not in text
