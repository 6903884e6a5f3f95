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
        start=147, late=0, spread=0, wave=1250, step=72.9, arrival=47.2, rate=242, hidden=0.321,
        reuse=0.817, near=100, store=3180, finish=88.8, split=109, rank=65.5, crowd=46.2,
    ),
    "mma": Law(
        start=8.05, late=1100, spread=0.169, wave=772, step=1.14, arrival=208, rate=4220,
        hidden=0.211, reuse=48.4, near=65.5, store=3090, finish=170, split=334, rank=15.8,
        crowd=242,
    ),
    "tf32": Law(
        start=7.33, late=1020, spread=0.31, wave=755, step=33.6, arrival=134, rate=2080,
        hidden=0.455, reuse=36.8, near=58.8, store=4490, finish=187, split=233, rank=7.01,
        crowd=208,
    ),
    "fp32x3": Law(
        start=7.33, late=1460, spread=0.776, wave=1220, step=137, arrival=22.2, rate=647,
        hidden=0.353, reuse=19.3, near=53.6, store=4290, finish=119, split=598, rank=1.47,
        crowd=138,
    ),
}  # fmt: skip
"""By the name of the leaf."""
