"""A sketch made of functions: what every package beside this one registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ops.base import Numeric
from whet.schedule.program.kernel import Kernel
from whet.schedule.space.sketch import Population, Sketch
from whet.schedule.space.statements import Statement
from whet.tasks.task import Task

F = TypeVar("F")


@dataclass(frozen=True)
class Family(Sketch[F, CpuTarget]):
    """A sketch made of functions; the fields of `tiling` are its holes."""

    name: str
    find: Callable[[Task], F | None]
    tiling: Callable[..., Any]
    holes: Callable[[F, CpuTarget, int], Population]
    price: Callable[[F, CpuTarget, int, Population], Array]
    build: Callable[[F, Any, str], Kernel]
    loops: Callable[[F, CpuTarget, int, Population], tuple[Statement, ...]]
    numeric: Numeric = "exact"
    kept: frozenset[tuple[str, ...]] = frozenset()
    """The groups between which it keeps rows."""

    def chains(self) -> frozenset[tuple[str, ...]]:
        return self.kept

    def fits(self, task: Task) -> F | None:
        return self.find(task)

    def space(self, form: F, target: CpuTarget, threads: int) -> Population:
        return self.holes(form, target, threads)

    def costs(self, form: F, target: CpuTarget, threads: int, population: Population) -> Array:
        return self.price(form, target, threads, population)

    def nests(
        self, form: F, target: CpuTarget, threads: int, population: Population
    ) -> tuple[Statement, ...]:
        return self.loops(form, target, threads, population)

    def lower(self, form: F, holes: Mapping[str, int], name: str) -> Kernel:
        return self.build(form, self.tiling(**holes), name)
