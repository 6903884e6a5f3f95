"""The sequence of tiles of a block: those of keys, and behind them those of values.

    tiles:      k0 k1 k2 v0 v1 v2        stages = 4: three are under way while one is used
    before:     k0 k1 k2
    scores:     step 0: use k0, copy v0; step 1: use k1, copy v1; step 2: use k2, copy v2
    results:    step 0: use v0; ...

Every step closes one group of copies, so that all wait for the same number of groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whet.ir.expr import Expr, all_of, as_expr
from whet.ir.program import Block, If, Stmt
from whet.ir.threads import Barrier, Commit, Wait
from whet.schedule.families.gpu_contraction.loader import Loader


@dataclass(frozen=True, eq=False)
class Stream:
    """Tiles on their way into the rings of keys and of values."""

    keys: Loader
    values: Loader
    size: int
    """Keys of a tile."""
    steps: int
    """Tiles of keys, and as many of values."""
    slots: int
    stages: int

    @property
    def ahead(self) -> int:
        """Tiles that are under way while one is used."""
        return self.stages - 1

    def key(self, tile: Expr) -> Stmt:
        loader = replace(self.keys, first_row=tile * self.size)
        return loader.load(as_expr(0), tile % self.slots)

    def value(self, tile: Expr) -> Stmt:
        return self.values.load(tile, tile % self.slots)

    def before(self) -> Block:
        """The copies of the first tiles, a group each."""
        found: list[Stmt] = []
        for number in range(self.ahead):
            if number < self.steps:
                found.append(self.key(as_expr(number)))
            elif number < 2 * self.steps:
                found.append(self.value(as_expr(number - self.steps)))
            found.append(Commit())
        return tuple(found)

    def for_scores(self, step: Expr) -> Block:
        """The start of a step that uses a tile of keys."""
        later, found = step + self.ahead, list[Stmt]()
        if self.ahead < self.steps:
            found.append(If(later < self.steps, (self.key(later),)))
        if self.ahead < 2 * self.steps:
            inside: list[Expr] = []
            if self.ahead < self.steps:
                inside.append(later >= self.steps)
            if self.ahead > self.steps:
                inside.append(later < 2 * self.steps)
            value = self.value(step + (self.ahead - self.steps))
            found.append(If(all_of(inside), (value,)) if inside else value)
        return self._step(found)

    def for_results(self, step: Expr) -> Block:
        """The start of a step that uses a tile of values."""
        later, found = step + self.ahead, list[Stmt]()
        if self.ahead < self.steps:
            found.append(If(later < self.steps, (self.value(later),)))
        return self._step(found)

    def _step(self, refill: list[Stmt]) -> Block:
        return (Wait(self.stages - 2), Barrier("block"), *refill, Commit())
