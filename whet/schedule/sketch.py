"""The sketch protocol: a parametric program whose integers are holes, and its registry.

    form = sketch.fits(task)                       what the sketch sees in the task, or None
    holes = sketch.space(form, target, threads)    candidates: one column of integers per hole
    ns = sketch.costs(form, target, threads, holes)            the analytic model, all at once
    kernel = sketch.lower(form, {hole: int}, name)             one candidate as a program

What changes the structure of the program is another sketch; numbers are holes.  Nothing here
knows an operator's name: a sketch looks at tensor expressions only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from whet.core.errors import check
from whet.core.target import Target
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.kernel import Kernel
from whet.tasks.task import Task

Holes = dict[str, int]
"""One candidate: an integer per hole."""
Population = dict[str, Array]
"""Many candidates: a column per hole, all of the same length."""

F = TypeVar("F")


def population(names: Sequence[str], candidates: Sequence[tuple[int, ...]]) -> Population:
    """Candidates that were made one by one."""
    return dict(zip(names, np.array(candidates, dtype=np.int64).reshape(-1, len(names)).T))


class Sketch(Protocol[F]):
    """A family of programs for the tasks that it fits; F is what it finds in a task."""

    @property
    def name(self) -> str:
        """What traces call it."""

    @property
    def numeric(self) -> Numeric:
        """`exact`: the same arithmetic, sums in any order; `real`: equal only over the reals."""

    def fits(self, task: Task) -> F | None:
        """The structure that the sketch works on, or None."""

    def space(self, form: F, target: Target, threads: int) -> Population:
        """Candidates, all of them legal; no rows when there are none."""

    def costs(self, form: F, target: Target, threads: int, population: Population) -> Array:
        """Estimated nanoseconds of every candidate."""

    def lower(self, form: F, holes: Mapping[str, int], name: str) -> Kernel:
        """The kernel of one candidate."""


SKETCHES: dict[str, Sketch[Any]] = {}
"""All sketches by name, in the order in which they were added."""

S = TypeVar("S", bound=type[Any])


def sketch(cls: S) -> S:
    """Class decorator that adds a sketch; its class takes no arguments.

    @sketch
    class Mine:
        name = "mine"
        numeric = "exact"
        ...
    """
    add_sketch(cls())
    return cls


def add_sketch(made: Sketch[F]) -> Sketch[F]:
    """Add a sketch to those that every task is offered."""
    check(made.name not in SKETCHES, "WH2121", f"there is already a sketch '{made.name}'")
    SKETCHES[made.name] = made
    return made


def find_sketch(name: str) -> Sketch[Any]:
    """The sketch of that name."""
    check(name in SKETCHES, "WH2121", f"there is no sketch '{name}'",
          hint=f"known are {', '.join(SKETCHES)}")  # fmt: skip
    return SKETCHES[name]


@dataclass(frozen=True, eq=False)
class Choice:
    """A candidate of a sketch for a task, with the analytic model's estimate."""

    sketch: Sketch[Any]
    form: Any
    holes: Holes
    nanoseconds: float

    def kernel(self, name: str) -> Kernel:
        return self.sketch.lower(self.form, self.holes, name)


def drafts_default(made: Sketch[Any]) -> bool:
    """Whether the default schedule may be this sketch's; a sketch without the property drafts.

    One that does not is offered to the search, where trials judge its candidates, and is the
    default only of what no other sketch fits.
    """
    return bool(getattr(made, "drafts_default", True))


def choices(task: Task, target: Target, threads: int, numerics: Numeric) -> Iterator[Choice]:
    """The best candidate of every sketch that drafts defaults, fits the task and is allowed."""
    yield from _choices([s for s in SKETCHES.values() if drafts_default(s)], task, target, threads,
                        numerics)  # fmt: skip


def last_choices(task: Task, target: Target, threads: int, numerics: Numeric) -> Iterator[Choice]:
    """The same of the sketches that do not."""
    yield from _choices([s for s in SKETCHES.values() if not drafts_default(s)], task, target,
                        threads, numerics)  # fmt: skip


def _choices(
    made_of: Sequence[Sketch[Any]], task: Task, target: Target, threads: int, numerics: Numeric
) -> Iterator[Choice]:
    for made in made_of:
        if made.numeric == "real" and numerics == "exact":
            continue
        form = made.fits(task)
        if form is None:
            continue
        population = made.space(form, target, threads)
        if not len(next(iter(population.values()))):
            continue
        costs = made.costs(form, target, threads, population)
        best = int(np.argmin(costs))
        holes = {hole: int(column[best]) for hole, column in population.items()}
        yield Choice(made, form, holes, float(costs[best]))
