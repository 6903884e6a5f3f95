"""Watching what a kernel reads for values that its algorithm would spread over their neighbours.

    squares = x0 * x0 + x1 * x1 + ...            (what one vector of tiles reads)
    peak    = max(peak, bits of squares)         (of all tiles of a parallel step)
    if highest lane of peak >= bits of LIMIT ** 2:  alarm[0] = 1

As bits of an unsigned integer, floats that are not negative are ordered, infinity is above them
and NaN above infinity, whatever its sign.  A sum of squares is not below any of them, so nothing
from LIMIT on is missed; a product and a sum are one instruction for each value that is read.
"""

from __future__ import annotations

import struct

from whet.core.dtypes import f32, i64, u32
from whet.ir.expr import Axis, Expr, Reduce, Var, as_expr, call, const, reinterpret
from whet.ir.program import Allocate, Buffer, If, Stmt, Store
from whet.schedule.program.loops import loop

LIMIT = 2.0**16
"""Magnitudes from which on values are outliers; a tile of n values, all below LIMIT / sqrt(n), is
never taken to hold one."""
CHAINS = 4
"""Sums side by side, so that none waits for itself."""


class Watch:
    """The buffers and statements that watch vectors of f32."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.alarm = Buffer("alarm", (1,), i64)
        self.peak = Buffer("peak", (lanes,), u32, scope="register")
        self.squares = Buffer("squares", (CHAINS, lanes), f32, scope="register")
        self.count = 0

    def note(self, value: Expr, lane: Var) -> Stmt:
        """The square of a value added up, in the vector loop over `lane`."""
        at = (as_expr(self.count % CHAINS), lane)
        square = value * value
        total = square if self.count < CHAINS else self.squares[at] + square
        self.count += 1
        return Store(self.squares, at, total)

    def gather(self, lane: Var) -> Stmt:
        """The sums that were noted taken into the peak, in the same vector loop."""
        chains = min(self.count, CHAINS)
        total: Expr = self.squares[as_expr(0), lane]
        for n in range(1, chains):
            total = total + self.squares[as_expr(n), lane]
        highest = call("max", self.peak[lane], reinterpret(total, u32))
        return Store(self.peak, (lane,), highest)

    def around(self, *body: Stmt) -> Stmt:
        """Statements that note and gather, between a fresh peak and a look at it."""
        lane, axis = Var("lane"), Axis("across", self.lanes, "R")
        fresh = loop(lane, self.lanes, Store(self.peak, (lane,), const(0, u32)), kind="vector")
        (bits,) = struct.unpack("<I", struct.pack("<f", LIMIT * LIMIT))
        highest = Buffer("highest", (), u32, scope="register")
        look = Store(highest, (), Reduce("max", (axis,), self.peak[axis]))
        cry = If(highest[()] >= bits, (Store(self.alarm, (as_expr(0),), const(1, i64)),))
        return Allocate(self.peak, (fresh, *body, Allocate(highest, (look, cry))))
