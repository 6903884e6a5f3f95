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
        start=993, late=0, spread=0, wave=557, step=32.2, arrival=18.6, rate=296, hidden=0.653,
        reuse=1.23, near=100, store=2300, finish=102, split=456, rank=62.6, crowd=103,
    ),
    "mma": Law(
        start=7.93, late=668, spread=0.346, wave=1210, step=34.2, arrival=160, rate=4700,
        hidden=0.435, reuse=40.4, near=75.6, store=1210, finish=103, split=658, rank=47.7,
        crowd=181,
    ),
    "tf32": Law(
        start=7.36, late=662, spread=0.497, wave=1220, step=45.9, arrival=149, rate=4010,
        hidden=0.845, reuse=55.9, near=77, store=2180, finish=116, split=765, rank=53.1, crowd=197,
    ),
    "fp32x3": Law(
        start=47.2, late=775, spread=0.589, wave=1190, step=95, arrival=4.49, rate=681, hidden=0.5,
        reuse=24.1, near=42.6, store=2690, finish=114, split=947, rank=34.2, crowd=27.2,
    ),
}  # fmt: skip
"""By the name of the leaf."""
