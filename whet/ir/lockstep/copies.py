"""Copies under way: groups of every thread, counted as `cp.async.wait_group` counts them.

copy, commit      group 0      copy, commit      group 1      wait 1: group 0 has arrived
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.errors import check, fail
from whet.core.types import Array
from whet.ir.lockstep.memory import Parameter, Shared
from whet.ir.lockstep.storage import Storage, Value
from whet.ir.lockstep.team import Team
from whet.ir.threads import Copy

RUN_BYTES = (4, 8, 16)
"""Bytes that one copy can move."""


@dataclass(eq=False, slots=True)
class Flight:
    """Runs that threads copy in one step: cells [threads, elements]."""

    target: Shared
    cells: Array
    source: Parameter
    taken: Array
    """Cells of the source [threads, elements]; fewer threads where some read nothing."""
    takers: Array
    ids: Array
    groups: Array


class Copies:
    """The copies of a team."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self.committed: Array = np.zeros(team.size, np.int64)
        """Groups that a thread has closed."""
        self.arrived: Array = np.zeros(team.size, np.int64)
        """Groups that a thread has waited for."""
        self.flights: list[Flight] = []

    def begin(
        self, stmt: Copy, target: Storage, at: Sequence[Value],
        source: Storage, start: Sequence[Value], ids: Array, valid: Array,
    ) -> None:  # fmt: skip
        """Starts a copy; `start` has the indices of those threads alone where it is valid."""
        if not isinstance(target, Shared) or not isinstance(source, Parameter):
            fail("WH1308", f"{stmt.text}: copies go from parameters to shared memory")
        same_type = target.buffer.dtype == source.buffer.dtype
        check(same_type, "WH1308", f"{stmt.text}: the element types differ")
        run = np.arange(stmt.elements)
        readers = ids[valid]
        self._require_aligned(stmt, target, at, ids)
        self._require_aligned(stmt, source, start, readers)
        target.require_own(at, ids, "written")
        cells = _run_cells(target, at, ids, stmt.elements)[:, None] + run
        taken = _run_cells(source, start, readers, stmt.elements)[:, None] + run
        values = np.zeros(cells.shape, target.data.dtype)
        values[valid] = source.read_cells(
            taken.reshape(-1), np.repeat(readers, stmt.elements)
        ).reshape(taken.shape)
        target.write_cells(cells.reshape(-1), np.repeat(ids, stmt.elements), values.reshape(-1))
        target.expect(cells, arriving=True)
        if not source.region.is_input:
            source.lend(taken, 1)
        groups = self.committed[ids]
        self.flights.append(Flight(target, cells, source, taken, valid, ids, groups))

    def _require_aligned(
        self, stmt: Copy, storage: Storage, at: Sequence[Value], ids: Array
    ) -> None:
        buffer = storage.buffer
        nbytes = stmt.elements * buffer.dtype.itemsize
        check(nbytes in RUN_BYTES, "WH1308",
              f"{stmt.text}: runs have 4, 8 or 16 bytes, not {nbytes}")  # fmt: skip
        check(buffer.element_strides[-1] == 1, "WH1308",
              f"{stmt.text}: the elements of '{buffer.name}' are no neighbours")  # fmt: skip
        wrong = address(storage, at) % nbytes != 0
        if ids.size and wrong.any():
            _, thread = self.team.offender(ids, wrong)
            fail("WH1308", f"{stmt.text}: the run of '{buffer.name}' is not aligned to {nbytes} "
                 f"bytes for {thread}")  # fmt: skip

    def commit(self, ids: Array) -> None:
        self.committed[ids] += 1

    def wait(self, ids: Array, pending: int) -> None:
        self.arrived[ids] = np.maximum(self.arrived[ids], self.committed[ids] - pending)
        self.flights = [left for f in self.flights if (left := self._land(f)) is not None]

    def _land(self, flight: Flight) -> Flight | None:
        """The part of a flight that is still under way."""
        done = flight.groups < self.arrived[flight.ids]
        if not done.any():
            return flight
        cells = flight.cells[done]
        flight.target.expect(cells, arriving=False)
        # From here on the thread that waited sees the elements, and others behind a barrier.
        flight.target.history.written_at[cells] = self.team.clock
        if not flight.source.region.is_input:
            flight.source.lend(flight.taken[done[flight.takers]], -1)
        if done.all():
            return None
        on = ~done
        return Flight(
            flight.target, flight.cells[on], flight.source, flight.taken[on[flight.takers]],
            flight.takers[on], flight.ids[on], flight.groups[on],
        )  # fmt: skip


def address(storage: Storage, at: Sequence[Value]) -> Value:
    """The address of an element in bytes, from one that is aligned to anything."""
    buffer = storage.buffer
    strides = buffer.element_strides
    own = 1 if isinstance(storage, Shared) and storage.distributed else 0  # the rank moves nothing
    offset: Value = np.int64(buffer.offset)
    for index, stride in zip(at[own:], strides[own:], strict=True):
        offset = offset + index * stride
    return offset * buffer.dtype.itemsize


def _run_cells(
    storage: Shared | Parameter, at: Sequence[Value], ids: Array, elements: int
) -> Array:
    """The first cells of runs, all elements of which lie in the buffer."""
    storage.position((*at[:-1], at[-1] + (elements - 1)), ids)
    return storage.cells(at, ids)
