"""Loops of ordinary programs whose rounds do not depend on each other, as threads.

    for i in 2: for j in 300:                  parallel j in 300:
      out[at[i], j] = new[i, j]          ->      for i in 2: out[at[i], j] = new[i, j]

Operators that no tensor expression says have loop programs, written for one thread.  A GPU has
thousands, and one of them alone waits for memory at every access.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.ir.expr import Const, Expr, Read, Var
from whet.ir.program import Allocate, Block, Buffer, If, Let, Loop, Stmt, Store, While, walk
from whet.ir.tensor import subexpressions

_KNOWN = (Store, Loop, While, If, Let, Allocate)


def spread(stmt: Stmt) -> Stmt:
    """The statement with loops whose rounds are independent outside of all others, in parallel.

    Rounds are independent where each has a part of its own of every buffer that is written: the
    index of some axis is the loop's variable wherever the buffer is written or read.  A number that
    every round begins anew is one of its own.
    """
    numbers, loops = list[Buffer](), list[Loop]()
    body: Block = (stmt,)
    while len(body) == 1 and isinstance(around := body[0], Allocate):
        numbers.append(around.buffer)
        body = around.body
    while len(body) == 1 and isinstance(inner := body[0], Loop) and _is_plain(inner):
        loops.append(inner)
        body = inner.body
    known = all(isinstance(s, _KNOWN) for s in walk(body))  # others may write what is not seen here
    if not known or not all(_begins(number, body) for number in numbers):
        return stmt
    for number in numbers:
        body = (Allocate(number, body),)
    accesses = _accesses(body)
    free = [x for x in loops if all(_has_own_part(x.var, at) for at in accesses)]
    if not free:
        return stmt
    for loop in reversed([x for x in loops if x not in free]):
        body = (Loop(loop.var, loop.extent, body),)
    for loop in reversed(free):
        body = (Loop(loop.var, loop.extent, body, "parallel"),)
    (made,) = body
    return made


def _is_plain(loop: Loop) -> bool:
    return loop.kind == "serial" and isinstance(loop.extent, Const)


def _begins(number: Buffer, body: Block) -> bool:
    """Whether the statements write a single number before anything else is done with it."""
    if number.type.size != 1:
        return False
    for stmt in body:
        if _reads(number, stmt.expressions):
            return False
        if isinstance(stmt, Store) and stmt.buffer is number:
            return True
        if isinstance(stmt, Let):
            return _begins(number, stmt.body)
        inside = [s for block in stmt.blocks for s in walk(block)]
        if any(isinstance(s, Store) and s.buffer is number for s in inside):
            return False
        if any(_reads(number, s.expressions) for s in inside):
            return False
    return False


def _reads(buffer: Buffer, expressions: Sequence[Expr]) -> bool:
    return any(isinstance(e, Read) and e.tensor is buffer for e in subexpressions(*expressions))


def _accesses(body: Block) -> list[list[tuple[Expr, ...]]]:
    """The indices of every buffer that is written and outlives a round, wherever it is used."""
    own = {s.buffer for s in walk(body) if isinstance(s, Allocate)}
    found: dict[Buffer, list[tuple[Expr, ...]]] = {
        s.buffer: [] for s in walk(body) if isinstance(s, Store) and s.buffer not in own
    }
    for s in walk(body):
        if isinstance(s, Store) and s.buffer in found:
            found[s.buffer].append(s.indices)
        for e in subexpressions(*s.expressions):
            if isinstance(e, Read) and isinstance(e.tensor, Buffer) and e.tensor in found:
                found[e.tensor].append(e.indices)
    return list(found.values())


def _has_own_part(var: Var, places: Sequence[tuple[Expr, ...]]) -> bool:
    """Whether the index along some axis is always the variable."""
    return any(all(index is var for index in axis) for axis in zip(*places, strict=True))
