"""Loading stored models."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import NoReturn

from whet.api.compiled import CompiledModel
from whet.api.compiler import thread_count
from whet.api.engine import Native, default_engine
from whet.api.guarded import Guarded
from whet.api.originals import collect_released, held, is_large, made_again
from whet.api.programs import Note, Program, Programs
from whet.api.specs import output_specs, spec_of
from whet.core.errors import ArtifactError, WhetError, fail
from whet.graph.graph import Graph
from whet.graph.text import parse_graph, stored_arrays
from whet.ops.base import NUMERICS
from whet.runtime.artifact import Artifact, read_artifact
from whet.runtime.damage import require
from whet.runtime.schedules import StoredSchedule


def load(
    path: str | os.PathLike[str], threads: int | None = None, *, note: Note | None = None
) -> CompiledModel:
    """The model stored in an artifact.

    Nothing in the file is executed and everything in it is checked; `ArtifactError` if it is
    damaged or of another version.
    """
    artifact = read_artifact(path)
    require(artifact.numerics in NUMERICS, "the artifact's numerics are of another version")
    graph = _checked_graph(artifact)
    note = note or logging.getLogger("whet").warning
    engine = default_engine(note)
    numerics = NUMERICS[artifact.numerics]
    count, stored = thread_count(threads), artifact.schedules
    executable = engine.prepare(graph, count, numerics, stored)
    source = Path(path).absolute()

    def again() -> Graph:
        return _checked_graph(read_artifact(source))

    def changed() -> NoReturn:
        fail("WH3001", f"'{source}' has changed since it was loaded", kind=ArtifactError)

    def schedules(graph: Graph) -> tuple[StoredSchedule, ...]:
        if not isinstance(engine, Native):
            return stored
        return engine.schedules(graph, count, numerics, stored)

    native, guarded = isinstance(engine, Native), numerics == "guarded"
    released = native and not guarded
    get_graph = made_again(graph, again, changed) if released else held(graph)
    if native and guarded:
        executable = Guarded(executable, lambda: engine.prepare(get_graph(), count, "exact"), note)
    program = Program(artifact.signature, get_graph, executable)
    programs = Programs(None, note, "the model")
    programs.made.append(program)
    compiled = CompiledModel(
        program,
        programs,
        engine=engine.name,
        target=artifact.target,
        numerics=artifact.numerics,
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
