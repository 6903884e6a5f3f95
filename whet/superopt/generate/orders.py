"""The orders in which the applications of a graph can be placed, counted."""

from __future__ import annotations

from typing import Any

from whet.superopt.generate.compiled import compiled


@compiled
def count_orders(needs: Any, n: Any, down: Any, up: Any) -> None:
    """In how many orders n applications and one more can be placed, by what the last one needs.

    needs[i] is the set (as bits) of those that i depends on.  `down` ends up with the answer for
    every set; `up` is room to work in.  Placing the last one after a prefix of an order splits
    it into an order of a set and one of the rest; that set must hold what the last one needs.
    """
    full = (1 << n) - 1
    for s in range(full + 1):
        down[s] = 0
        up[s] = 0
    down[0] = 1
    up[full] = 1
    for s in range(1, full + 1):
        for i in range(n):
            rest = s & ~(1 << i)
            if rest != s and needs[i] & ~rest == 0:
                down[s] += down[rest]
    for s in range(full - 1, -1, -1):
        for i in range(n):
            more = s | (1 << i)
            if more != s and needs[i] & ~s == 0:
                up[s] += up[more]
    for s in range(full + 1):
        down[s] *= up[s]
    for i in range(n):
        for s in range(full + 1):
            if not s >> i & 1:
                down[s] += down[s | (1 << i)]
