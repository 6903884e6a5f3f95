"""The threads that run together: their numbers, how far apart they are, and their barriers.

Threads are numbered through the whole launch: cluster, rank, warp, lane.  Those of one team, a few
clusters beside each other, advance together; `ids` are their numbers within the team.

A clock counts barriers.  Something that thread a did at time t has happened for thread b when a
barrier that both took part in came later: `t < synced[distance(a, b), b]`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whet.core.errors import fail
from whet.core.types import Array
from whet.ir.expr import Expr
from whet.ir.threads import WARP, BarrierScope, ThreadNest

SAME_THREAD, SAME_WARP, SAME_BLOCK, SAME_CLUSTER, APART = range(5)
"""Distances of two threads."""
_REACH: dict[BarrierScope, int] = {
    "warp": SAME_WARP, "block": SAME_BLOCK, "cluster": SAME_CLUSTER
}  # fmt: skip


class Team:
    """Some clusters of a launch, beginning with number `first`."""

    def __init__(self, nest: ThreadNest, first: int, clusters: int) -> None:
        self.ranks = nest.blocks
        self.block_size = nest.warps * WARP
        self.cluster_size = self.ranks * self.block_size
        self.clusters = clusters
        self.size = clusters * self.cluster_size
        self.before = first * self.cluster_size
        """Threads of the launch before the first one of the team."""
        self.ids: Array = np.arange(self.size)
        self.lane: Array = self.ids % WARP
        self.warp: Array = self.ids // WARP
        """Warps of the team, numbered through."""
        self.block: Array = self.ids // self.block_size
        self.cluster: Array = self.ids // self.cluster_size
        self.rank: Array = self.block % self.ranks
        self.clock = 0
        self.synced: Array = np.zeros((APART + 1, self.size), np.int64)
        self.synced[SAME_THREAD] = np.iinfo(np.int64).max
        self.synced[APART] = -1
        self.variables: dict[Expr, Array] = {
            nest.grid.var: first + self.cluster,
            nest.warp.var: self.warp % nest.warps,
            nest.lane.var: self.lane,
        }
        self.arrived: Array = np.zeros(self.size, np.int64)
        """When threads came to the first half of a barrier whose second half is still to come."""
        if nest.cluster:
            self.variables[nest.cluster.var] = self.rank

    def is_whole(self, ids: Array) -> bool:
        return len(ids) == self.size

    def distance(self, a: Array, b: Array) -> Array:
        """The distance of threads, by their numbers in the launch."""
        apart = (a != b).astype(np.int64)
        for span in (WARP, self.block_size, self.cluster_size):
            apart += a // span != b // span
        return apart

    def name(self, number: int) -> str:
        """The thread with this number in the launch."""
        cluster, rest = divmod(int(number), self.cluster_size)
        rank, rest = divmod(rest, self.block_size)
        warp, lane = divmod(rest, WARP)
        where = f"rank {rank}, " if self.ranks > 1 else ""
        return f"thread (grid {cluster}, {where}warp {warp}, lane {lane})"

    def member(self, ids: Array, which: int = 0) -> str:
        """One of some threads of the team."""
        return self.name(self.before + int(ids[which]))

    def offender(self, ids: Array, wrong: Array) -> tuple[int, str]:
        """The first thread for which something is wrong: its position in `ids`, and its name."""
        which = int(np.flatnonzero(np.broadcast_to(wrong, ids.shape))[0])
        return which, self.member(ids, which)

    def require_together(self, scope: BarrierScope, ids: Array, what: Callable[[], str]) -> None:
        """`WH1308` unless all threads of a warp, block or cluster are active, or none."""
        if self.is_whole(ids):
            return
        span = {"warp": WARP, "block": self.block_size, "cluster": self.cluster_size}[scope]
        present = np.bincount(ids // span, minlength=self.size // span)
        torn = np.flatnonzero((present > 0) & (present < span))
        if torn.size:
            missing = np.setdiff1d(np.arange(span) + torn[0] * span, ids)
            fail("WH1308", f"{what()}: {self.member(missing)} does not come here, though others "
                 f"of its {scope} do")  # fmt: skip

    def barrier(self, scope: BarrierScope, ids: Array) -> None:
        self.require_together(scope, ids, lambda: f"barrier {scope}")
        if scope == "cluster":
            self._require_no_arrival(ids)
        self.clock += 1
        self.synced[SAME_WARP : _REACH[scope] + 1, ids] = self.clock

    def arrive(self, ids: Array) -> None:
        """The first half of a barrier of the cluster."""
        self.require_together("cluster", ids, lambda: "arrive cluster")
        self._require_no_arrival(ids)
        self.clock += 1
        self.arrived[ids] = self.clock

    def _require_no_arrival(self, ids: Array) -> None:
        twice = self.arrived[ids] > 0
        if twice.any():
            _, thread = self.offender(ids, twice)
            fail("WH1308", f"{thread} arrives twice before it awaits the cluster")

    def await_arrivals(self, ids: Array) -> None:
        """The second half: what was done before the first one has happened for all."""
        self.require_together("cluster", ids, lambda: "await cluster")
        missing = self.arrived[ids] == 0
        if missing.any():
            _, thread = self.offender(ids, missing)
            fail("WH1308", f"{thread} awaits the cluster and has not arrived")
        reached = self.synced[SAME_WARP : SAME_CLUSTER + 1, ids]
        self.synced[SAME_WARP : SAME_CLUSTER + 1, ids] = np.maximum(reached, self.arrived[ids])
        self.arrived[ids] = 0

    def finish(self) -> None:
        """`WH1308` if a barrier was begun and not ended."""
        begun = self.arrived > 0
        if begun.any():
            _, thread = self.offender(self.ids, begun)
            fail("WH1308", f"{thread} arrives, and ends before it has awaited the cluster")
