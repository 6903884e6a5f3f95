"""The history of cells that threads share: who wrote and read them, and when.

    write by a, barrier, read by b      b has taken part in a barrier since: fine
    write by a, read by b               a race, in whatever order the machine happens to run them

The readers of a cell are kept as one of them and how far apart all are: those that were there
before a barrier are forgotten at the first access behind it, which comes after them for everyone.
"""

from __future__ import annotations

import numpy as np

from whet.core.errors import fail
from whet.core.types import Array
from whet.ir.lockstep.storage import Storage
from whet.ir.lockstep.team import APART, SAME_THREAD, Team

NOBODY = -1


class History:
    """Writers and readers of cells, by their numbers in the launch.

    `reach` is the largest distance at which a barrier makes writes visible.
    """

    def __init__(self, cells: int, reach: int) -> None:
        self.reach = reach
        self.writer: Array = np.full(cells, NOBODY)
        self.written_at: Array = np.zeros(cells, np.int64)
        self.reader: Array = np.full(cells, NOBODY)
        self.spread: Array = np.zeros(cells, np.int64)
        self.read_at: Array = np.zeros(cells, np.int64)

    def _distance(self, team: Team, who: Array, ids: Array, least: Array | int) -> Array:
        found = np.maximum(team.distance(who, team.before + ids), least)
        found[found > self.reach] = APART
        return found

    def _refuse(
        self, storage: Storage, cells: Array, who: Array, ids: Array, wrong: Array,
        before: str, now: str,
    ) -> None:  # fmt: skip
        which, thread = storage.team.offender(ids, wrong)
        earlier = storage.team.name(who[which])
        if earlier == thread:  # it is one of several
            earlier = "another one"
        fail("WH1306", f"{storage.place(cells[which])} is {now} by {thread}, and {before} by "
             f"{earlier} with no barrier between")  # fmt: skip

    def read(
        self, storage: Storage, cells: Array, ids: Array, shared_by: int = SAME_THREAD
    ) -> None:
        """Notes that threads read cells; `WH1306` if that is a race.

        `shared_by` is the distance of those that read on behalf of each other.
        """
        team = storage.team
        writer = self.writer[cells]
        distance = self._distance(team, writer, ids, shared_by)
        open_ = (writer >= 0) & (self.written_at[cells] >= team.synced[distance, ids])
        if open_.any():
            self._refuse(storage, cells, writer, ids, open_, "written", "read")
        me = team.before + ids
        reader = self.reader[cells]
        distance = self._distance(team, reader, ids, np.maximum(self.spread[cells], shared_by))
        open_ = (reader >= 0) & (self.read_at[cells] >= team.synced[distance, ids])
        spread = np.where(open_, distance, shared_by)
        self.reader[cells] = me
        self.read_at[cells] = team.clock
        winner = self.reader[cells]  # several threads may read one cell in this step
        spread = np.maximum(spread, team.distance(winner, me))
        self.spread[cells] = SAME_THREAD
        for step in range(SAME_THREAD + 1, APART + 1):  # the largest is stored last
            chosen = cells[spread == step]
            if chosen.size:
                self.spread[chosen] = step

    def write(
        self, storage: Storage, cells: Array, ids: Array, excused: Array | None = None
    ) -> Array:
        """Notes that threads write cells; `WH1306` if that is a race.

        Writes upon each other are fine where they are excused.  The result says which threads
        wrote a cell that another one wrote in the same step.
        """
        team = storage.team
        writer = self.writer[cells]
        distance = self._distance(team, writer, ids, SAME_THREAD)
        open_ = (writer >= 0) & (self.written_at[cells] >= team.synced[distance, ids])
        if excused is not None:
            open_ &= ~excused
        if open_.any():
            self._refuse(storage, cells, writer, ids, open_, "written", "written")
        reader = self.reader[cells]
        distance = self._distance(team, reader, ids, self.spread[cells])
        open_ = (reader >= 0) & (self.read_at[cells] >= team.synced[distance, ids])
        if open_.any():
            self._refuse(storage, cells, reader, ids, open_, "read", "written")
        me = team.before + ids
        self.writer[cells] = me
        self.written_at[cells] = team.clock
        self.reader[cells] = NOBODY
        collided: Array = self.writer[cells] != me
        return collided

    def refuse_collision(self, storage: Storage, cells: Array, ids: Array, wrong: Array) -> None:
        """`WH1306`: two threads write one cell in one step."""
        self._refuse(storage, cells, self.writer[cells], ids, wrong, "written", "written")
