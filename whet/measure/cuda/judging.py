"""The judgement on what a kernel left in memory: whether it is right, and all of it its own.

    zone | constants | zone | inputs | zone | outputs | zone | workspace | zone

Zones have a pattern that must still be there afterwards, as must all that a kernel only reads.
Outputs and workspace begin as poison: NaN in every type that has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from whet.codegen.cuda.memory import round_up
from whet.core.types import Array
from whet.measure.checking import difference
from whet.measure.parameters import Parameter, fill, strayed, view

ZONE_BYTES = 256
ZONE = 0x5A
_READ_ONLY = ("input", "constant")

Allowance = float | Literal["exact"]
"""The error of results relative to their norm that is allowed, or none at all."""


@dataclass(frozen=True)
class Layout:
    """The places of a kernel's parameters in one piece of memory, with zones around each."""

    parameters: tuple[Parameter, ...]
    starts: tuple[int, ...]
    constant_bytes: int
    """The bytes from the beginning on that hold all constants, with their zones."""
    nbytes: int

    def bytes_of(self, number: int, memory: Array) -> Array:
        start = self.starts[number]
        return memory[start : start + self.parameters[number].nbytes]

    def base(self, number: int) -> int:
        """The place of element 0 as a kernel sees it: as aligned as memory of a GPU."""
        p = self.parameters[number]
        return self.starts[number] - p.bounds[0] * p.itemsize


def lay_out(parameters: Sequence[Parameter]) -> Layout:
    """Places for all parameters, constants first, so that they can be copied together."""
    starts: dict[int, int] = {}
    end = constant_end = 0
    for number in sorted(range(len(parameters)), key=lambda n: parameters[n].kind != "constant"):
        p = parameters[number]
        lead = -p.bounds[0] * p.itemsize
        starts[number] = round_up(end + ZONE_BYTES + lead) - lead
        end = round_up(starts[number] + p.nbytes + ZONE_BYTES)
        constant_end = end if p.kind == "constant" else constant_end
    ordered = tuple(starts[n] for n in range(len(parameters)))
    return Layout(tuple(parameters), ordered, constant_end, end)


def filled(layout: Layout, values: Mapping[int, Array]) -> Array:
    """The memory before a kernel runs; `values` are those of the parameters that it reads."""
    memory = np.full(layout.nbytes, ZONE, np.uint8)
    for number, p in enumerate(layout.parameters):
        fill(p, layout.bytes_of(number, memory), values.get(number))
    return memory


def fault(
    layout: Layout, before: Array, after: Array, expected: Mapping[int, Array], allowed: Allowance
) -> str | None:
    """The fault that the memory shows after a kernel ran; None if there is none."""
    for number, p in enumerate(layout.parameters):
        if p.kind == "output":
            found = layout.bytes_of(number, after)
            problem = wrongness(view(p, found), expected[number], allowed)
            if problem is None and strayed(p, found):
                problem = "it writes beside the elements of its output"
            if problem is not None:
                return problem
    return _strayed(layout, before, after)


def _strayed(layout: Layout, before: Array, after: Array) -> str | None:
    """Whether something was written that belongs to no output and no workspace."""
    order = sorted(range(len(layout.starts)), key=lambda n: layout.starts[n])
    end = 0
    for number in order:
        p, start = layout.parameters[number], layout.starts[number]
        if not np.array_equal(before[end:start], after[end:start]):
            return f"it writes before its {_named(p)}"
        end = start + p.nbytes
        if p.kind in _READ_ONLY and not np.array_equal(before[start:end], after[start:end]):
            return f"it writes to its {_named(p)}"
    return None if np.array_equal(before[end:], after[end:]) else "it writes behind its memory"


def _named(p: Parameter) -> str:
    return f"{p.kind} {p.dtype}{list(p.shape)}"


def wrongness(got: Array, want: Array, allowed: Allowance) -> str | None:
    """The difference between results and what is expected; None if they agree.

    Single results of long sums have no error that their type explains, so that what rounding may
    change is judged by all of them together.
    """
    if allowed == "exact" or got.dtype.kind in "iub":
        return difference(got, want, exact=allowed == "exact")
    with np.errstate(over="ignore", invalid="ignore"):
        found, wanted = got.astype(np.float64), want.astype(np.float64)
        # What the type of the results cannot hold says nothing.
        held = np.isfinite(wanted.astype(got.dtype).astype(np.float64))
    lost = held & ~np.isfinite(found)
    if lost.any():
        at = tuple(int(n) for n in np.argwhere(lost)[0])
        return (
            f"{int(np.count_nonzero(lost))} of {want.size} elements are no numbers, "
            f"the first at {list(at)}: {got[at]} instead of {want[at]}"
        )
    size = float(np.linalg.norm(wanted[held]))
    off = float(np.linalg.norm(found[held] - wanted[held])) / (size or 1.0)
    if off <= allowed:
        return None
    return f"the results are off by {off:.1e} of their norm, {allowed:.0e} is allowed"
