"""Opening what a command is given: a model or an artifact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import whet
from whet.api.compiled import CompiledModel
from whet.api.engine import Native, default_engine
from whet.cli.console import Reporter
from whet.core.foreign import require_here
from whet.core.target import HERE
from whet.runtime.artifact import is_artifact


def open_model(
    model: str,
    inputs: Mapping[str, Any],
    reporter: Reporter,
    *,
    threads: int | None = None,
    numerics: str = "real",
    target: str | None = None,
    to_run: bool = True,
) -> CompiledModel:
    """The model compiled, or the artifact loaded, with messages to the reporter.

    What is not `to_run` may be for another processor.
    """
    with reporter.working(f"compiling {model}"):
        if is_artifact(model):
            return whet.load(model, threads, target, note=reporter.note)
        if to_run:
            require_runnable(target, reporter)
        return whet.compile(
            model, inputs, threads, target=target, numerics=numerics, note=reporter.note
        )


def require_runnable(target: str | None, reporter: Reporter) -> None:
    """`WH1305` if code for the target does not run here, before time is spent on it."""
    engine = default_engine(reporter.note, target)
    if isinstance(engine, Native):
        require_here(engine.target)


def engine_text(compiled: CompiledModel) -> str:
    """The engine, and the target if it is not this machine as it is."""
    other = compiled.target != HERE and compiled.engine == Native.name
    return f"{compiled.engine} for {compiled.target}" if other else compiled.engine
