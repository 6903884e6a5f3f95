"""The stages that a group of nodes is computed in, whatever memory its values lie in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from whet.core.types import Shape
from whet.ir.expr import Reduce
from whet.ir.tensor import Compute, Tensor, stages, subexpressions
from whet.tasks.expressions import (
    canonical,
    group_tensors,
    inline_stages,
    keep_reductions_and_costly,
    nothing,
)
from whet.tasks.phases import Phase, join_phases, split_phases
from whet.tasks.rowshape import common_rows
from whet.tasks.wiring import Wiring

KNOWN = 4096
"""Groups that are remembered: some dozens of models."""


@dataclass(frozen=True, eq=False)
class Part:
    """One kernel's part of a group: all of it, or one phase of its only stage, or all phases."""

    outputs: tuple[Compute, ...]
    sources: tuple[tuple[Tensor, int], ...]
    """What it reads, and which source of the group that is."""
    starts: Shape = ()
    steps: Shape = ()
    along: Shape = ()
    """Of a phase: the elements that it computes, see `whet.tasks.phases.Phase`."""


@lru_cache(maxsize=KNOWN)
def group_parts(wiring: Wiring) -> tuple[Part, ...]:
    """The parts of a group, in the order in which they run."""
    made, read = _canonical_stages(wiring)
    if sum(isinstance(t, Compute) for t in stages(made)) > 1:
        return (Part(tuple(made), tuple(read.items())),)
    return tuple(_part(phase, read) for phase in split_phases(made[0]))


@lru_cache(maxsize=KNOWN)
def joined_part(wiring: Wiring) -> Part | None:
    """All phases of a group's only stage as one part, where that is one sum."""
    made, read = _canonical_stages(wiring)
    if sum(isinstance(t, Compute) for t in stages(made)) > 1:
        return None
    phase = join_phases(made[0])
    return None if phase is None else _part(phase, read)


def _part(phase: Phase, read: Mapping[Tensor, int]) -> Part:
    own, used = canonical([phase.stage], read)
    return Part(tuple(own), tuple(used.items()), phase.starts, phase.steps, phase.along)


def _canonical_stages(wiring: Wiring) -> tuple[list[Compute], dict[Tensor, int]]:
    """The stages of a group, and which source of it each tensor is that they read."""
    tensors, sources = group_tensors(wiring)
    inlined = inline_stages(tensors, nothing)
    shared = _shared_reductions(tensors)
    if len(tensors) > 1 or shared or _reductions(inlined) > 1 or _nested(inlined):
        inlined = inline_stages(tensors, keep_reductions_and_costly(tensors))
    return canonical(inlined, sources)


@lru_cache(maxsize=KNOWN)
def row_axes(wiring: Wiring) -> tuple[int, tuple[int, ...]] | None:
    """The number of leading axes that are rows of all stages of a group, and what it reads; None
    where stages have no common rows."""
    tensors, sources = group_tensors(wiring)
    if len(tensors) != len(wiring.outputs):
        return None
    kept = inline_stages(tensors, keep_reductions_and_costly(tensors))
    rank = common_rows([t for t in stages(kept) if isinstance(t, Compute)])
    return None if rank is None else (rank, tuple(sources.values()))


def _shared_reductions(tensors: Sequence[Compute]) -> bool:
    """True when a reduction feeds several elements: writing it into them would repeat it."""
    largest = max(t.type.size for t in tensors)
    found = [s for s in stages(tensors) if isinstance(s, Compute)]
    return any(s.type.size < largest and _reductions([s]) for s in found if s not in tensors)


def _reductions(tensors: Sequence[Compute]) -> int:
    return sum(
        isinstance(e, Reduce)
        for s in stages(tensors)
        if isinstance(s, Compute)
        for e in subexpressions(s.body)
    )


def _nested(tensors: Sequence[Compute]) -> bool:
    return any(
        isinstance(inner, Reduce)
        for s in stages(tensors)
        if isinstance(s, Compute)
        for e in subexpressions(s.body)
        if isinstance(e, Reduce)
        for inner in subexpressions(e.value)
    )
