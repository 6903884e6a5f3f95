"""The engine that generates code, with the best kernels that are known."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from whet.api.engine import tuned_target
from whet.api.programs import Note
from whet.build.backend import backend_of
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.errors import RecordsError
from whet.core.target import Target
from whet.graph.graph import Graph
from whet.graph.passes.write_out import has_recurrence, write_out
from whet.ops.base import Numeric
from whet.runtime.executable import Executable
from whet.runtime.schedules import StoredSchedule
from whet.tasks.price import no_evidence

if TYPE_CHECKING:
    from whet.db.store import Database
    from whet.tune.report import Watch


@dataclass(frozen=True, slots=True)
class Native:
    """Runs graphs as code that is generated for a target."""

    target: Target
    cache: FileCache
    checked: bool = False
    """Whether native code checks every access."""
    name: ClassVar[str] = "native"
    keeps_graph: ClassVar[bool] = False
    guards: ClassVar[bool] = True
    reason: ClassVar[str] = ""

    @property
    def can_tune(self) -> bool:
        return backend_of(self.target).can_tune

    def _used(self, threads: int) -> int:
        """The number of threads that code and records are for."""
        return backend_of(self.target).used_threads(threads)

    def written_out(self, graph: Graph, numerics: Numeric) -> Graph:
        if not has_recurrence(graph):
            return graph
        price = backend_of(self.target).price(self.target, 1, numerics, no_evidence)
        return graph if price.controls else write_out(graph, numerics)

    def rewrite(self, graph: Graph, threads: int, numerics: Numeric) -> Graph:
        seconds, threads = process_config().rewrite_seconds, self._used(threads)
        if not seconds:
            return graph
        from whet.joint.kept import cheaper_graph  # loads the compiler: only when needed

        return cheaper_graph(graph, self.target, threads, numerics, self.cache, seconds)[0]

    def prepare(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric = "real",
        stored: Sequence[StoredSchedule] = (),
        note: Note | None = None,
    ) -> Executable:
        """The graph with the best kernels known: those that came with it, else those that were
        searched for here, if any."""
        threads = self._used(threads)
        try:
            with known_records() as records:
                made = self._build(graph, threads, numerics, stored, records)
        except RecordsError as error:
            tell_once(note, f"tuning records are not used: {error.message}")
            made = self._build(graph, threads, numerics, stored, None)
        if self.cache.problem:
            tell_once(note, f"nothing is kept between runs: {self.cache.problem}; set "
                      "WHET_CACHE_DIR to a folder of your own")  # fmt: skip
        return made

    def _build(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric,
        stored: Sequence[StoredSchedule],
        records: Database | None,
    ) -> Executable:
        from whet.build.native import build  # loads the backend: only when needed

        if not stored and records is None:
            return build(
                graph, self.target, threads, self.cache, numerics=numerics, checked=self.checked
            )
        from whet.tune.schedule import Schedules

        schedules = Schedules(self.target, threads, numerics, records, stored)
        return build(
            graph, self.target, threads, self.cache, numerics=numerics, checked=self.checked,
            schedule=schedules, schedule_key=schedules.key, in_plan=schedules.within,
            evidence=schedules.faster,
        )  # fmt: skip

    def schedules(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric,
        stored: Sequence[StoredSchedule] = (),
        note: Note | None = None,
    ) -> tuple[StoredSchedule, ...]:
        threads = self._used(threads)
        try:
            with known_records() as records:
                if records is None or not records.has_records(self.target, threads):
                    return tuple(stored)
                from whet.build.tasks import planned
                from whet.tune.schedule import Schedules

                found = Schedules(self.target, threads, numerics, records, stored)
                return found.used(planned(graph, self.target, threads, numerics, found.faster))
        except RecordsError as error:
            tell_once(note, f"tuning records are not used: {error.message}")
            return tuple(stored)

    def tune(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric,
        seconds: float,
        watch: Watch | None = None,
    ) -> None:
        from whet.joint.together import Setting, optimize_together
        from whet.joint.tuning import tune_graphs
        from whet.tune.tuner import Budget

        target, threads = tuned_target(self), self._used(threads)
        if process_config().rewrite_seconds:
            setting = Setting(target, threads, numerics, self.cache)
            optimize_together(graph, setting, seconds, watch)
        else:
            tune_graphs([graph], target, threads, Budget(seconds), numerics=numerics, watch=watch)


@contextlib.contextmanager
def known_records() -> Iterator[Database | None]:
    """The tuning database, if there is one; opening it brings an older one up to date."""
    path = process_config().db.path
    if path is None or not _may_exist(path):
        yield None
        return
    from whet.db.store import Database

    with Database(path) as records:
        yield records


def _may_exist(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # nobody lets us look: opening it says why


TOLD: set[str] = set()
"""What this process has said about its surroundings, which do not change."""


def tell_once(note: Note | None, message: str) -> None:
    """Passes on a message about this process's surroundings, unless it has been said before."""
    if note is not None and message not in TOLD:
        TOLD.add(message)
        note(message)
