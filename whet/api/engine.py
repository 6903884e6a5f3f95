"""Engines: what turns a graph into something that runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from whet.api.programs import Note
from whet.build.backend import require_here
from whet.core.errors import UsageError, fail
from whet.core.target import Target
from whet.graph.graph import Graph
from whet.ops.base import Numeric
from whet.runtime.executable import Executable
from whet.runtime.schedules import StoredSchedule

if TYPE_CHECKING:
    from whet.tune.report import Watch


class Engine(Protocol):
    """Prepares graphs for running."""

    name: ClassVar[str]
    """What users see: `interpreter`, `native`."""
    keeps_graph: ClassVar[bool]
    """Whether what it prepares runs the graph itself, which must then be held."""
    guards: ClassVar[bool]
    """Whether `numerics="guarded"` gives something that notices outliers."""

    @property
    def reason(self) -> str:
        """Why graphs do not run as native code; empty where they do."""

    @property
    def target(self) -> Target | None:
        """The machine that code is made for, if any is made."""

    @property
    def can_tune(self) -> bool:
        """Whether faster kernels can be searched for."""

    def written_out(self, graph: Graph, numerics: Numeric) -> Graph:
        """The graph with recurrences written out, where native code runs no loops."""

    def rewrite(self, graph: Graph, threads: int, numerics: Numeric) -> Graph:
        """The graph that is expected to run fastest among those that compute the same."""

    def prepare(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric = "real",
        stored: Sequence[StoredSchedule] = (),
        note: Note | None = None,
    ) -> Executable:
        """The graph as a callable that uses at most `threads` threads.

        `numerics="exact"` allows no algorithm that is equal only over the reals; `stored` are
        schedules that came with the model; `note` is told what could have gone better.
        """

    def schedules(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric,
        stored: Sequence[StoredSchedule] = (),
        note: Note | None = None,
    ) -> tuple[StoredSchedule, ...]:
        """The schedules that `prepare` uses beside those of the analytic model."""

    def tune(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric,
        seconds: float,
        watch: Watch | None = None,
    ) -> None:
        """Searches for a faster graph and its kernels during the given time; `rewrite` and
        `prepare` then use them."""


def tuned_target(engine: Engine) -> Target:
    """The target whose kernels can be searched for; `WH3007` if there is none, `WH1305` if they
    do not run here."""
    target = engine.target
    if target is None or not engine.can_tune:
        fail("WH3007", why_not_tuned(engine), kind=UsageError)
    require_here(target)
    return target


def why_not_tuned(engine: Engine) -> str:
    """The message where an engine cannot tune."""
    if engine.target is None:
        return "only native code can be tuned"
    return f"kernels for {engine.target.name} cannot be measured"


def describe_options(engine: Engine, threads: int, numerics: Numeric) -> dict[str, Any]:
    """The options of a compilation, as a report says them."""
    target = None if engine.target is None else engine.target.to_json()
    return {"engine": engine.name, "threads": threads, "numerics": numerics, "target": target}
