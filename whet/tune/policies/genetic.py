"""AutoTVM's genetic algorithm: no model, only trials."""

from __future__ import annotations

import numpy as np

from whet.tune.moves import cross, mutate, roulette
from whet.tune.policies.chance import RandomSearch
from whet.tune.policies.protocol import Known
from whet.tune.space import Row, Space
from whet.tune.timing import FAILED

TRIES = 4
"""How often to breed again where only known rows came out."""
SIZE, ELITE = 32, 3
MUTATION = 0.5


class Genetic:
    """The latest trials and the best of all are the parents of the next ones.

    AutoTVM's generations of 100 would take all of a usual budget to begin with; here parents
    are replaced as soon as there are newer trials.
    """

    def propose(
        self, space: Space, known: Known, count: int, rng: np.random.Generator
    ) -> list[Row]:
        worked = [row for row, timing in known.items() if timing.ok]
        found: dict[Row, None] = {}
        if len(worked) >= SIZE:
            best = sorted(worked, key=lambda row: known[row])[:ELITE]
            parents = list(dict.fromkeys(best + worked[-SIZE:]))
            for _ in range(TRIES):
                children = self.children(space, known, parents, count, rng)
                found.update(dict.fromkeys(c for c in children if c not in known))
        chosen = list(found)[:count]
        taken = {**known, **dict.fromkeys(chosen, FAILED)}
        return chosen + RandomSearch().propose(space, taken, count - len(chosen), rng)

    def children(
        self, space: Space, known: Known, parents: list[Row], count: int, rng: np.random.Generator
    ) -> list[Row]:
        """Crossed rows, some of them mutated; both parents are of one sketch."""
        scores = -np.log(np.array([float(known[p]) for p in parents]))
        owners = np.array([number for number, _ in parents])
        rows = np.array([row for _, row in parents])
        drawn = owners[roulette(scores, count, rng)]
        found: list[Row] = []
        for number in np.unique(drawn):
            table, mine = space.tables[number], owners == number
            size = int(np.sum(drawn == number))
            mothers, fathers = (
                table.matrix[rows[mine][roulette(scores[mine], size, rng)]] for _ in range(2)
            )
            born = cross(table, mothers, fathers, rng)
            changed = rng.random(size) < MUTATION
            born[changed] = mutate(table, born[changed], rng)
            found += [(int(number), int(row)) for row in table.intern(born)]
        return found
