"""What the threads of a row read before they compute, as long as registers hold it.

    early    constants: read before the inputs are awaited, while earlier kernels still run
    first    all else, one read behind the other, so that none waits for the stage before it

Loads that are left where stages need them are round trips to memory, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.ir.affine import free_symbols
from whet.ir.expr import Read
from whet.schedule.families.gpu_rows.match import GpuRows
from whet.schedule.program.access import reads_constants_alone

KEPT_LIMIT = 32
"""Elements of a row that a thread keeps in registers at most, of every line."""
REGISTERS = 128
"""Elements of all lines that a thread has room for."""


@dataclass(frozen=True)
class Loads:
    """Reads of inputs whose values threads keep."""

    early: tuple[Read, ...]
    first: tuple[Read, ...]

    def __contains__(self, read: object) -> bool:
        return read in self.early or read in self.first


def elements_of_thread(length: int, lanes: int, width: int) -> int:
    """The most elements that a thread has of a row."""
    return -(-length // (lanes * width)) * width


def lines_kept(r: GpuRows) -> int:
    """Lines of a row that registers hold in any case."""
    return len(r.shared) + sum(s.is_line for s in r.stages)


def loads_of(r: GpuRows, share: int) -> Loads:
    """What a thread loads beforehand, with so many elements of a row."""
    if share > KEPT_LIMIT:
        return Loads((), ())
    constant = {e for e in r.reads if reads_constants_alone(e, r.task)}
    chosen, left = set(r.shared), REGISTERS - share * lines_kept(r)
    for read in sorted(r.reads, key=lambda e: e not in constant):
        needed = share if moves(r, read) else 1
        if read not in chosen and needed <= left:
            chosen.add(read)
            left -= needed
    early = tuple(e for e in r.reads if e in chosen & constant)
    return Loads(early, tuple(e for e in r.reads if e in chosen - constant))


def moves(r: GpuRows, read: Read) -> bool:
    """Whether it is another for every element of a row."""
    return bool(free_symbols(read) & set(r.elements))
