"""Schedule primitives: pure functions from programs to programs, each checked before it acts."""

from __future__ import annotations

from collections.abc import Callable

from whet.ir.program import Program
from whet.schedule.program.primitives.caches import cache_read, cache_write
from whet.schedule.program.primitives.layouts import rewrite_layout
from whet.schedule.program.primitives.levels import decompose, spread, tile
from whet.schedule.program.primitives.loops import fission, fuse, reorder, split
from whet.schedule.program.primitives.marks import parallel, unroll, vectorize
from whet.schedule.program.primitives.naive import naive_program
from whet.schedule.program.primitives.reductions import rfactor
from whet.schedule.program.primitives.stages import compute_at, inline
from whet.schedule.program.primitives.tiles import register_tile

PRIMITIVES: dict[str, Callable[..., Program]] = {
    "split": split,
    "fuse": fuse,
    "reorder": reorder,
    "fission": fission,
    "unroll": unroll,
    "vectorize": vectorize,
    "parallel": parallel,
    "compute_at": compute_at,
    "inline": inline,
    "cache_write": cache_write,
    "cache_read": cache_read,
    "rfactor": rfactor,
    "register_tile": register_tile,
    "tile": tile,
    "decompose": decompose,
    "spread": spread,
}
"""The primitives that a trace may name; `rewrite_layout`, which also makes a constant, is apart."""

__all__ = ["PRIMITIVES", "naive_program", "rewrite_layout", *PRIMITIVES]
