"""Memory that belongs to one thread, and what all kinds of memory have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from whet.core.errors import fail
from whet.core.types import Array
from whet.ir.lockstep.team import Team
from whet.ir.program import Buffer, row_major

Value = Any
"""A number that all active threads agree on, or an array with one for each of them."""


class Storage(ABC):
    """The memory of one buffer, for all threads of a team."""

    def __init__(self, buffer: Buffer, team: Team) -> None:
        self.buffer, self.team = buffer, team
        self.size = math.prod(buffer.shape)
        self.steps = row_major(buffer.shape)

    @abstractmethod
    def read(self, at: Sequence[Value], ids: Array) -> Value:
        """The elements at indices that the threads `ids` give."""

    @abstractmethod
    def write(self, at: Sequence[Value], ids: Array, value: Value) -> None:
        """Makes the elements at the indices the value."""

    def position(self, at: Sequence[Value], ids: Array) -> Value:
        """The row-major position of an element within the buffer; `WH1302` if there is none."""
        position: Value = np.int64(0)
        for index, extent, step in zip(at, self.buffer.shape, self.steps, strict=True):
            outside = (index < 0) | (index >= extent)
            if outside.any():
                which, thread = self.team.offender(ids, outside)
                place = [int(i[which] if i.ndim else i) for i in at]
                fail("WH1302", f"'{self.buffer.name}' of shape {list(self.buffer.shape)} is "
                     f"accessed at {place} by {thread}")  # fmt: skip
            position = position + index * step
        return position

    def agreed(self, position: Value, ids: Array) -> int:
        """The position, for memory whose places must be known when code is generated."""
        if not position.ndim:
            return int(position)
        other = position != position[0]
        if other.any():
            _, thread = self.team.offender(ids, other)
            fail("WH1308", f"registers '{self.buffer.name}' are indexed by what differs between "
                 f"{self.team.member(ids)} and {thread}")  # fmt: skip
        return int(position[0])

    def place(self, position: int) -> str:
        """An element as text: `ring[0, 3]`."""
        indices = np.unravel_index(int(position) % max(self.size, 1), self.buffer.shape)
        return f"{self.buffer.name}[{', '.join(str(int(i)) for i in indices)}]"

    def require_written(self, written: Array, positions: Value, ids: Array) -> None:
        if not written.all():
            which, thread = self.team.offender(ids, ~written)
            at = np.broadcast_to(positions, ids.shape)[which]
            fail("WH1307", f"{self.place(at)} is read by {thread}, and nothing was written to it")


class Private(Storage):
    """Registers of every thread, or an array of its own."""

    def __init__(self, buffer: Buffer, team: Team) -> None:
        super().__init__(buffer, team)
        # Threads last: what all threads do with one register is done with a row.
        self.data: Array = np.zeros((self.size, team.size), buffer.dtype.numpy)
        self.written: Array = np.zeros((self.size, team.size), bool)

    def _cells(self, at: Sequence[Value], ids: Array) -> tuple[Value, Any]:
        position = self.position(at, ids)
        if self.buffer.scope == "register":
            position = self.agreed(position, ids)
            if self.team.is_whole(ids):
                return position, slice(None)
        return position, ids

    def read(self, at: Sequence[Value], ids: Array) -> Value:
        cells = self._cells(at, ids)
        self.require_written(self.written[cells], cells[0], ids)
        return self.data[cells].copy()

    def write(self, at: Sequence[Value], ids: Array, value: Value) -> None:
        cells = self._cells(at, ids)
        self.data[cells] = value
        self.written[cells] = True

    def transpose(self, ids: Array) -> None:
        """Swaps the two axes of a square tile."""
        self.require_written(np.logical_and.reduce(self.written[:, ids]), 0, ids)
        tile = self.data[:, ids].reshape(*self.buffer.shape, len(ids))
        self.data[:, ids] = tile.swapaxes(0, 1).reshape(self.size, len(ids))
