"""Cycles around the work itself: loops, addresses, shuffles, copies of single elements."""

from __future__ import annotations

from typing import Annotated

from whet.schedule.cost.numbers.origin import chosen, measured

# --------------------------------------------------------------------------- loops and addresses
REGISTER_TILE_CYCLES: Annotated[float, "cycles per tile", chosen("bench/gemm.py", "2026-11-15")] = (
    12.0
)
"""Around a register tile of products."""
WINDOW_TILE_CYCLES: Annotated[
    float, "cycles per tile", chosen("bench/conv_layers.py", "2026-11-15")
] = 4.0
"""Around a tile of a window, or of elements."""
SLIDING_TILE_CYCLES: Annotated[
    float, "cycles per tile", chosen("bench/conv_layers.py", "2026-11-15")
] = 3.0
"""The same where pixels are vectors, whose tiles follow each other without a border."""
SQUARE_TILE_CYCLES: Annotated[
    float, "cycles per tile", chosen("bench/elementwise.py", "2026-11-15")
] = 8.0
"""Around a square tile that is transposed in registers."""
PANEL_CYCLES: Annotated[float, "cycles per panel", chosen("bench/operators.py", "2026-11-15")] = 3.0
"""Around a panel of columns whose sums are kept in the first cache."""
PLANE_CYCLES: Annotated[float, "cycles per plane", chosen("bench/conv_layers.py", "2026-11-15")] = (
    5.0
)
"""What a plane takes besides: its weights, and the branches around its edges."""
BAND_CYCLES: Annotated[float, "cycles per band", chosen("bench/conv_layers.py", "2026-11-15")] = 6.0
"""The condition and the addresses around a band of tiles that is copied by itself."""
COPIED_ROW_CYCLES: Annotated[
    float, "cycles per row", chosen("bench/conv_layers.py", "2026-11-15")
] = 2.0
"""The condition and the addresses of a row that is copied."""
ROW_CYCLES: Annotated[float, "cycles per row", chosen("bench/elementwise.py", "2026-11-15")] = 4.0
"""Around a row that goes through stages."""
STAGE_CYCLES: Annotated[
    float, "cycles per row and stage", chosen("bench/elementwise.py", "2026-11-15")
] = 2.0
"""Around one of its stages."""
MOST_ROWS_AHEAD: Annotated[float, "rows", chosen("bench/elementwise.py", "2026-11-15")] = 4.0
"""How many rows are worked on at once at most."""
BRANCH_CYCLES: Annotated[float, "cycles per step", chosen("bench/search.py", "2026-11-15")] = 1.5
"""Of a loop that is not unrolled, in derived programs."""

# --------------------------------------------------------------------------------------- shuffles
HALVING_CYCLES: Annotated[float, "cycles", chosen("bench/elementwise.py", "2026-11-15")] = 4.0
"""One halving of a vector to combine its lanes, each of which waits for the one before."""
TRANSPOSE_CYCLES: Annotated[float, "cycles per row and round", measured(
    "bench/price_numbers.py", "2026-11-16",
    "prices are off by a factor of 1.26 with it, 1.37 with half of it and 1.31 with twice",
)] = 1.0  # fmt: skip
"""One round of shuffles that transposes a tile."""
ACROSS_CYCLES: Annotated[float, "cycles per vector", chosen("bench/operators.py", "2026-11-15")] = (
    5.0
)
"""To add up the lanes of a vector, one of many."""

# ------------------------------------------------------------------------------- single elements
SCATTER_CYCLES: Annotated[float, "cycles per lane", chosen("bench/gemm.py", "2026-11-15")] = 1.5
"""To store one lane of a vector by itself."""
GATHER_CYCLES: Annotated[float, "cycles per element", chosen("bench/gemm.py", "2026-11-15")] = 2.5
"""To pick an element under a condition, for windows that step over their image."""
ELEMENT_CYCLES: Annotated[
    float, "cycles per element", chosen("bench/operators.py", "2026-11-15")
] = 2.5
"""To copy a factor of inner products element by element."""
PACKED_CYCLES: Annotated[float, "cycles per element", chosen("bench/gemm.py", "2026-11-15")] = 0.45
"""To bring an element into a panel, where it does not lie in vectors."""
AHEAD_CYCLES: Annotated[float, "cycles per element", chosen("bench/gemm.py", "2026-11-15")] = 0.6
"""To write it out ahead of all products, and read it back."""
PANEL_COPY_CYCLES: Annotated[
    float, "cycles per element", chosen("bench/networks.py", "2026-11-15")
] = 0.5
"""To bring an element into a panel of attention."""
IN_PLACE_FELT: Annotated[float, "of the arrival", chosen("bench/gemm.py", "2026-11-15")] = 0.5
"""What products feel of reading a factor where it lies."""
ALONE_FELT: Annotated[float, "of the arrival", chosen("bench/gemm.py", "2026-11-15")] = 0.8
"""The same of a single tile, which has little to do while it waits."""
WORTH_SKIPPING: Annotated[float, "of all steps", chosen("bench/winograd.py", "2026-11-15")] = 0.88
"""Steps of loops over taps are left out where at most this part of them is needed: to ask costs
little, but not nothing."""
