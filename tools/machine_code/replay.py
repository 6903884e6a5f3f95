"""One warp on its way through the code of a kernel: what it runs, and what it waits for.

Latencies are assumed: those of arithmetic and shared memory are known within a few cycles, that of
memory is the second cache's.  Copies in the background have arrived when they are waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tools.machine_code.sass import NO_BARRIER, Code, Instruction

LATENCIES = {
    "S2R": 25, "S2UR": 30, "LDC": 38, "LDS": 30, "LDSM": 33, "LDG": 500, "LD": 200, "MUFU": 22,
    "HMMA": 18, "I2F": 20, "SHFL": 24, "ULDC": 12, "F2F": 20, "F2FP": 6, "ATOMS": 60, "R2UR": 12,
}  # fmt: skip
"""Cycles until a result is there; of `LD`, from another block of a cluster."""
OTHERS = 30
"""Cycles of results that are announced and not listed."""
READING = 14
"""Cycles until operands in registers have been read."""
ADDED = {"BAR": 25, "MEMBAR": 150, "UCGABAR_WAIT": 190}
"""Cycles of barriers and fences, with all others already there."""
BRANCH = 6
MOST = 200_000
"""Instructions of a way, at most."""


@dataclass(frozen=True)
class Way:
    """What a warp runs, in order, with the cycle that each instruction begins in."""

    code: Code
    numbers: tuple[int, ...]
    begins: tuple[int, ...]

    @property
    def last_store(self) -> int:
        """The cycle of the last store to memory."""
        return max((t for n, t in self._with("STG")), default=self.begins[-1])

    @property
    def inputs_awaited(self) -> int:
        """The cycle in which inputs have been awaited: 0 where they are not."""
        return max((t for n, t in self._with("ACQBULK")), default=0)

    def counts(self) -> Counter[str]:
        return Counter(self.code[n].operation for n in self.numbers if self.code[n].runs)

    def _with(self, operation: str) -> Iterator[tuple[int, int]]:
        pairs = zip(self.numbers, self.begins)
        return ((n, t) for n, t in pairs if self.code[n].operation == operation)


def way(code: Code, operation: str = "", times: int = 0) -> Way:
    """The way of a warp that takes no branch forward under a condition.

    Loops with instructions of a kind run as often as makes `times` of these in all; others, of
    whose rounds the code says nothing, once.
    """
    rounds = _rounds(code, operation, times)
    numbers: list[int] = []
    left: dict[int, int] = {}
    at = 0
    while at < len(code) and len(numbers) < MOST:
        numbers.append(at)
        here, target = code[at], code[at].target
        if here.operation == "EXIT" and not here.guard:
            break
        if here.operation != "BRA" or target is None or not here.runs:
            at += 1
        elif target > at:
            at = at + 1 if here.guard else target
        elif target == at:
            break  # behind the end
        else:
            left[at] = left.get(at, rounds.get(at, 1)) - 1
            at = target if left[at] > 0 else at + 1
    return Way(code, tuple(numbers), tuple(_begins(code, numbers)))


def _rounds(code: Code, operation: str, times: int) -> dict[int, int]:
    """Rounds of the outermost loop with the operation, by its branch back."""
    loops = [
        (i.target, n) for n, i in enumerate(code)
        if i.operation == "BRA" and i.target is not None and i.target < n
    ]  # fmt: skip
    wanted = [n for n, i in enumerate(code) if operation and i.operation == operation]
    inside = {
        (first, last): sum(first <= n <= last for n in wanted) for first, last in loops
    }  # fmt: skip
    best = max(inside, key=lambda span: inside[span], default=None)
    if best is None or not inside[best]:
        return {}
    outside = len(wanted) - inside[best]
    return {best[1]: max(round((times - outside) / inside[best]), 1)}


def _begins(code: Code, numbers: list[int]) -> Iterator[int]:
    clock, barriers = 0, [0] * (NO_BARRIER + 1)
    for n in numbers:
        here = code[n]
        clock = max([clock, *(barriers[b] for b in here.waits)])
        yield clock
        if here.runs:
            _announce(here, clock, barriers)
            clock += ADDED.get(here.operation, 0)
            clock += BRANCH if here.target is not None else 0
        clock += max(here.stall, 1)


def _announce(here: Instruction, clock: int, barriers: list[int]) -> None:
    if here.gives != NO_BARRIER and here.operation != "LDGDEPBAR":
        done = clock + LATENCIES.get(here.operation, OTHERS)
        barriers[here.gives] = max(barriers[here.gives], done)
    if here.frees != NO_BARRIER:
        barriers[here.frees] = max(barriers[here.frees], clock + READING)
