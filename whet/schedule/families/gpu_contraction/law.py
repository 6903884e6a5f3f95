"""The constants of the estimate, by leaf."""

from __future__ import annotations

from dataclasses import dataclass

MEASURED_RESULTS = 12544 * 64 * 4
"""Bytes of the largest results of kernels that laws were fitted to."""


@dataclass(frozen=True)
class Law:
    """Nanoseconds, or what they are divided by.

    Fitted by `bench/gpu_law.py` to kernels for 27 layers of ResNet-50 and BERT-base, about 120 of
    each layer, measured on an H200 behind themselves: those of threads as they are launched, one
    after the other (`late` and `spread` mean nothing there), those on tensor cores in both ways.
    Terms go together, so that no single one is a measurement.
    """

    start: float
    """From the launch to the first bytes, once."""
    late: float
    """What a kernel takes more that is launched only when the one in front of it has ended."""
    spread: float
    """Of the blocks of the next kernel that find room beside those of this one, how many the
    busiest processor gets on top of its share when it is their turn, because they go where there is
    room and not where there is least to do."""
    wave: float
    """The start of blocks, and of those behind others."""
    step: float
    """A barrier in every step."""
    arrival: float
    """The way of a stage into the ring; stages - 1 are under way at once."""
    rate: float
    """Multiply-adds of a processor in a nanosecond, at best."""
    hidden: float
    """Warps of a scheduler that would hide half of the latency of their instructions."""
    reuse: float
    """Multiply-adds that take as long as reading one number from shared memory."""
    near: float
    """Bytes from the second cache into a processor, in a nanosecond."""
    store: float
    """Bytes of results that all processors together write, in a nanosecond."""
    finish: float
    """For 1000 results of a tile whose sums go through shared memory."""
    split: float
    """The barriers of a cluster."""
    rank: float
    """The sums of every block of a cluster."""
    crowd: float
    """For every block of a processor beyond the first few."""


LAWS = {
    "ffma": Law(
        start=110, late=0, spread=0, wave=1320, step=77.8, arrival=48.9, rate=233, hidden=0.278,
        reuse=0.724, near=100, store=3290, finish=81.7, split=203, rank=61, crowd=52.3,
    ),
    "mma": Law(
        start=7.33, late=1080, spread=0.152, wave=861, step=1.01, arrival=232, rate=3690,
        hidden=0.145, reuse=41.6, near=66.5, store=4540, finish=172, split=267, rank=11.8,
        crowd=241,
    ),
    "tf32": Law(
        start=7.33, late=1020, spread=0.319, wave=781, step=38.9, arrival=132, rate=2070,
        hidden=0.452, reuse=36.5, near=58.9, store=5040, finish=188, split=194, rank=5.31,
        crowd=207,
    ),
    "fp32x3": Law(
        start=7.33, late=1470, spread=0.777, wave=1210, step=133, arrival=25, rate=642,
        hidden=0.35, reuse=19.2, near=53.4, store=4300, finish=120, split=574, rank=1.28,
        crowd=138,
    ),
}  # fmt: skip
"""By the name of the leaf."""
