"""Memory that threads share: that of blocks and clusters, and the parameters of the program."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from whet.core.errors import fail
from whet.core.types import Array
from whet.ir.lockstep.history import History
from whet.ir.lockstep.storage import Storage, Value
from whet.ir.lockstep.team import SAME_BLOCK, SAME_CLUSTER, SAME_THREAD, Team
from whet.ir.program import Buffer


class Common(Storage):
    """Cells in a row, each with the history of its accesses.

    Cells that a copy under way will fill are `arriving`; those that it takes from are `lent`, to
    so many copies.
    """

    def __init__(
        self, buffer: Buffer, team: Team, data: Array, written: Array, history: History
    ) -> None:
        super().__init__(buffer, team)
        self.data, self.written, self.history = data, written, history
        self.arriving: Array = np.zeros(0, bool)
        self.lent: Array = np.zeros(0, np.int64)

    def lend(self, cells: Array, copies: int) -> None:
        if not self.lent.size:
            self.lent = np.zeros(len(self.data), np.int64)
        np.add.at(self.lent, cells, copies)

    def expect(self, cells: Array, *, arriving: bool) -> None:
        if not self.arriving.size:
            self.arriving = np.zeros(len(self.data), bool)
        self.arriving[cells] = arriving

    def read_cells(self, cells: Array, ids: Array, shared_by: int = SAME_THREAD) -> Array:
        self._refuse_arriving(cells, ids, "read")
        self.require_written(self.written[cells], cells, ids)
        self.history.read(self, cells, ids, shared_by)
        return self.data[cells]

    def write_cells(self, cells: Array, ids: Array, value: Value) -> None:
        self.claim(cells, ids)
        self.data[cells] = value

    def claim(self, cells: Array, ids: Array) -> None:
        """Notes writes of cells that no two threads may write."""
        self.require_free(cells, ids)
        collided = self.history.write(self, cells, ids)
        if collided.any():
            self.history.refuse_collision(self, cells, ids, collided)
        self.written[cells] = True

    def require_free(self, cells: Array, ids: Array) -> None:
        """`WH1306` if a copy under way needs the cells."""
        self._refuse_arriving(cells, ids, "written")
        if self.lent.size and (taken := self.lent[cells] > 0).any():
            which, thread = self.team.offender(ids, taken)
            fail("WH1306", f"{self.place(cells[which])} is written by {thread} while a copy from "
                 "it is under way")  # fmt: skip

    def _refuse_arriving(self, cells: Array, ids: Array, done: str) -> None:
        if self.arriving.size and (early := self.arriving[cells]).any():
            which, thread = self.team.offender(ids, early)
            copier = self.team.name(self.history.writer[cells[which]])
            fail("WH1307", f"{self.place(cells[which])} is {done} by {thread} while the copy to "
                 f"it by {copier} is under way")  # fmt: skip


class Shared(Common):
    """A buffer of every block, or one whose parts the blocks of a cluster have."""

    def __init__(self, buffer: Buffer, team: Team, *, distributed: bool) -> None:
        owner = team.cluster if distributed else team.block
        count = team.clusters * (1 if distributed else team.ranks)
        cells = count * math.prod(buffer.shape)
        data = np.zeros(cells, buffer.dtype.numpy)
        super().__init__(buffer, team, data, np.zeros(cells, bool), History(cells, SAME_CLUSTER))
        self.first: Array = owner * self.size
        """The first cell that a thread sees."""
        self.distributed = distributed
        self.read_afar: Array = np.full(team.clusters, -1)
        """The time at which a block of the cluster last read the part of another one."""
        if distributed and buffer.shape[0] != team.ranks:
            fail("WH1308", f"'{buffer.name}' has {buffer.shape[0]} parts for {team.ranks} blocks")

    def cells(self, at: Sequence[Value], ids: Array) -> Array:
        return self.first[ids] + self.position(at, ids)

    def read(self, at: Sequence[Value], ids: Array) -> Value:
        cells = self.cells(at, ids)
        if self.distributed:
            afar = ids[np.broadcast_to(at[0] != self.team.rank[ids], ids.shape)]
            self.read_afar[self.team.cluster[afar]] = self.team.clock
        return self.read_cells(cells, ids)

    def write(self, at: Sequence[Value], ids: Array, value: Value) -> None:
        self.require_own(at, ids, "written")
        self.write_cells(self.cells(at, ids), ids, value)

    def require_own(self, at: Sequence[Value], ids: Array, done: str) -> None:
        """`WH1308` if a thread accesses the part of another block."""
        if self.distributed and (other := at[0] != self.team.rank[ids]).any():
            which, thread = self.team.offender(ids, other)
            part = np.broadcast_to(at[0], ids.shape)[which]
            fail("WH1308", f"part {part} of '{self.buffer.name}' is {done} by {thread}, though it "
                 "belongs to another block")  # fmt: skip

    def finish(self) -> None:
        """`WH1306` if a block may end while another one reads its part."""
        synced = self.team.synced[SAME_CLUSTER, :: self.team.cluster_size]
        if (self.read_afar >= synced).any():
            fail("WH1306", f"parts of '{self.buffer.name}' are read by other blocks with no "
                 "barrier of the cluster behind it: their block may have ended")  # fmt: skip


class Region:
    """A parameter of the program: what it holds outlives kernels."""

    def __init__(self, buffer: Buffer, array: Array | None, *, constant: bool = False) -> None:
        self.buffer, self.constant = buffer, constant
        self.is_input = array is not None
        if array is None:
            array = poison(buffer)
        assert array.shape == buffer.shape, f"{buffer.name}: {array.shape}"
        self.data: Array = np.ascontiguousarray(array).reshape(-1)
        self.written: Array = np.full(self.data.shape, self.is_input)

    @property
    def array(self) -> Array:
        return self.data.reshape(self.buffer.shape)


def poison(buffer: Buffer) -> Array:
    """An array of values that nobody expects in a result."""
    dtype = buffer.dtype.numpy
    if buffer.dtype.is_float:
        return np.full(buffer.shape, np.nan, dtype)
    return np.full(buffer.shape, 0x55, np.uint8).astype(dtype)


class Parameter(Common):
    """A parameter as the threads of one kernel see it.

    `awaited` says which threads have waited for earlier kernels; None where all of them may read
    at once.
    """

    def __init__(self, region: Region, team: Team, history: History, awaited: Array | None) -> None:
        super().__init__(region.buffer, team, region.data, region.written, history)
        self.region, self.awaited = region, awaited

    def cells(self, at: Sequence[Value], ids: Array) -> Array:
        return np.broadcast_to(self.position(at, ids), ids.shape)

    def read(self, at: Sequence[Value], ids: Array) -> Value:
        position = self.position(at, ids)
        if self.region.is_input:
            self.require_awaited(ids, "read")
            return self.data[position]
        return self.read_cells(np.broadcast_to(position, ids.shape), ids)

    def read_cells(self, cells: Array, ids: Array, shared_by: int = SAME_THREAD) -> Array:
        self.require_awaited(ids, "read")
        if self.region.is_input:
            return self.data[cells]
        return super().read_cells(cells, ids, shared_by)

    def write(self, at: Sequence[Value], ids: Array, value: Value) -> None:
        name = self.buffer.name
        if self.region.is_input:
            fail("WH1308", f"{self.team.member(ids)} writes to '{name}', which is an input")
        self.require_awaited(ids, "written")
        cells = self.cells(at, ids)
        self.require_free(cells, ids)
        # Tiles at an edge overlap: threads that write the same do no harm.
        value = np.broadcast_to(value, ids.shape)
        collided = self.history.write(self, cells, ids, same(self.data[cells], value))
        self.data[cells] = value
        self.written[cells] = True
        if collided.any() and (differ := ~same(self.data[cells], value)).any():
            self.history.refuse_collision(self, cells, ids, differ)

    def require_awaited(self, ids: Array, done: str) -> None:
        """`WH1307` if earlier kernels may still be at work upon the parameter."""
        if self.awaited is None or (self.region.constant and done == "read"):
            return
        if (early := ~self.awaited[ids]).any():
            _, thread = self.team.offender(ids, early)
            fail("WH1307", f"'{self.buffer.name}' is {done} by {thread} before it has awaited "
                 "inputs")  # fmt: skip


def same(a: Array, b: Array) -> Array:
    """Equality of numbers, in which NaN is equal to NaN."""
    return (a == b) | ((a != a) & (b != b))


GLOBAL_REACH = SAME_BLOCK
"""Writes to parameters are visible to threads of the block, after a barrier."""
