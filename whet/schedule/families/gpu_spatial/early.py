"""What a thread reads before it computes, and keeps in registers.

    early    constants: read before the inputs are awaited, while earlier kernels still run
    first    other operands of the end: read in front of the terms, not behind them

A load that is left where its value is needed may be one more round trip to memory, behind those of
the terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from whet.ir.affine import free_symbols, substitute
from whet.ir.expr import Binary, Expr, Read, Reduce, Select, Var, as_expr, const
from whet.ir.program import Buffer, LoopKind, Stmt, Store
from whet.ir.tensor import subexpressions
from whet.schedule.program.access import map_expr
from whet.schedule.program.loops import loop

KEPT_REGISTERS = 40
"""Elements that a thread keeps, at most."""


@dataclass(frozen=True)
class Step:
    """A loop along an axis over elements of a thread; there is one of vectors at most, the last."""

    axis: Expr
    var: Var
    """The variable of the loop that reads them."""
    used: Expr
    """What counts them where they are used."""
    extent: int
    kind: LoopKind = "unroll"


@dataclass(frozen=True, eq=False)
class Kept:
    """A read whose values registers hold: one for every round of the loops that it depends on."""

    read: Read
    buffer: Buffer
    steps: tuple[Step, ...]

    @property
    def value(self) -> Read:
        """What stands for the read."""
        return Read(self.buffer, tuple(s.used for s in self.steps) or (as_expr(0),))

    def loaded(self, env: Mapping[Expr, Expr]) -> Stmt:
        """The loops that read it, given the places on all axes over the loops' variables."""
        return self._stored(substitute(self.read, dict(env)))

    def cleared(self) -> Stmt:
        """The loops that set the registers to zero."""
        return self._stored(const(0, self.buffer.dtype))

    def _stored(self, value: Expr) -> Stmt:
        places = tuple(s.var for s in self.steps) or (as_expr(0),)
        stmt: Stmt = Store(self.buffer, places, value)
        for step in reversed(self.steps):
            stmt = loop(step.var, step.extent, stmt, kind=step.kind)
        return stmt


def in_registers(e: Expr, kept: Iterable[Kept]) -> Expr:
    """An expression over what registers hold instead of the reads."""
    known: dict[Expr, Expr] = {k.read: k.value for k in kept}
    return map_expr(e, known.get)


def kept_reads(
    name: str, reads: Iterable[Read], steps: Sequence[Step], fixed: Iterable[Expr],
    room: int = KEPT_REGISTERS,
) -> list[Kept]:  # fmt: skip
    """Those of the reads that registers have room for, the small ones first.

    Reads may move with the steps and with axes whose place is `fixed` in a thread, and with
    nothing else.
    """
    places = {*fixed}
    sized: list[tuple[int, Read, tuple[Step, ...]]] = []
    for read in reads:
        moving = set(free_symbols(read)) - places
        own = tuple(s for s in steps if s.axis in moving)
        size = 1
        for step in own:
            size *= step.extent
        if moving <= {s.axis for s in own}:
            sized.append((size, read, own))
    found: list[Kept] = []
    for size, read, own in sorted(sized, key=lambda entry: entry[0]):
        if size > room:
            break
        room -= size
        shape = tuple(s.extent for s in own) or (1,)
        buffer = Buffer(f"{name}{len(found)}", shape, read.dtype, scope="register")
        found.append(Kept(read, buffer, own))
    return found


def unconditional_reads(e: Expr, chosen: Callable[[Read], bool]) -> list[Read]:
    """The chosen reads that happen whenever the expression is computed, at places that no memory
    decides."""
    found: dict[Read, None] = {}
    seen: set[Expr] = set()

    def visit(x: Expr) -> None:
        if x in seen:
            return
        seen.add(x)
        if isinstance(x, Read):
            plain = not any(isinstance(y, Read) for i in x.indices for y in subexpressions(i))
            if plain and chosen(x):
                found[x] = None
        elif isinstance(x, Select) or (isinstance(x, Binary) and x.op in ("and", "or")):
            visit(x.children()[0])
        else:
            for child in x.children():
                visit(child)

    visit(e)
    return list(found)


def reads_of_end(body: Expr, chosen: Callable[[Read], bool]) -> list[Read]:
    """The chosen reads outside reductions."""
    inside = {x for r in subexpressions(body) if isinstance(r, Reduce)
              for x in subexpressions(r.value)}  # fmt: skip
    return [r for r in unconditional_reads(body, chosen) if r not in inside]
