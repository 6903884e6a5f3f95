"""Loading stored models."""

from __future__ import annotations

import logging
import os
from typing import NoReturn

from whet.api.arguments import as_path, thread_count
from whet.api.compiled import CompiledModel
from whet.api.engine import describe_options
from whet.api.engines import default_engine, prepare_or_interpret, target_name
from whet.api.failures import python_warning
from whet.api.guarded import Guarded
from whet.api.originals import collect_released, held, is_large, made_again
from whet.api.programs import Note, Program, Programs
from whet.api.specs import output_specs, spec_of
from whet.build.backend import require_here, target_names
from whet.core.errors import ArtifactError, UnsupportedError, WhetError, check, fail
from whet.core.precision import PRECISIONS
from whet.graph.graph import Graph
from whet.graph.text import parse_graph, stored_arrays
from whet.ops.base import NUMERICS, Numeric
from whet.runtime.artifact import Artifact, read_artifact
from whet.runtime.damage import require
from whet.runtime.executable import Executable
from whet.runtime.schedules import StoredSchedule


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    target: str | None = None,
    *,
    note: Note | None = None,
) -> CompiledModel:
    """The model stored in an artifact, built for the target that it was stored for.

    Another `target`, or one in the settings, takes its place.  Nothing in the file is executed
    and everything in it is checked; `ArtifactError` if it is damaged or of another version.
    """
    path, count = as_path(path, "load"), thread_count(threads)
    artifact = read_artifact(path)
    require(artifact.numerics in NUMERICS, "the artifact's numerics are of another version")
    require(artifact.precision in PRECISIONS, "the artifact's precision is of another version")
    graph = _checked_graph(artifact)
    warn, note = note or python_warning, note or logging.getLogger("whet").warning
    name = target_name(target, artifact.target)
    check(name != artifact.target or name in target_names(), "WH3002",
          f"the artifact was made for the target '{name[:40]}', which this version of whet does "
          "not know", hint="give another target, such as cpu", kind=ArtifactError)  # fmt: skip
    engine = default_engine(note, name, artifact.precision)
    if engine.reason:
        warn(f"{engine.reason}: the model runs in the interpreter, slowly")
    if engine.target is not None:
        require_here(engine.target)
    numerics, stored = NUMERICS[artifact.numerics], artifact.schedules

    def prepared(graph: Graph, numerics: Numeric) -> Executable:
        return prepare_or_interpret(
            lambda: engine.prepare(graph, count, numerics, stored, note),
            graph,
            describe_options(engine, count, numerics),
            warn,
        )

    executable = prepared(graph, numerics)
    source = path.absolute()

    def again() -> Graph:
        return _checked_graph(read_artifact(source))

    def changed() -> NoReturn:
        fail("WH3001", f"'{source}' has changed since it was loaded", kind=ArtifactError)

    def schedules(graph: Graph) -> tuple[StoredSchedule, ...]:
        return engine.schedules(graph, count, numerics, stored, note)

    guarded = numerics == "guarded"
    released = not engine.keeps_graph and not guarded
    get_graph = made_again(graph, again, changed) if released else held(graph)
    if guarded and engine.guards:
        executable = Guarded(executable, lambda: prepared(get_graph(), "exact"), note)
    program = Program(artifact.signature, get_graph, executable)
    programs = Programs(None, note, "the model")
    programs.made.append(program)
    compiled = CompiledModel(
        program,
        programs,
        target=name,
        numerics=artifact.numerics,
        precision=artifact.precision,
        schedules=schedules,
    )
    if released and is_large(graph):
        del graph, artifact
        collect_released()
    return compiled


def _checked_graph(artifact: Artifact) -> Graph:
    """The graph of an artifact, which must agree with the signature and use every array."""
    try:
        graph = parse_graph(artifact.graph_text, artifact.constants)
    except WhetError as error:
        if error.code == "WH1106":
            fail("WH1106", "the artifact has an operator that is not defined here",
                 *str(error).splitlines(),
                 hint="import the module that defines it, or a newer whet, and load it again",
                 kind=UnsupportedError)  # fmt: skip
        fail("WH3001", "the artifact's graph cannot be read", *str(error).splitlines(),
             kind=ArtifactError)  # fmt: skip
    signature = artifact.signature
    inputs = tuple(s for s in signature.inputs if s.name not in signature.guards)
    require(
        inputs == tuple(spec_of(v.name, v.type) for v in graph.inputs)
        and signature.outputs == output_specs(graph),
        "the artifact's signature is not that of its graph",
    )
    require(
        set(stored_arrays(graph)) == set(artifact.constants),
        "the artifact holds arrays that its graph does not use",
    )
    return graph
