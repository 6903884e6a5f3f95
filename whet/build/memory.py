"""The arena: one block of memory in which values share room when they are not alive together."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from whet.core.alignment import round_up
from whet.tasks.places import Storage

ENOUGH = 1.1
"""An arena of this many times the largest live set is small enough: below it, borders keep memory
of their own, which costs no time."""


@dataclass(frozen=True, eq=False)
class Arena:
    """Offsets in bytes of every storage, and the total size.

    `cleared` are the storages whose zero border must be written before their first use in
    every call, because others use their memory too.
    """

    offsets: Mapping[Storage, int]
    nbytes: int
    cleared: frozenset[Storage] = frozenset()


def plan_arena(uses: Sequence[Sequence[Storage]], *, shares_borders: bool = True) -> Arena:
    """Offsets for the storages, given which ones every step touches, in order.

    Memory with a zero border is first shared among storages of the same geometry only, so that
    zeros that are written once stay.  If that takes too much, memory is opened to all storages,
    that which saves most for the zeros to be written in every call first; unless it must not be,
    where writing zeros costs more than memory.
    """
    lives = _Lives.of(uses)
    rooms = sorted(_share_bordered(lives), key=_saving, reverse=True)
    if not shares_borders:
        return _place(lives, [], rooms)
    limit = ENOUGH * lives.largest_sum
    fewest, most = 0, len(rooms)
    while fewest < most:  # the smallest number of open rooms that is enough
        middle = (fewest + most) // 2
        if _place(lives, rooms[:middle], rooms[middle:]).nbytes <= limit:
            most = middle
        else:
            fewest = middle + 1
    return _place(lives, rooms[:fewest], rooms[fewest:])


@dataclass(frozen=True, eq=False)
class _Lives:
    """The first and the last step that touches each storage."""

    first: Mapping[Storage, int]
    last: Mapping[Storage, int]

    @staticmethod
    def of(uses: Sequence[Sequence[Storage]]) -> _Lives:
        first: dict[Storage, int] = {}
        last: dict[Storage, int] = {}
        for step, storages in enumerate(uses):
            for s in storages:
                first.setdefault(s, step)
                last[s] = step
        return _Lives(first, last)

    def apart(self, a: Storage, b: Storage) -> bool:
        return self.last[a] < self.first[b] or self.last[b] < self.first[a]

    @cached_property
    def largest_sum(self) -> int:
        """The most bytes that are alive at one step."""
        steps = max(self.last.values(), default=-1) + 1
        change = [0] * (steps + 1)
        for s, step in self.first.items():
            change[step] += round_up(s.nbytes)
            change[self.last[s] + 1] -= round_up(s.nbytes)
        alive = largest = 0
        for c in change:
            alive += c
            largest = max(largest, alive)
        return largest


Room = list[Storage]
"""Storages of one geometry that take turns."""


def _share_bordered(lives: _Lives) -> list[Room]:
    """Storages of one geometry whose lives do not overlap, grouped into rooms."""
    rooms: list[Room] = []
    bordered = [s for s in lives.first if s.geometry is not None]
    for s in sorted(bordered, key=lambda s: lives.first[s]):
        for room in rooms:
            if room[-1].geometry == s.geometry and lives.last[room[-1]] < lives.first[s]:
                room.append(s)
                break
        else:
            rooms.append([s])
    return rooms


def _saving(room: Room) -> float:
    """Bytes that opening the room saves at most, for every byte of zeros written in a call."""
    return room[0].nbytes / sum(s.geometry.zero_bytes for s in room if s.geometry is not None)


def _place(lives: _Lives, opened: Sequence[Room], closed: Sequence[Room]) -> Arena:
    """Larger storages are placed first, each at the lowest offset that is free for its whole
    life: the best greedy rule known for such strips."""
    offsets: dict[Storage, int] = {}
    base = 0
    for room in closed:
        offsets.update(dict.fromkeys(room, base))
        base += round_up(room[0].nbytes)
    end = base
    cleared = frozenset(s for room in opened for s in room)
    open_to_all = [s for s in lives.first if s not in offsets]
    placed: list[tuple[int, int, int, Storage]] = []
    for s in sorted(open_to_all, key=lambda s: (-s.nbytes, lives.first[s])):
        at, size = base, round_up(s.nbytes)
        for low, high, _, other in placed:
            if high <= at or lives.apart(s, other):
                continue
            if low >= at + size:
                break
            at = high
        offsets[s] = at
        bisect.insort(placed, (at, at + size, len(placed), s))
        end = max(end, at + size)
    return Arena(offsets, end, cleared)
