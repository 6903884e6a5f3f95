"""Pairs of graphs with the same fingerprint, without those that share an application.

In terms of values both of TASO's tests for common subgraphs are one: two graphs that contain the
same operator on the same values share that part, at the inputs or at the outputs, and a smaller
rule says the rest.  A pair of graphs that are both in unconnected pieces says nothing either:
each piece is a rule of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.types import Array
from whet.superopt.generate.compiled import compiled
from whet.superopt.generate.marks import Marks
from whet.superopt.generate.tables import Tables

ABSENT = int(np.iinfo(np.int32).max)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Graphs as rows of application numbers, pairs as row numbers, and what was counted."""

    graphs: Array
    """[n, size] applications, ended by ABSENT."""
    pairs: Array
    raw: Array
    """All pairs of equal fingerprint, by the number of operators of the larger graph."""


@compiled
def _select(prints: Any, order: Any, graphs: Any, sizes: Any, connected: Any) -> Any:
    """The pairs of equal fingerprint that share nothing, with the numbers of all pairs."""
    found = np.empty((1024, 2), np.int64)
    n = 0
    low = 0
    size = graphs.shape[1]
    raw = np.zeros(size + 1, np.int64)
    while low < len(order):
        high = low + 1
        while high < len(order) and prints[order[high]] == prints[order[low]]:
            high += 1
        for i in range(low, high):
            for j in range(i + 1, high):
                x, y = order[i], order[j]
                raw[max(sizes[x], sizes[y])] += 1
                if not connected[x] and not connected[y]:
                    continue
                shared = False
                for p in range(size):
                    for q in range(size):
                        if graphs[x, p] == graphs[y, q] and graphs[x, p] != ABSENT:
                            shared = True
                if shared:
                    continue
                if n == len(found):
                    more = np.empty((2 * n, 2), np.int64)
                    more[:n] = found
                    found = more
                found[n, 0] = min(x, y)
                found[n, 1] = max(x, y)
                n += 1
        low = high
    return found[:n], raw


def equal_pairs(tables: Tables, expected: int, *, shard: int = 0, shards: int = 1) -> Pairs:
    """The pairs among all graphs whose fingerprint is in the shard; about how many is `expected`.

    Only fingerprints that occur twice matter: one walk marks them, another stores their graphs.
    """
    sizes = range(1, tables.size + 1)
    marks = Marks(max(expected, 1))
    for n in sizes:
        tables.mark(n, marks, shard=shard, shards=shards)
    found = [tables.graphs(n, shard=shard, shards=shards, marks=marks) for n in sizes]
    del marks
    prints = np.concatenate([f.prints for f in found])
    graphs = np.full((len(prints), tables.size), ABSENT, np.int32)
    end = 0
    for n in sizes:
        rows = found[n - 1].apps
        graphs[end : end + len(rows), :n] = rows
        end += len(rows)
    del found
    connected = graphs[:, 0] >= 0
    graphs[:, 0] = np.where(connected, graphs[:, 0], ~graphs[:, 0])
    order = np.argsort(prints, kind="stable")
    operators = (graphs != ABSENT).sum(axis=1, dtype=np.int8)
    pairs, raw = _select(prints, order, graphs, operators, connected)
    used, rows = np.unique(pairs, return_inverse=True)
    return Pairs(graphs[used], rows.reshape(-1, 2).astype(np.int32), raw)
