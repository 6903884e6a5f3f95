"""The loops around the code of threads, as the sketches of memory-bound kernels write them.

body   ->   grid b in 8: warp w in 4: lane l in 32:
              launch next                                (early trigger)
              early
              await inputs
              body
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from whet.ir.expr import Expr, Var
from whet.ir.program import Allocate, Block, Buffer, Let, Stmt
from whet.ir.threads import WARP, AwaitInputs, LaunchNext
from whet.schedule.program.loops import loop
from whet.schedule.program.triggers import AT_END, AT_START

BLOCK, RANK, WARP_NUMBER, LANE = Var("b"), Var("r"), Var("w"), Var("l")
NOWHERE: Mapping[Var, Expr] = MappingProxyType({})


def thread_number(threads: int) -> Expr:
    """The number of a thread within its block."""
    return LANE if threads == WARP else WARP_NUMBER * WARP + LANE


@dataclass(frozen=True)
class Grid:
    """The threads of a kernel: blocks, or clusters of `ranks` blocks, of so many threads."""

    blocks: int
    threads: int
    trigger: int
    ranks: int = 1

    def around(
        self, body: Sequence[Stmt], registers: Sequence[Buffer] = (),
        shared: Sequence[Buffer] = (), early: Sequence[Stmt] = (),
        positions: Mapping[Var, Expr] = NOWHERE,
    ) -> Stmt:  # fmt: skip
        """The kernel whose threads run the body, and what is `early` before inputs are awaited;
        both may use the positions.

        With several ranks, shared buffers are distributed: their first axis is the rank.
        """
        start = (LaunchNext(),) if self.trigger == AT_START else ()
        end = (LaunchNext(),) if self.trigger == AT_END else ()
        code: Block = (*start, *early, AwaitInputs(), *body, *end)
        for var, value in reversed(tuple(positions.items())):
            code = (Let(var, value, code),)
        code = _allocated(code, registers)
        lanes = loop(LANE, WARP, *code, kind="lane")
        nest: Block = (loop(WARP_NUMBER, self.threads // WARP, lanes, kind="warp"),)
        if self.ranks > 1:
            nest = (loop(RANK, self.ranks, *nest, kind="cluster"),)
        return loop(BLOCK, self.blocks, *_allocated(nest, shared), kind="grid")


def _allocated(body: Block, buffers: Sequence[Buffer]) -> Block:
    for buffer in reversed(buffers):
        body = (Allocate(buffer, body),)
    return body
