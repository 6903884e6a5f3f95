"""AutoTVM mode: a schedule that a user writes, with knobs that the search turns.

    @template("my_matmul", fits=is_matmul)
    def my_matmul(s: Schedule, cfg: Config) -> None:
        cfg.define_split("tile_i", s.extent("i"), policy="tails", most=8)
        cfg.define_knob("nv", [1, 2, 3])
        s.register_tile("i", "j", cfg["tile_i"][-1], cfg["nv"], s.lanes)
        s.parallel("io")

A template is a sketch like any other: its candidates are searched, measured, checked and stored
as those of the others are, and a compile uses them where they are the best that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from whet.core.cpu import CpuTarget
from whet.core.errors import ScheduleError, WhetError, check
from whet.core.types import Array
from whet.ir.program import Loop, Program, walk
from whet.ops.base import Numeric
from whet.schedule.program.kernel import Kernel
from whet.schedule.program.primitives import naive_program
from whet.schedule.program.primitives.tree import find_loop, static_extent
from whet.schedule.space.registry import add_sketch
from whet.schedule.space.sketch import Population, Sketch
from whet.schedule.space.trace import Argument, Trace, TransformStep, replay_kernel
from whet.tasks.task import Task
from whet.tune.template_config import Config

UNPRICED_NS = 1e12
"""What a candidate without a price costs: a template is used when it was measured to be best,
and never by default."""

Prices = Callable[[Task, CpuTarget, int, Population], Array]


class Schedule:
    """The steps of one candidate; every primitive of
    `whet.schedule.program.primitives` is a method's way of adding one.

    Loops of the naive program are named after the axes: `split` of `i` makes `io` and `ii`.
    """

    def __init__(self, task: Task, lanes: int) -> None:
        self.task, self.lanes = task, lanes
        self.steps: list[TransformStep] = []
        self._naive: Program = naive_program(task)

    @property
    def loops(self) -> tuple[str, ...]:
        """The loops before any step, outer ones first."""
        return tuple(s.var.name for s in walk(self._naive.body) if isinstance(s, Loop))

    def extent(self, loop: str) -> int:
        """The extent of a loop before any step."""
        return static_extent(find_loop(self._naive, loop))

    def split(self, loop: str, factor: int, tail: str = "guard") -> None:
        self.add("split", loop=loop, factor=factor, tail=tail)

    def fuse(self, outer: str, inner: str) -> None:
        self.add("fuse", outer=outer, inner=inner)

    def reorder(self, *order: str) -> None:
        self.add("reorder", order=order)

    def fission(self, loop: str, at: int = 1) -> None:
        self.add("fission", loop=loop, at=at)

    def unroll(self, loop: str) -> None:
        self.add("unroll", loop=loop)

    def vectorize(self, loop: str) -> None:
        self.add("vectorize", loop=loop)

    def parallel(self, loop: str) -> None:
        self.add("parallel", loop=loop)

    def annotate(self, marks: Mapping[str, str]) -> None:
        """The loops as a knob of `define_annotate` says."""
        for loop, mark in marks.items():
            if mark != "none":
                self.add(mark, loop=loop)

    def cache_write(self, buffer: str, loop: str, scope: str = "memory") -> None:
        self.add("cache_write", buffer=buffer, loop=loop, scope=scope)

    def cache_read(self, buffer: str, loop: str) -> None:
        self.add("cache_read", buffer=buffer, loop=loop)

    def compute_at(self, producer: str, loop: str) -> None:
        self.add("compute_at", producer=producer, loop=loop)

    def inline(self, buffer: str) -> None:
        self.add("inline", buffer=buffer)

    def rfactor(self, loop: str, variant: str) -> None:
        self.add("rfactor", loop=loop, variant=variant)

    def register_tile(
        self, rows: str, columns: str, mr: int, nv: int, lanes: int, tail: str = "overlap"
    ) -> None:
        self.add("register_tile", rows=rows, columns=columns, mr=mr, nv=nv, lanes=lanes, tail=tail)

    def rewrite_layout(
        self, buffer: str, order: tuple[int, ...], splits: tuple[int, ...] | None = None
    ) -> None:
        self.add("rewrite_layout", buffer=buffer, order=order, splits=splits)

    def add(self, kind: str, **arguments: Argument) -> None:
        """Any step that a trace can have."""
        self.steps.append(TransformStep(kind, **arguments))


Body = Callable[[Schedule, Config], None]


@dataclass(frozen=True, eq=False)
class Template(Sketch[Task, CpuTarget]):
    """A user's template as a sketch."""

    name: str
    body: Body
    accepts: Callable[[Task], bool]
    prices: Prices | None = None
    numeric: Numeric = "exact"

    def fits(self, task: Task) -> Task | None:
        """The task, if the template is for such tasks and its naive program exists."""
        if not self.accepts(task):
            return None
        try:
            naive_program(task)
        except WhetError:
            return None
        return task

    def space(self, task: Task, target: CpuTarget, threads: int) -> Population:
        """Every combination of the knobs."""
        cfg = Config()
        self.body(Schedule(task, target.lanes(32)), cfg)
        check(bool(cfg.knobs), "WH2102", f"template '{self.name}' defines no knobs",
              kind=ScheduleError)  # fmt: skip
        # The width of vectors is the machine's, and part of a candidate: a record says it all.
        population = cfg.population()
        rows = len(next(iter(population.values())))
        return {**population, "lanes": np.full(rows, target.lanes(32), np.int64)}

    def costs(self, task: Task, target: CpuTarget, threads: int, population: Population) -> Array:
        if self.prices is not None:
            return np.asarray(self.prices(task, target, threads, population), np.float64)
        return np.full(len(population["lanes"]), UNPRICED_NS)

    def lower(self, task: Task, holes: Mapping[str, int], name: str) -> Kernel:
        return replay_kernel(self.trace(task, holes), task, name)

    def trace(self, task: Task, holes: Mapping[str, int]) -> Trace:
        """The steps of one candidate, its numbers in their places."""
        schedule = Schedule(task, holes["lanes"])
        self.body(schedule, Config(holes))
        return Trace(tuple(schedule.steps), {})


def template(
    name: str, *, fits: Callable[[Task], bool] = lambda task: True, prices: Prices | None = None
) -> Callable[[Body], Template]:
    """Decorator that makes a sketch of a template and adds it to those that tasks are offered.

    `prices` estimates nanoseconds of a population, so that the search starts with what is
    likely good; without it all candidates are equal, and the first ones are tried by chance.
    """

    def add(body: Body) -> Template:
        made = Template(name, body, fits, prices)
        add_sketch(made)
        return made

    return add
