"""Engines: what turns a graph into something that runs.

Native code where it can be generated; the interpreter is the engine that is always there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from whet.api.programs import Note
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.errors import UsageError
from whet.core.foreign import require_here
from whet.core.target import HERE, Target, find_target
from whet.core.types import Array
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.ops.base import Numeric
from whet.runtime.executable import Executable, own_results
from whet.runtime.schedules import StoredSchedule

if TYPE_CHECKING:
    from whet.tune.report import Watch


class Engine(Protocol):
    """Prepares graphs for running."""

    @property
    def name(self) -> str:
        """What users see: `interpreter`, `native`."""

    def prepare(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric = "real",
        stored: Sequence[StoredSchedule] = (),
    ) -> Executable:
        """The graph as a callable that uses at most `threads` threads.

        `numerics="exact"` allows no algorithm that is equal only over the reals; `stored` are
        schedules that came with the model.
        """


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Runs graphs node by node in NumPy: right, and slow.

    The number of threads is NumPy's own affair (its BLAS reads it from the environment).
    """

    name: ClassVar[str] = "interpreter"

    def prepare(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric = "real",
        stored: Sequence[StoredSchedule] = (),
    ) -> Executable:
        return _Interpreted(graph)


@dataclass(frozen=True, slots=True)
class _Interpreted:
    graph: Graph

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        results = interpret(self.graph, inputs, round_halves=False)
        if out is None:
            return own_results(results, inputs)
        for target, result in zip(out, results, strict=True):
            np.copyto(target, result, casting="no")
        return tuple(out)

    def describe(self) -> list[str]:
        return ["not native: all operators run in the interpreter"]


@dataclass(frozen=True, slots=True)
class Native:
    """Runs graphs as machine code that is generated for a target."""

    target: Target
    cache: FileCache
    checked: bool = False
    """Whether native code checks every access."""
    name: ClassVar[str] = "native"

    def prepare(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric = "real",
        stored: Sequence[StoredSchedule] = (),
    ) -> Executable:
        """The graph with the best kernels known: those that came with it, else those that were
        searched for here, if any."""
        from whet.build.native import build  # loads LLVM: only when needed

        path = process_config().db.path
        if not stored and not path.exists():
            return build(
                graph, self.target, threads, self.cache, numerics=numerics, checked=self.checked
            )
        from whet.db.store import Database
        from whet.tune.schedule import Schedules

        with contextlib.ExitStack() as stack:
            # Opening it brings a database of an older version up to date.
            records = stack.enter_context(Database(path)) if path.exists() else None
            schedules = Schedules(self.target, threads, numerics, records, stored)
            return build(
                graph, self.target, threads, self.cache, numerics=numerics, checked=self.checked,
                schedule=schedules, schedule_key=schedules.key,
            )  # fmt: skip

    def schedules(
        self, graph: Graph, threads: int, numerics: Numeric, stored: Sequence[StoredSchedule] = ()
    ) -> tuple[StoredSchedule, ...]:
        """The schedules that `prepare` uses beside those of the analytic model."""
        path = process_config().db.path
        if not path.exists():
            return tuple(stored)
        from whet.api.tuning import weighted_tasks
        from whet.db.store import Database
        from whet.tune.schedule import Schedules

        with Database(path) as records:
            if not records.has_records(self.target, threads):
                return tuple(stored)
            found = Schedules(self.target, threads, numerics, records, stored)
            tasks = weighted_tasks([graph], self.target, threads, numerics)
            return found.used(w.task for w in tasks)

    def prepare_tuned(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric,
        seconds: float,
        watch: Watch | None = None,
    ) -> Executable:
        """The graph with kernels that were searched for during the given time."""
        from whet.api.tuning import tune_graphs
        from whet.tune.tuner import Budget

        require_here(self.target)
        tune_graphs([graph], self.target, threads, Budget(seconds), numerics=numerics, watch=watch)
        return self.prepare(graph, threads, numerics)


class _Process:
    """What this process has found, by the name of the target."""

    lock = threading.Lock()
    engines: ClassVar[dict[str, Engine]] = {}


def default_engine(note: Note | None = None, target: str | None = None) -> Engine:
    """The best engine for a target that this installation and this machine allow.

    The target is the one that settings name, else this machine, unless another is asked for.
    The first call on a machine measures it, unless settings forbid that, and tells `note`.
    """
    name = target_name(target)
    with _Process.lock:
        if name not in _Process.engines:
            _Process.engines[name] = _best_engine(name, note)
        return _Process.engines[name]


def target_name(asked: str | None, stored: str = HERE) -> str:
    """The name of the target to use: as asked for, as configured, or as stored."""
    return asked or process_config().target or stored


def _best_engine(name: str, note: Note | None) -> Engine:
    config = process_config()
    cache = FileCache(config.cache)
    try:
        target = find_target(name, cache)
    except UsageError:
        if name != HERE:
            raise
        return Interpreter()  # a processor that code generation does not know
    if importlib.util.find_spec("llvmlite") is None:
        return Interpreter()
    if not config.calibrate:
        target = replace(target, calibration={})
    elif not target.is_calibrated:
        from whet.build.calibrate import calibrated_target  # loads LLVM: only when needed

        target = calibrated_target(target, cache, note)
    return Native(target, cache, config.check_accesses)
