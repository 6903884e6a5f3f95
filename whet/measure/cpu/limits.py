"""Candidates that are not worth building: refused by looking at their program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from whet.core.cpu import CpuTarget
from whet.ir.expr import Const, Read
from whet.ir.program import (
    SCRATCH_LIMIT_BYTES,
    Allocate,
    Buffer,
    Loop,
    Program,
    Stmt,
    Store,
    While,
)
from whet.ir.tensor import subexpressions

MOST_OPERATIONS = 60_000
"""Operations after unrolling; the compiler takes seconds for more."""
MOST_STACK_BYTES = 4 * SCRATCH_LIMIT_BYTES
MOST_WORKSPACE_BYTES = 1 << 30
SPILL = 1.5
"""How many times the machine's vector registers the sums that a loop carries may take: a few that
the compiler keeps in memory cost little, many are always slower than a smaller tile."""


def over_limit(program: Program, target: CpuTarget) -> str | None:
    """Why the program is not worth building; None if it may be."""
    operations = _operations(program.body)
    if operations > MOST_OPERATIONS:
        return f"{operations} operations after unrolling, the limit is {MOST_OPERATIONS}"
    workspace = sum(b.type.nbytes for b in program.workspace)
    if workspace > MOST_WORKSPACE_BYTES:
        return f"{workspace} bytes of working memory, the limit is {MOST_WORKSPACE_BYTES}"
    stack = _peak(program.body, _stack_bytes)
    if stack > MOST_STACK_BYTES:
        return f"{stack} bytes on the stack, the limit is {MOST_STACK_BYTES}"
    carried = _carried(program.body)
    registers = _peak(program.body, lambda b: _registers(b, target) if b in carried else 0)
    if registers > SPILL * target.vector_registers:
        return f"{registers} vectors of sums, the machine has {target.vector_registers} registers"
    return None


def _operations(block: Sequence[Stmt]) -> int:
    total = 0
    for stmt in block:
        inside = sum(map(_operations, stmt.blocks))
        match stmt:
            case Store():
                total += sum(len(tuple(subexpressions(e))) for e in stmt.expressions)
            case Loop(kind="unroll", extent=Const(value=extent)):
                total += int(extent) * inside
            case _:
                total += inside
    return total


def _peak(block: Sequence[Stmt], size: Callable[[Buffer], int]) -> int:
    """The most that buffers which are alive together take."""
    peak = 0
    for stmt in block:
        own = size(stmt.buffer) if isinstance(stmt, Allocate) else 0
        peak = max(peak, own + max((_peak(b, size) for b in stmt.blocks), default=0))
    return peak


def _carried(block: Sequence[Stmt], looped: bool = False) -> set[Buffer]:
    """Registers that a loop changes again and again, so that all are alive all along."""
    found: set[Buffer] = set()
    for stmt in block:
        if isinstance(stmt, Store):
            buffer = stmt.buffer
            wanted = looped and buffer.scope == "register" and buffer not in found
            if wanted and Read(buffer, stmt.indices) in subexpressions(stmt.value):
                found.add(buffer)
        again = isinstance(stmt, While) or (isinstance(stmt, Loop) and stmt.kind == "serial")
        for inner in stmt.blocks:
            found |= _carried(inner, looped or again)
    return found


def _stack_bytes(buffer: Buffer) -> int:
    return buffer.type.nbytes if buffer.scope == "memory" else 0


def _registers(buffer: Buffer, target: CpuTarget) -> int:
    if buffer.scope != "register" or not buffer.shape:
        return 0
    *vectors, lanes = buffer.shape
    return math.prod(vectors) * -(-lanes * buffer.dtype.bits // target.vector_bits)
