"""Windows: rows of a factor that overlap, as those of convolutions do.

    x[64 * (row + tap) + channel]      row 5 under tap 1 is row 6 under tap 0

What a block has read for one tap it reads again for the next, one row further.  Such copies leave
what they bring in the processor's own cache, and taps come before other channels, so that it is
still there:

    tap 0, channels 0..31 | tap 0, channels 32..63 | tap 1, channels 0..31 | ...
    ->
    tap 0, channels 0..31 | tap 1, channels 0..31 | tap 2, channels 0..31 | tap 0, channels 32..63

The second-level cache gives all processors together 5 to 7 TB/s.  Without this, tensor cores would
wait for it in convolutions of many rows and few columns, such as those of videos.  Tiles of few
rows wait for other things, and the order costs arithmetic in every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.ir.affine import affine
from whet.ir.expr import Axis, Expr, elements
from whet.schedule.families.gpu_contraction.place import Place

LEAST_ROWS = 128
"""Rows of tiles that are read this way."""


@dataclass(frozen=True, eq=False)
class Window:
    """What rows that are neighbours both read."""

    axis: Axis
    """The axis of the depth that steps from tap to tap; where a window is one run of memory, taps
    and channels are one axis."""
    shift: int
    """How much further on it the next row begins."""

    def taps_first(self, tile: Expr, depth: Sequence[Axis], bk: int, tiles: int) -> Expr:
        """The number of the tile of the depth that comes in this place, of so many.

        Tiles keep their order where a tap has only one, where they are not those of single taps,
        and where blocks that share the depth have some behind it.
        """
        *others, last = depth
        if self.axis is last:
            channels, count = self.shift, last.extent // self.shift
            whole = last.extent % self.shift == 0
        else:
            channels, count = last.extent, self.axis.extent
            whole = bool(others) and others[-1] is self.axis
        if not whole or channels % bk or channels == bk or elements(tuple(depth)) != tiles * bk:
            return tile
        per = channels // bk
        part, tap = tile // count % per, tile % count
        return (tile // (per * count) * count + tap) * per + part


def window_of(place: Place, rows: Sequence[Axis], depth: Sequence[Axis]) -> Window | None:
    """The window along the innermost axis of the depth on which neighbouring rows overlap."""
    form = affine(place.address)
    for axis in reversed(depth):
        step = form.coefficient(axis)
        for row in rows:
            stride = form.coefficient(row)
            if 0 < step <= stride < step * axis.extent and stride % step == 0:
                return Window(axis, stride // step)
    return None
