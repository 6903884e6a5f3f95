"""Engines: what turns a graph into something that runs.

Native code where it can be generated; the interpreter is the engine that is always there.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from whet.api.failures import Failure, attempt
from whet.api.programs import Note
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.cpu import HERE, CpuTarget, find_target
from whet.core.errors import RecordsError, UsageError
from whet.core.foreign import require_here
from whet.core.memory import require_memory
from whet.core.types import Array, TensorType
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.ops.base import Numeric
from whet.runtime.executable import Executable, own_results
from whet.runtime.schedules import StoredSchedule

if TYPE_CHECKING:
    from whet.db.store import Database
    from whet.tune.report import Watch


class Engine(Protocol):
    """Prepares graphs for running."""

    @property
    def name(self) -> str:
        """The name that users see: `interpreter`, `native`."""

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


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Runs graphs node by node in NumPy: right, and slow.

    The number of threads is NumPy's own affair (its BLAS reads it from the environment).
    """

    reason: str = ""
    """Why graphs are not run as native code."""
    name: ClassVar[str] = "interpreter"

    def prepare(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric = "real",
        stored: Sequence[StoredSchedule] = (),
        note: Note | None = None,
    ) -> Executable:
        return _Interpreted(graph, self.reason)


@dataclass(frozen=True, slots=True)
class _Interpreted:
    graph: Graph
    reason: str
    engine: ClassVar[str] = Interpreter.name

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
        return ["not native: all operators run in the interpreter", *self.reason.splitlines()]


@dataclass(frozen=True, slots=True)
class Native:
    """Runs graphs as machine code that is generated for a target."""

    target: CpuTarget
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
        note: Note | None = None,
    ) -> Executable:
        """The graph with the best kernels known: those that came with it, else those that were
        searched for here, if any."""
        try:
            with _known_records() as records:
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
        from whet.build.native import build  # loads LLVM: only when needed

        if not stored and records is None:
            return build(
                graph, self.target, threads, self.cache, numerics=numerics, checked=self.checked
            )
        from whet.tune.schedule import Schedules

        schedules = Schedules(self.target, threads, numerics, records, stored)
        return build(
            graph, self.target, threads, self.cache, numerics=numerics, checked=self.checked,
            schedule=schedules, schedule_key=schedules.key, evidence=schedules.faster,
        )  # fmt: skip

    def schedules(
        self,
        graph: Graph,
        threads: int,
        numerics: Numeric,
        stored: Sequence[StoredSchedule] = (),
        note: Note | None = None,
    ) -> tuple[StoredSchedule, ...]:
        """The schedules that `prepare` uses beside those of the analytic model."""
        try:
            with _known_records() as records:
                if records is None or not records.has_records(self.target, threads):
                    return tuple(stored)
                from whet.api.tuning import weighted_tasks
                from whet.tune.schedule import Schedules

                found = Schedules(self.target, threads, numerics, records, stored)
                tasks = weighted_tasks([graph], self.target, threads, numerics, found.faster)
                return found.used(w.task for w in tasks if not w.alternative)
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
        """Searches for kernels during the given time; `prepare` then uses them."""
        from whet.api.tuning import tune_graphs
        from whet.tune.tuner import Budget

        require_here(self.target)
        tune_graphs([graph], self.target, threads, Budget(seconds), numerics=numerics, watch=watch)


@contextlib.contextmanager
def _known_records() -> Iterator[Database | None]:
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


# ------------------------------------------------------------------------------- going on anyway
def prepare_or_interpret(
    prepare: Callable[[], Executable], graph: Graph, options: Mapping[str, Any], warn: Note
) -> Executable:
    """The result of `prepare`, or the graph in the interpreter where whet itself fails.

    Slow is better than nothing, but never in silence: there is a warning and a report, and
    `describe` says so too.
    """
    known = [v.type for v in (*graph.inputs, *graph.outputs) if isinstance(v.type, TensorType)]
    require_memory(sum(t.nbytes for t in known), "the model's inputs and outputs")
    found = attempt(prepare, graph, options)
    if not isinstance(found, Failure):
        return found
    warn(found.warning("compile the model, which runs in the interpreter, slowly"))
    reason = f"because whet failed to compile them: {found.text}\n{found.hint}"
    return Interpreter(reason).prepare(graph, 1)


def describe_options(engine: Engine, threads: int, numerics: Numeric) -> dict[str, Any]:
    """The options of a compilation, as a report says them."""
    target = engine.target.to_json() if isinstance(engine, Native) else None
    return {"engine": engine.name, "threads": threads, "numerics": numerics, "target": target}


class _Process:
    """The findings of this process, by the name of the target, and what it has said."""

    lock = threading.Lock()
    engines: ClassVar[dict[str, Engine]] = {}
    told: ClassVar[set[str]] = set()


def tell_once(note: Note | None, message: str) -> None:
    """Passes on a message about this process's surroundings, which do not change."""
    if note is not None and message not in _Process.told:
        _Process.told.add(message)
        note(message)


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
    except UsageError as error:
        if name != HERE:
            raise
        return Interpreter(error.message)  # a processor that code generation does not know
    try:
        importlib.import_module("llvmlite.binding")
    except ImportError:
        return Interpreter("llvmlite, which generates native code, is not installed")
    except OSError as error:  # its library: not enough memory, or a damaged installation
        why = str(error.__cause__ or error.__context__ or error).partition("\n")[0]
        return Interpreter(f"llvmlite, which generates native code, cannot be loaded ({why})")
    if not config.calibrate:
        target = replace(target, calibration={})
    elif not target.is_calibrated:
        from whet.build.calibrate import calibrated_target  # loads LLVM: only when needed

        try:
            target = calibrated_target(target, cache, note)
        except MemoryError:
            if note is not None:
                note("not enough memory to measure this machine: a typical one is assumed")
    return Native(target, cache, config.check_accesses)
