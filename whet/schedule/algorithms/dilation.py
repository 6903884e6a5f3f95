"""Windows whose taps lie several positions apart, cut into tiles of neighbouring outputs.

Outputs that read an image at s + step * k are `step` interleaved rows, the phases: with
s = step * q + p, phase p reads image[step * (q + k) + p], which along q is an ordinary window.

    step 2, 7 outputs:   phase 0 is outputs 0, 2, 4, 6      phase 1 is outputs 1, 3, 5

Tiles of m outputs of a phase are numbered phase by phase in rounds: the first tile of all phases,
then the second of all; phases that are shorter than others come last, so they are missing only
at the end of the last round.  A window without gaps has one phase.

The last tile of a phase is moved back so that it ends where the phase ends, and leaves alone what
the tile before has written.  Where longer phases are just one tile, shorter ones lack its last
output: nothing is written there, and what would be read beyond the edge is read at the edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from whet.ir.expr import Axis, Expr, all_of, as_expr, call
from whet.schedule.program.loops import start_of


@dataclass(frozen=True, eq=False)
class Pair:
    """An output axis and a kernel axis: the image is read at outputs + step * kernel."""

    outputs: Axis
    kernel: Axis
    step: int = 1

    @property
    def taps(self) -> int:
        return self.kernel.extent

    @property
    def reach(self) -> int:
        """The distance of the last tap from the first."""
        return self.step * (self.taps - 1)

    @cached_property
    def lengths(self) -> tuple[int, int]:
        """Outputs of the shortest and of the longest phase."""
        return self.outputs.extent // self.step, -(-self.outputs.extent // self.step)

    @property
    def longest(self) -> int:
        return self.lengths[1]

    def tiles(self, m: int) -> int:
        """Tiles of m outputs, of all phases."""
        rounds, most = (-(-length // m) for length in self.lengths)
        return rounds * self.step + (self.outputs.extent % self.step if most > rounds else 0)

    def first(self, tile: Expr, m: int) -> Expr:
        """The first output of a tile, counted within its phase."""
        number, phase = tile // self.step, tile % self.step
        shortest, longest = self.lengths
        if shortest == longest:
            return start_of(number, m, longest)
        if longest == m:
            return as_expr(0)
        length = (self.outputs.extent - 1 - phase) // self.step + 1
        return call("min", number * m, length - m)

    def start(self, tile: Expr, m: int) -> Expr:
        """The first output of a tile."""
        return self.first(tile, m) * self.step + tile % self.step

    def read(self, tile: Expr, m: int, n: int) -> Expr:
        """The position of element n of what a tile reads."""
        position = self.start(tile, m) + n * self.step
        if n < min(m, self.lengths[0]) + self.taps - 1:
            return position
        return call("min", position, self.outputs.extent - 1 + self.reach)

    def is_ragged(self, m: int) -> bool:
        """Whether some tiles have outputs that are not to be written."""
        return any(length % m for length in self.lengths)

    def to_write(self, tile: Expr, m: int, n: int) -> Expr:
        """The condition under which output n of a tile is written."""
        shortest = self.lengths[0]
        if shortest < m:
            inside = self.start(tile, m) + n * self.step < self.outputs.extent
            return inside if n >= shortest else all_of([])
        moved = max(-length % m for length in self.lengths)
        new = tile // self.step * m <= self.first(tile, m) + n
        return new if n < moved else all_of([])
