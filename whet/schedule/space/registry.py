"""The registry of sketches: whet's own and those of others, and what they offer for a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

import numpy as np

from whet.core.errors import check
from whet.core.target import Target
from whet.ops.base import Numeric
from whet.schedule.space.sketch import Choice, F, Sketch, T
from whet.tasks.task import Task

S = TypeVar("S", bound=type[Any])


class Sketches(Mapping[str, Sketch[Any, Any]]):
    """Sketches by name, whet's own first, in the order in which they were added."""

    def __init__(self) -> None:
        self.added: dict[str, Sketch[Any, Any]] = {}

    def __getitem__(self, name: str) -> Sketch[Any, Any]:
        return self.added.get(name) or _own_sketches()[name]

    def __iter__(self) -> Iterator[str]:
        yield from _own_sketches()
        yield from self.added

    def __len__(self) -> int:
        return len(_own_sketches()) + len(self.added)


SKETCHES = Sketches()


@cache
def _own_sketches() -> dict[str, Sketch[Any, Any]]:
    # They import what is beside this module, so they are loaded when they are asked for.
    from whet.schedule.sketches import OWN_SKETCHES

    return {made.name: made for made in OWN_SKETCHES}


def sketch(cls: S) -> S:
    """Class decorator that adds a sketch; its class takes no arguments.

    @sketch
    class Mine(Sketch[Form, CpuTarget]):
        name = "mine"
        numeric = "exact"
        ...
    """
    add_sketch(cls())
    return cls


def add_sketch(made: Sketch[F, T]) -> Sketch[F, T]:
    """Add a sketch to those that every task is offered."""
    check(made.name not in SKETCHES, "WH2121", f"there is already a sketch '{made.name}'")
    SKETCHES.added[made.name] = made
    return made


def find_sketch(name: str) -> Sketch[Any, Any]:
    """The sketch of that name."""
    check(name in SKETCHES, "WH2121", f"there is no sketch '{name}'",
          hint=f"known are {', '.join(SKETCHES)}")  # fmt: skip
    return SKETCHES[name]


def allowed_sketches(target: Target, numerics: Numeric) -> list[Sketch[Any, Any]]:
    """The sketches for the target's kind of machine that compute with such numerics."""
    return [
        made for made in SKETCHES.values()
        if made.machine == target.kind and not (made.numeric == "real" and numerics == "exact")
    ]  # fmt: skip


def choices(task: Task, target: Target, threads: int, numerics: Numeric) -> Iterator[Choice]:
    """The best candidate of every sketch that drafts defaults, fits the task and is allowed."""
    for made in allowed_sketches(target, numerics):
        if made.drafts_default:
            yield from _best(made, task, target, threads)


def last_choices(task: Task, target: Target, threads: int, numerics: Numeric) -> Iterator[Choice]:
    """The same of the sketches that do not draft."""
    for made in allowed_sketches(target, numerics):
        if not made.drafts_default:
            yield from _best(made, task, target, threads)


def _best(made: Sketch[Any, Any], task: Task, target: Target, threads: int) -> Iterator[Choice]:
    form = made.fits(task)
    if form is None:
        return
    population = made.space(form, target, threads)
    if not len(next(iter(population.values()))):
        return
    costs = made.costs(form, target, threads, population)
    best = int(np.argmin(costs))
    holes = {hole: int(column[best]) for hole, column in population.items()}
    yield Choice(made, form, holes, float(costs[best]))
