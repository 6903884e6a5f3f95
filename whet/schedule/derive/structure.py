"""The structures of a task: steps with holes, and what the holes may be."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from whet.core.types import Array
from whet.schedule.derive.finish import finish
from whet.schedule.derive.generate import sketches
from whet.schedule.derive.sizes import holes_of, value
from whet.schedule.derive.state import State
from whet.schedule.derive.trees import Band, Local, chain_from, leaves, path_to, walk
from whet.schedule.program.steps import TransformStep
from whet.tasks.task import Task

MOST_SPREAD = 4
"""Loops that may be fused into the one that is shared out to the threads."""


@dataclass(frozen=True, eq=False)
class LoopStructure:
    """A sketch with everything but its integers."""

    sketch: State
    state: State
    """The sketch with lanes, registers and unrolled loops."""

    @cached_property
    def number(self) -> int:
        """What records call it: a digest of its steps, which no other rule's addition changes."""
        steps = "\n".join(str(m.step) for m in self.state.moves)
        return zlib.crc32(steps.encode()) & 0x7FFFFFFF

    @cached_property
    def spreads(self) -> dict[str, tuple[str, ...]]:
        """Holes that say how many outer loops go to the threads, with the loops."""
        found: dict[str, tuple[str, ...]] = {}
        for root in self.state.trees:
            if isinstance(root, Band):
                outer: list[str] = []
                for band in chain_from(root):
                    if band.reduces or band.kind != "serial":
                        break
                    outer.append(band.name)
                if outer:
                    found[f"{root.name}.parallel"] = tuple(outer[:MOST_SPREAD])
        return found

    @cached_property
    def holes(self) -> tuple[str, ...]:
        """The names of all holes, in the order in which they are chosen."""
        sizes = [h for c in self.state.chains for h in c.holes]
        return (*sizes, *(h for h, _ in self.state.unrolls), *self.spreads)

    @cached_property
    def stages(self) -> tuple[frozenset[str], ...]:
        """The holes of every stage: those of the loops around one statement are of one stage, and
        stages that are tiled together are one."""
        extra = {loop: {hole} for hole, loop in self.state.unrolls}
        for hole, loops in self.spreads.items():
            for loop in loops:
                extra.setdefault(loop, set()).add(hole)
        found = [frozenset(chain.holes) for chain in self.state.chains]
        for leaf in leaves(self.state.trees):
            around = [t for t in path_to(self.state.trees, leaf) or () if isinstance(t, Band)]
            found.append(frozenset[str]().union(
                *(holes_of(b.extent) | extra.get(b.name, set()) for b in around)))  # fmt: skip
        return _joined(found)

    def steps(self, holes: Mapping[str, int]) -> tuple[TransformStep, ...]:
        """The steps of one candidate."""
        columns: dict[str, Array] = {h: np.asarray(v) for h, v in holes.items()}
        found = [
            m.step for m in self.state.moves if m.needs is None or int(value(m.needs, columns)) > 1
        ]
        for hole, loop in self.state.unrolls:
            if holes[hole]:
                found.append(TransformStep("unroll", loop=loop))
        for hole, loops in self.spreads.items():
            if holes[hole]:
                found.append(TransformStep("spread", loops=loops[: holes[hole]]))
        return tuple(found)

    @cached_property
    def scratch(self) -> tuple[str, ...]:
        """The scratch buffers in memory."""
        locals_ = [t.buffer for t in walk(self.state.trees) if isinstance(t, Local)]
        return tuple(b for b in locals_ if self.state.storage[b].scope == "memory")

    @cached_property
    def in_place(self) -> frozenset[str]:
        """Parallel holes of nests whose tiles must not overlap."""
        found = set()
        for root in self.state.trees:
            if isinstance(root, Band):
                written = {x.written.buffer for x in leaves((root,))}
                if written & self.state.in_place:
                    found.add(f"{root.name}.parallel")
        return frozenset(found)


def _joined(sets: Sequence[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """Sets that have something in common as one."""
    found: list[frozenset[str]] = []
    for one in sets:
        near = [s for s in found if s & one]
        found = [s for s in found if not s & one]
        found.append(one.union(*near))
    return tuple(s for s in found if s)


def structures(task: Task, cores: int) -> tuple[LoopStructure, ...]:
    """All structures of a task for that many cores that leave something to choose."""
    found: dict[int, LoopStructure] = {}
    for sketch in sketches(task, cores):
        made = LoopStructure(sketch, finish(sketch))
        if made.holes:
            found.setdefault(made.number, made)
    return tuple(found.values())
