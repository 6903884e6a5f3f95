"""Compiling a model: from a file, bytes, a ModelProto or a Graph to something callable."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from whet.api.arguments import examples_here, given_inputs, thread_count
from whet.api.budget import parse_budget
from whet.api.compiled import CompiledModel
from whet.api.engine import Engine, describe_options, why_not_tuned
from whet.api.engines import (
    default_engine,
    precision_name,
    prepare_or_interpret,
    require_room,
    target_name,
)
from whet.api.failures import (
    Failure,
    attempt,
    internal_error,
    is_unforeseen,
    python_warning,
)
from whet.api.guarded import Guarded
from whet.api.originals import (
    GetGraph,
    collect_released,
    held,
    is_large,
    lasting_inputs,
    made_again,
)
from whet.api.programs import Note, Program, Programs
from whet.api.specs import graph_signature, imported_signature
from whet.core.errors import ModelError, UsageError, check, fail
from whet.core.precision import Precision, find_precision
from whet.graph.graph import Graph
from whet.graph.passes import optimize
from whet.graph.passes.half_precision import half_precision
from whet.ops.base import NUMERICS, Numeric
from whet.runtime.arrays import as_numpy
from whet.runtime.artifact import is_artifact
from whet.runtime.executable import Executable
from whet.runtime.schedules import StoredSchedule

if TYPE_CHECKING:
    from whet.frontend.onnx.imported import ImportedModel
    from whet.tune.report import Watch


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a compilation, which every program of a model has in common."""

    engine: Engine
    threads: int
    numerics: Numeric
    precision: Precision
    note: Note
    warn: Note
    """Receives what nobody may overlook."""
    budget: float = 0.0
    """Seconds to search for faster kernels."""
    watch: Watch | None = None

    def optimize(self, graph: Graph) -> Graph:
        """The graph after all passes and the search for a cheaper one, or as it is where that
        fails."""
        made = attempt(lambda: self._simplified(graph), graph, self._described())
        if isinstance(made, Failure):
            self.warn(made.warning("simplify the model, which runs as it is"))
            return graph
        require_room(made)
        if self.budget and self.engine.can_tune:
            self._tune(made)
        rewrite = lambda: self.engine.rewrite(made, self.threads, self.numerics)
        better = attempt(rewrite, made, self._described())
        if isinstance(better, Failure):
            self.warn(better.warning("search for a cheaper graph, and compiles the one it has"))
            return made
        return better

    def _simplified(self, graph: Graph) -> Graph:
        """The graph after all passes, its values stored as the precision says."""
        made = self.engine.written_out(optimize(graph, numerics=self.numerics), self.numerics)
        storage = self.precision.storage
        return made if storage is None else half_precision(made, storage)

    def _tune(self, graph: Graph) -> None:
        """Searches for a faster graph and its kernels, which are used from then on."""
        tune = lambda: self.engine.tune(graph, self.threads, self.numerics, self.budget, self.watch)
        done = attempt(tune, graph, self._described())
        if isinstance(done, Failure):
            self.warn(done.warning("search for faster kernels, and uses those that it knows"))

    def prepare(self, graph: Graph, again: GetGraph) -> Executable:
        """The graph as something that runs; `again` gives the graph later on."""
        made = self._prepared(graph, self.numerics)
        if self.numerics != "guarded" or not self.engine.guards:
            return made
        return Guarded(made, lambda: self._prepared(again(), "exact"), self.note)

    def _prepared(self, graph: Graph, numerics: Numeric) -> Executable:
        return prepare_or_interpret(
            lambda: self.engine.prepare(graph, self.threads, numerics, note=self.note),
            graph,
            describe_options(self.engine, self.threads, numerics),
            self.warn,
        )

    def _described(self) -> dict[str, Any]:
        return describe_options(self.engine, self.threads, self.numerics)

    def schedules(self, graph: Graph) -> tuple[StoredSchedule, ...]:
        """Schedules that were searched for and are used for the graph."""
        return self.engine.schedules(graph, self.threads, self.numerics, note=self.note)


def compile(
    model: Any,
    inputs: Mapping[str, Any] | None = None,
    threads: int | None = None,
    budget: float | str = 0,
    target: str | None = None,
    numerics: str = "real",
    precision: str | None = None,
    *,
    note: Note | None = None,
    watch: Watch | None = None,
) -> CompiledModel:
    """The model as a callable on arrays.

    `model` is the path of an ONNX file, its bytes, an `onnx.ModelProto` or a `Graph`.
    `inputs` gives shapes or example arrays by name, where the model leaves them open or where
    shapes depend on values; `threads` defaults to one per processor that the process may use;
    `budget` is the time to search for faster kernels, in seconds or as text ("10m"); `target` is
    the machine to build for, `cpu` (this one), the name of a preset (`x86-64-v3`) or one that a
    backend adds, as settings say by default, and a model for another machine can be stored and not
    called;
    `numerics="exact"` forbids rewrites and algorithms that change rounding, and `"guarded"`
    allows them, but repeats a call without them where NaN, infinite or huge values would spread;
    `precision` says what numbers of single precision may be computed with on a GPU: `"fp32"`,
    `"fp32x3"`, `"tf32"`, `"fp16"` or `"bf16"`, as settings say by default, else `"fp32"`.
    `note` receives messages, which go to the logger `whet` otherwise, or become a `WhetWarning`
    where the model runs slowly; `watch` is told how the search is going after each of its rounds.

    Raises: `UnsupportedError` (all unsupported parts at once), `ModelError` (damaged or
    inconsistent models), `UsageError` (arguments that make no sense).
    """
    check(numerics in NUMERICS, "WH1002", f"there is no numerics '{numerics}'",
          hint=", ".join(NUMERICS), kind=UsageError)  # fmt: skip
    check(note is None or callable(note), "WH1002",
          f"'note' must be a function, got {type(note).__name__}", kind=UsageError)  # fmt: skip
    given = given_inputs(inputs)
    warn, note = note or python_warning, note or logging.getLogger("whet").warning
    kind = NUMERICS[numerics]
    seconds, count, name = parse_budget(budget), thread_count(threads), target_name(target)
    found = find_precision(precision_name(precision))
    engine = default_engine(note, name, found.name)
    options = Options(engine, count, kind, found, note, warn, seconds, watch)
    if isinstance(model, Graph):
        programs = Programs(None, note, "the graph")
        first = graph_program(model, given, options)
    else:
        source = _Source(model)
        first = source.program(examples_here(given, engine.target), options)
        names = [port.name for port in first.signature.arguments]

        def make(values: Sequence[Any], announce: Callable[[], None]) -> Program:
            examples = {n: _example(v, n) for n, v in zip(names, values, strict=True)}
            # Another shape of the same model is made at once, without a search of its own.
            return source.program(examples, replace(options, budget=0.0), announce)

        programs = Programs(make, note, "the model")
        if first.rest is not None:
            note("shapes depend on data: part of the model is compiled while it runs")
    programs.made.append(first)
    if engine.reason:
        warn(f"{engine.reason}: the model runs in the interpreter, slowly")
    if seconds and not engine.can_tune:
        note(f"the budget is not used: {why_not_tuned(engine)}")
    return CompiledModel(
        first, programs, target=name, numerics=numerics, precision=found.name,
        schedules=options.schedules,
    )  # fmt: skip


def _example(value: Any, name: str) -> Any:
    """A value of a call as an example for the importer, which takes a list for a shape."""
    if isinstance(value, (list, tuple)):
        return [_example(item, f"{name}[{n}]") for n, item in enumerate(value)]
    return None if value is None else as_numpy(value, name)


def graph_program(graph: Graph, inputs: Mapping[str, Any], options: Options) -> Program:
    """A graph as a program; the inputs that are given must be those of the graph."""
    types = {v.name: v.tensor_type for v in graph.inputs}
    for name, value in inputs.items():
        shape = getattr(value, "shape", value)
        expected = types.get(name)
        fits = isinstance(shape, (list, tuple)) and expected is not None
        check(fits and expected is not None and expected.shape == tuple(shape), "WH2007",
              f"input '{name}' of shape {shape} does not fit the graph",
              hint=", ".join(f"{n}: {t}" for n, t in types.items()), kind=UsageError)  # fmt: skip
    signature = graph_signature(graph)
    optimized = options.optimize(graph)
    again = held(optimized)
    return Program(signature, again, options.prepare(optimized, again))


def imported_program(
    imported: ImportedModel,
    options: Options,
    keep: Callable[[Graph], GetGraph] = held,
) -> Program:
    """An imported model as a program, with what follows it when shapes depend on data.

    `keep` says how the program gets at its graph again.
    """
    rest = None
    if imported.tail is not None:
        tail = imported.tail
        rest = Programs(
            lambda arrays, announce: imported_program(tail.stage(arrays), options),
            lambda message: None,  # said once by `compile`; a message per call would be noise
            "the rest of the model",
        )
    signature = imported_signature(imported)
    graph = options.optimize(imported.graph)
    again = keep(graph)
    return Program(signature, again, options.prepare(graph, again), rest)


def read_model(model: Any, inputs: Mapping[str, Any], note: Note) -> ImportedModel:
    """The model imported for these inputs, with errors that say what was assumed."""
    from whet.frontend.onnx import import_model  # onnx is slow to import: only when needed

    try:
        return import_model(model, inputs=inputs, note=note)
    except ModelError as error:
        from whet.frontend.onnx.assumed import explain_assumptions

        raise explain_assumptions(error, model, inputs) from error.__cause__
    except Exception as error:
        if not is_unforeseen(error):
            raise
        known = isinstance(model, (str, os.PathLike))
        described = str(Path(model).absolute()) if known else type(model).__name__
        what = {"model": described, "inputs": str(inputs)}
        raise internal_error(error, "the model was read", what) from error


class _Source:
    """The origin of a model, kept so that it can be imported again for other inputs."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.path = Path(model).absolute() if isinstance(model, (str, os.PathLike)) else None
        self.stamp = self._stamp()
        if self.path is not None and is_artifact(self.path):
            fail("WH2001", f"'{model}' is an artifact, not a model",
                 hint="whet.load reads artifacts", kind=UsageError)  # fmt: skip

    def _stamp(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat() if self.path else None
        except (OSError, ValueError):  # ValueError: a null character in the path
            return None  # the importer says what is wrong with the file
        return (status.st_size, status.st_mtime_ns) if status else None

    def importing(self, inputs: Mapping[str, Any], note: Note) -> ImportedModel:
        """The model imported for these inputs."""
        if self._stamp() != self.stamp:
            self._changed()
        # As the user wrote it, for messages, unless the working directory has changed.
        moved = self.path is not None and Path(self.model).absolute() != self.path
        return read_model(self.path if moved else self.model, inputs, note)

    def program(
        self,
        inputs: Mapping[str, Any],
        options: Options,
        announce: Callable[[], None] = lambda: None,
    ) -> Program:
        """The model compiled for these inputs; native code holds no weights but its own.

        `announce` is called when the inputs are known to fit the model.
        """
        imported = self.importing(inputs, options.note)
        announce()
        if not self._can_release(imported, options):
            return imported_program(imported, options)
        lasting = lasting_inputs(inputs, imported.guards)

        def again() -> Graph:
            graph = self.importing(lasting, lambda message: None).graph
            return replace(options, budget=0.0).optimize(graph)

        large = is_large(imported.graph)
        program = imported_program(
            imported, options, lambda graph: made_again(graph, again, self._changed)
        )
        del imported
        if large:
            collect_released()
        return program

    def _can_release(self, imported: ImportedModel, options: Options) -> bool:
        """Whether the graph can be dropped: it must not be needed to run, as exact kernels may be
        later on, and importing the model again must give it again, which a ModelProto that others
        may change does not."""
        lasts = self.path is not None or isinstance(self.model, bytes)
        released = not options.engine.keeps_graph and options.numerics != "guarded"
        return released and lasts and imported.tail is None

    def _changed(self) -> NoReturn:
        what = "the model" if self.path is None else f"'{self.path}'"
        fail("WH2001", f"{what} has changed since the model was compiled", kind=ModelError)
