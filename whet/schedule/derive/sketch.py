"""The sketch `derived`: all structures that the rules derive for a task, in one table.

The hole `structure` says which of them a row belongs to; holes that a structure does not have are
0 in its rows.  A record is the number of a structure and its integers, and replays as long as the
rules still derive that structure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.errors import ScheduleError, check
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.derive.costs import structure_costs
from whet.schedule.derive.describe import described
from whet.schedule.derive.population import draw, legal_rows
from whet.schedule.derive.structure import LoopStructure, structures
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.steps import Trace, replay_steps
from whet.schedule.space.sketch import Population, Sketch
from whet.schedule.space.statements import Statement
from whet.tasks.task import Task

ROWS = 4096
"""Candidates that a space offers; `legal` judges all others."""
TRIES = 2
"""How many rows are drawn for every one that is wanted."""
MOST_CORES = 1024


@dataclass(frozen=True, eq=False)
class Derivation:
    """A task with its structures, by the number of cores that they are derived for."""

    task: Task
    known: dict[int, tuple[LoopStructure, ...]] = field(default_factory=dict)

    def structures(self, threads: int) -> tuple[LoopStructure, ...]:
        """The structures for so many threads; rules see powers of two."""
        cores = 1 << max(0, threads - 1).bit_length()
        if cores not in self.known:
            self.known[cores] = structures(self.task, cores)
        return self.known[cores]

    def structure(self, number: int) -> LoopStructure:
        """The structure that a record names, whatever the cores that it was derived for."""
        cores = 1
        while cores <= MOST_CORES:
            for made in self.structures(cores):
                if made.number == number:
                    return made
            cores *= 2
        check(False, "WH2120", f"the rules derive no structure {number} for the task",
              kind=ScheduleError)  # fmt: skip
        raise AssertionError

    def holes(self, threads: int) -> tuple[str, ...]:
        """All holes of all structures."""
        names = [h for made in self.structures(threads) for h in made.holes]
        return ("structure", *dict.fromkeys(names))


class Derived(Sketch[Derivation, CpuTarget]):
    """Programs that rules derive from the task, beside the hand-made families."""

    name = "derived"
    numeric: Numeric = "exact"
    drafts_default = False
    structure = ("structure",)
    is_open = True

    def fits(self, task: Task) -> Derivation | None:
        return Derivation(task) if task.outputs and _has_elements(task) else None

    def space(self, form: Derivation, target: CpuTarget, threads: int) -> Population:
        """A seeded sample of legal rows, the same share of every structure."""
        found = form.structures(threads)
        names = form.holes(threads)
        rng = np.random.default_rng(len(found))
        parts = []
        for made in found:
            wanted = ROWS // len(found)
            drawn = draw(made, target, threads, TRIES * wanted, rng)
            good = np.flatnonzero(legal_rows(made, target, threads, drawn))
            table = np.stack([drawn[h] for h in made.holes], axis=1)[good]
            table = np.unique(table, axis=0)
            table = table[rng.permutation(len(table))[:wanted]]
            columns = dict(zip(made.holes, table.T))
            zero = np.zeros(len(table), np.int64)
            number = np.full(len(table), made.number, np.int64)
            parts.append([number, *(columns.get(h, zero) for h in names[1:])])
        if not parts:
            return {"structure": np.zeros(0, np.int64)}
        joined = [np.concatenate(column) for column in zip(*parts)]
        return dict(zip(names, joined))

    def legal(
        self, form: Derivation, target: CpuTarget, threads: int, population: Population
    ) -> Array:
        """Which rows are candidates."""
        good: Array = np.zeros(len(population["structure"]), bool)
        for made, rows, columns in self._parts(form, threads, population):
            unused = [h for h in population if h != "structure" and h not in made.holes]
            good[rows] = legal_rows(made, target, threads, columns)
            for hole in unused:
                good[rows] &= population[hole][rows] == 0
        return good

    def stages(self, form: Derivation, structure: Mapping[str, int]) -> Sequence[Collection[str]]:
        """The holes of every stage in programs of a structure."""
        return form.structure(structure["structure"]).stages

    def costs(
        self, form: Derivation, target: CpuTarget, threads: int, population: Population
    ) -> Array:
        costs: Array = np.full(len(population["structure"]), np.inf)
        for made, rows, columns in self._parts(form, threads, population):
            costs[rows] = structure_costs(made, target, threads, columns)
        return costs

    def nests(
        self, form: Derivation, target: CpuTarget, threads: int, population: Population
    ) -> tuple[Statement, ...]:
        """The statements of every structure, each with the rows that have it."""
        return tuple(
            statement
            for made, rows, columns in self._parts(form, threads, population)
            for _, statement in described(made, columns, rows)
        )

    def lower(self, form: Derivation, holes: Mapping[str, int], name: str) -> Kernel:
        made = form.structure(holes["structure"])
        return replay_steps(Trace(made.steps(holes), holes), form.task, name)

    def _parts(
        self, form: Derivation, threads: int, population: Population
    ) -> list[tuple[LoopStructure, Array, dict[str, Array]]]:
        """The rows of each structure, with the columns that it has."""
        numbers = np.asarray(population["structure"])
        found = []
        for made in form.structures(threads):
            rows = np.flatnonzero(numbers == made.number)
            if len(rows) and all(h in population for h in made.holes):
                columns = {h: np.asarray(population[h])[rows] for h in made.holes}
                found.append((made, rows, columns))
        return found


def _has_elements(task: Task) -> bool:
    return all(t.type.size > 0 for t in (*task.outputs, *task.inputs))
