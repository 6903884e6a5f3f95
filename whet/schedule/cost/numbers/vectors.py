"""Vectors and registers: loads that straddle lines, lanes that idle, registers that are taken."""

from __future__ import annotations

from typing import Annotated

from whet.schedule.cost.numbers.origin import ZEN_4_AVX2, chosen, measured

NARROW: Annotated[float, "times as long", chosen(
    "bench/operators.py", "2026-11-15", "as grouped convolutions show it, no run was kept",
)] = 1.5  # fmt: skip
"""Slow-down of vectors that fill only a part of a register."""
HALF: Annotated[float, "times as long", chosen("bench/gemm.py", "2026-11-15")] = 1.06
"""The same where whole vectors would do, but leave more lanes idle."""
TURNING_PAYS: Annotated[float, "times as many lanes", chosen("bench/gemm.py", "2026-11-15")] = 1.05
"""How much better lanes must be used along the other factor."""
CHAIN_SLACK: Annotated[float, "times the latency", measured(
    "WHET_TARGET=x86-64-v3 bench/gemm.py", "2026-11-16",
    "a tile with just enough sums to hide it (4 x 2 vectors) reaches 81 to 85 % of the peak where "
    "6 x 2 reach 90", ZEN_4_AVX2,
)] = 1.15  # fmt: skip
"""How long chains of multiply-adds take."""
MASKED_STORE_CYCLES: Annotated[float, "cycles per store", chosen(
    "WHET_TARGET=x86-64-v3 bench/conv_layers.py", "2026-11-16",
    "as processors of AMD take it; where it is cheaper, more stores of fewer lanes cost little",
    ZEN_4_AVX2,
)] = 18.0  # fmt: skip
"""What a store takes longer that leaves lanes out, without registers for masks."""
STORE_SLOTS: Annotated[float, "loads per store", chosen(
    "bench/conv_layers.py", "2026-11-15", "Zen 4 stores one vector while it loads two",
)] = 2.0  # fmt: skip
UNALIGNED: Annotated[float, "times as long", measured(
    "bench/price_numbers.py", "2026-11-16",
    "prices are off by a factor of 1.28 with it, 1.37 with half of it and 1.33 with twice",
)] = 1.06  # fmt: skip
"""Slow-down of a tile of inner products whose rows begin anywhere: vectors cross from line to
line."""
STRADDLING_ROW: Annotated[float, "loads per load", chosen("bench/conv_layers.py", "2026-11-15")] = (
    1.6
)
"""What a load of a whole line costs that begins inside of it, when a window runs along a row: some
of its taps begin where lines do."""
STRADDLING_LINE: Annotated[float, "loads per load", chosen(
    "bench/conv_layers.py", "2026-11-15", "two lines instead of one",
)] = 2.0  # fmt: skip
"""The same when all loads of an image do."""
MISALIGNED: Annotated[float, "of all images", chosen(
    "bench/networks.py", "2026-11-15", "the caller's begin inside of a cache line, whet's do not",
)] = 0.25  # fmt: skip
"""How often an image is taken to begin inside of a cache line."""
PARTING_SLOTS: Annotated[float, "loads", chosen("bench/conv_layers.py", "2026-11-15")] = 1.0
"""What parts a vector's share of even from odd columns."""
RELOADED: Annotated[float, "of a load", chosen("bench/conv_layers.py", "2026-11-15")] = 0.3
"""What a load of a weight costs that does not stay in its register, though loads have time."""
SLIDING_REGISTERS: Annotated[int, "registers", chosen("bench/conv_layers.py", "2026-11-15")] = 8
"""For what is on its way between weights and sums, in windows over vectors."""
PLANAR_REGISTERS: Annotated[int, "registers", chosen("bench/conv_layers.py", "2026-11-15")] = 4
"""The same in windows along rows."""
STAGE_REGISTERS: Annotated[int, "registers", chosen("bench/networks.py", "2026-11-15")] = 14
"""What row stages need besides the rows: constants and values on the way."""
LEAST_CHAINS: Annotated[int, "sums", chosen("bench/networks.py", "2026-11-15")] = 8
"""Sums at once in attention, if there are as many: with fewer, each waits for its last
multiply-add."""
