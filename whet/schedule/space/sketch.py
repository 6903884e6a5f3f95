"""The sketch protocol: a parametric program whose integers are holes.

    form = sketch.fits(task)                       what the sketch sees in the task, or None
    holes = sketch.space(form, target, threads)    candidates: one column of integers per hole
    ns = sketch.costs(form, target, threads, holes)            the analytic model, all at once
    kernel = sketch.lower(form, {hole: int}, name)             one candidate as a program

What changes the structure of the program is another sketch; numbers are holes.  Nothing here
knows an operator's name: a sketch looks at tensor expressions only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np

from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.program.kernel import Kernel
from whet.tasks.task import Task

if TYPE_CHECKING:
    from whet.schedule.space.statements import Statement

Holes = dict[str, int]
"""One candidate: an integer per hole."""
Population = dict[str, Array]
"""Many candidates: a column per hole, all of the same length."""

F = TypeVar("F")
T = TypeVar("T", contravariant=True)


def population(names: Sequence[str], candidates: Sequence[tuple[int, ...]]) -> Population:
    """Candidates that were made one by one."""
    return dict(zip(names, np.array(candidates, dtype=np.int64).reshape(-1, len(names)).T))


class Sketch(Protocol[F, T]):
    """A family of programs for the tasks that it fits; F is what it finds in a task, T the targets
    that it knows.

    What has a body here is what most sketches have: a class that says `Sketch` inherits it.
    """

    name: str
    """What traces call it."""
    numeric: Numeric
    """`exact`: the same arithmetic, sums in any order; `real`: equal only over the reals."""
    machine: ClassVar[str] = "cpu"
    """The kind of machine that its programs are for: `Target.kind`."""
    drafts_default: ClassVar[bool] = True
    """Whether the default schedule may be its.

    One that does not draft is offered to the search, where trials judge its candidates, and is the
    default only of what no other sketch fits.
    """
    structure: ClassVar[tuple[str, ...]] = ()
    """The holes that choose between structures of the program."""
    is_open: ClassVar[bool] = False
    """Whether `space` is a sample: every combination of its values that is `legal` counts."""

    def chains(self) -> frozenset[tuple[str, ...]]:
        """The kinds of groups that it computes as one, see `whet.tasks.price.Price.joins`."""
        return frozenset()

    def fits(self, task: Task) -> F | None:
        """The structure that the sketch works on, or None."""

    def space(self, form: F, target: T, threads: int) -> Population:
        """Candidates, all of them legal; no rows when there are none."""

    def legal(self, form: F, target: T, threads: int, population: Population) -> Array:
        """Which rows of an open space are candidates."""
        return np.ones(len(next(iter(population.values()))), bool)

    def costs(self, form: F, target: T, threads: int, population: Population) -> Array:
        """Estimated nanoseconds of every candidate."""

    def nests(
        self, form: F, target: T, threads: int, population: Population
    ) -> tuple[Statement, ...]:
        """The statements of all candidates in closed form, each with the rows it describes; none
        where only their programs say them."""
        return ()

    def stages(self, form: F, structure: Mapping[str, int]) -> Sequence[Collection[str]]:
        """The holes of every stage in programs with these structural holes; none where every loop
        is a stage."""
        return ()

    def lower(self, form: F, holes: Mapping[str, int], name: str) -> Kernel:
        """The kernel of one candidate."""


@dataclass(frozen=True, eq=False)
class Choice:
    """A candidate of a sketch for a task, with the analytic model's estimate."""

    sketch: Sketch[Any, Any]
    form: Any
    holes: Holes
    nanoseconds: float

    def kernel(self, name: str) -> Kernel:
        return self.sketch.lower(self.form, self.holes, name)
