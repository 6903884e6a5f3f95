"""The arena: one block of memory in which values share room when they are not alive together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.build.placement import Storage

ALIGNMENT = 64


@dataclass(frozen=True, eq=False)
class Arena:
    """Offsets in bytes of every storage, and the total size."""

    offsets: Mapping[Storage, int]
    nbytes: int


def plan_arena(uses: Sequence[Sequence[Storage]]) -> Arena:
    """Offsets for the storages, given which ones every step touches, in order.

    A storage lives from the first step that touches it to the last.  Larger ones are placed
    first, each at the lowest offset that is free for its whole life (best known greedy rule
    for such strips).  Memory with a zero border must keep its zeros, which are written once
    when the arena is made, so it is shared only with storages of the same geometry.
    """
    first: dict[Storage, int] = {}
    last: dict[Storage, int] = {}
    for step, storages in enumerate(uses):
        for s in storages:
            first.setdefault(s, step)
            last[s] = step
    rooms = _share_bordered([s for s in first if s.geometry is not None], first, last)
    offsets: dict[Storage, int] = {}
    end = 0
    for members in rooms:
        for s in members:
            offsets[s] = end
        end += _aligned(members[0].nbytes)
    base = end
    placed: list[tuple[int, int, Storage]] = []
    plain = [s for s in first if s.geometry is None]
    for s in sorted(plain, key=lambda s: (-s.nbytes, first[s])):
        at = base
        size = _aligned(s.nbytes)
        for low, high, other in sorted(placed, key=lambda p: p[0]):
            apart = last[other] < first[s] or last[s] < first[other]
            if apart or high <= at:
                continue
            if low >= at + size:
                break
            at = high
        offsets[s] = at
        placed.append((at, at + size, s))
        end = max(end, at + size)
    return Arena(offsets, end)


def _share_bordered(
    storages: Sequence[Storage], first: Mapping[Storage, int], last: Mapping[Storage, int]
) -> list[list[Storage]]:
    """Storages of one geometry whose lives do not overlap, grouped into rooms."""
    rooms: list[list[Storage]] = []
    for s in sorted(storages, key=lambda s: first[s]):
        for room in rooms:
            if room[-1].geometry == s.geometry and last[room[-1]] < first[s]:
                room.append(s)
                break
        else:
            rooms.append([s])
    return rooms


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
