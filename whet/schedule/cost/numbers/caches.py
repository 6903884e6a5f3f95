"""Caches and memory: what stays in them, and how long a core waits for the rest."""

from __future__ import annotations

from typing import Annotated

from whet.schedule.cost.numbers.origin import chosen, given, measured

# ------------------------------------------------------------------------------- what is kept
L1_KEPT: Annotated[float, "of the first cache", chosen("bench/gemm.py", "2026-11-16")] = 0.75
"""What tiles use meanwhile, and find there again."""
L2_KEPT: Annotated[float, "of the second cache", chosen("bench/gemm.py", "2026-11-16")] = 0.6
"""What data that is used again can count on."""
L3_KEPT: Annotated[float, "of the last cache", chosen("bench/winograd.py", "2026-11-16")] = 0.75
"""The same of the last cache."""
UNCROWDED: Annotated[float, "of a set's ways", chosen("bench/gemm.py", "2026-11-16")] = 0.75
"""What rows may take without pushing each other out; with as many more than there are ways, none
of them stays."""
WAY_BYTES: Annotated[int, "bytes", given(
    "64 sets of lines of 64 bytes: as many as a page allows to look up by address", "2026-11-15",
)] = 4096  # fmt: skip
"""One way of the first cache: addresses that agree modulo this share a set."""
PAGE_BYTES: Annotated[int, "bytes", given("the pages of x86-64 and AArch64", "2026-11-16")] = 4096
CROWDED: Annotated[float, "times as long", chosen("bench/conv_layers.py", "2026-11-15")] = 0.4
"""How much slower a staged window gets as its copy leaves less of the first cache to what streams
through."""
ROOM_TO_STREAM: Annotated[
    float, "of the first cache", chosen("bench/conv_layers.py", "2026-11-15")
] = 0.25
"""What such a copy may take without that."""

# ------------------------------------------------------------------------ what a core overlaps
IN_FLIGHT: Annotated[float, "instructions", chosen(
    "bench/model_error.py", "2026-11-15", "fewer than the 320 of Zen 4's reorder buffer",
)] = 192.0  # fmt: skip
"""How far a core looks ahead: neighbouring tiles overlap within them."""
HELD_UP: Annotated[float, "of the shorter time", chosen("bench/model_error.py", "2026-11-16")] = 0.1
"""How much things that go on at once hold each other up, at least."""
HIDDEN: Annotated[float, "of the shorter time", chosen("bench/conv_layers.py", "2026-11-15")] = 0.6
"""How much of copying a block and of computing goes on while the other one does."""
REACH_CYCLES: Annotated[float, "cycles", chosen("bench/conv_layers.py", "2026-11-15")] = 150.0
"""How far the core looks ahead in a staged window: what is longer overlaps with the rest only in
part."""
BY_TILES: Annotated[float, "times as long", measured(
    "bench/price_numbers.py", "2026-11-16",
    "prices are off by a factor of 1.13 with it, 1.32 with half of it and 1.34 with twice",
)] = 0.92  # fmt: skip
"""How long a block copied tile by tile takes."""
STALL_CYCLES: Annotated[float, "cycles per block", chosen(
    "bench/conv_layers.py", "2026-11-15", "loads wait for stores that have not reached the cache",
)] = 35.0  # fmt: skip
"""What it takes until what a block has copied can be read, unless it was copied ahead."""
SHOWN: Annotated[float, "of the arrival", chosen("bench/search.py", "2026-11-15")] = 0.35
"""The part of the time that bytes take to arrive which derived programs do not hide."""

# -------------------------------------------------------------------------------- from far away
STEADY_TILES: Annotated[int, "tiles", given(
    "so many tiles use a panel in the probes of `whet.build.cpu.kernel_probes`", "2026-11-16",
)] = 4  # fmt: skip
STREAMING: Annotated[float, "lines", chosen(
    "bench/gemm.py", "2026-11-16",
    "tiles of 4 rows and 4 vectors of 512 bits have 32, those of 9 rows and one vector 10",
)] = 16.0  # fmt: skip
"""What must be on its way from memory at once."""
STREAMED: Annotated[float, "times as fast", given(
    "a copy past the caches moves what it reads and what it writes, and does not fetch the lines "
    "first that it will write: 2 transfers instead of 3", "2026-11-15",
)] = 1.5  # fmt: skip
"""What stores past the caches make of a copy."""
SPILL: Annotated[float, "bytes per byte", chosen("bench/winograd.py", "2026-11-15")] = 0.85
"""What one core moves between its second cache and what lies behind, against what it reads."""
SCATTERED: Annotated[float, "bytes per byte", measured(
    "bench/price_numbers.py", "2026-11-16",
    "prices are off by a factor of 1.28 with it, 1.35 with half of it and 1.30 with twice",
)] = 0.75  # fmt: skip
"""What arrives from the second cache when lines do not follow each other, against what could."""
NEIGHBOURS_NEAR: Annotated[
    float, "bytes per byte", chosen("bench/conv_layers.py", "2026-11-15")
] = 0.95
"""What arrives from far when the neighbours of a line are not wanted at once, against what could,
and they are still near at their turn."""
NEIGHBOURS_LOST: Annotated[
    float, "bytes per byte", chosen("bench/conv_layers.py", "2026-11-15")
] = 0.75
"""The same when they are not."""
NEAR_CACHES: Annotated[
    int, "times the second cache", chosen("bench/conv_layers.py", "2026-11-15")
] = 4
"""How large arrays may be whose neighbours are still near."""

# ------------------------------------------------------------------------------- steps in memory
VISIT_CYCLES: Annotated[float, "cycles per run", measured(
    "bench/price_numbers.py", "2026-11-16",
    "prices are off by a factor of 1.29 with it, 1.30 with half of it and 1.33 with twice",
)] = 12.0  # fmt: skip
"""To begin reading in another page than before."""
VISIT_LINE_CYCLES: Annotated[float, "cycles per line", measured(
    "bench/price_numbers.py", "2026-11-16",
    "prices are off by a factor of 1.29 with it, 1.30 with half of it and 1.32 with twice",
)] = 5.0  # fmt: skip
"""To read a line there."""
AGAIN_CYCLES: Annotated[float, "cycles per run", chosen("bench/gemm.py", "2026-11-16")] = 2.5
"""To read a few lines in another page than those before, once they are nearby."""
SAME_PAGE: Annotated[
    float, "of the way to another page", chosen("bench/operators.py", "2026-11-15")
] = 0.3
"""What it costs to go on within a page."""
RUN_CYCLES: Annotated[float, "cycles per row", chosen("bench/operators.py", "2026-11-15")] = 34.0
"""To begin with a row in another page, in reductions that sweep over rows."""
APART: Annotated[float, "times as long", chosen("bench/operators.py", "2026-11-15")] = 1.1
"""Slow-down when every term starts in another line and often on another page."""
MANY_ROWS: Annotated[int, "rows", chosen("bench/operators.py", "2026-11-15")] = 16
"""More than the machine reads ahead side by side."""
