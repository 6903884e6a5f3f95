"""Opening what a command is given: a model or an artifact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import whet
from whet.api.compiled import CompiledModel
from whet.cli.console import Reporter
from whet.runtime.artifact import is_artifact


def open_model(
    model: str,
    inputs: Mapping[str, Any],
    reporter: Reporter,
    *,
    threads: int | None = None,
    numerics: str = "real",
) -> CompiledModel:
    """The model compiled, or the artifact loaded, with messages to the reporter."""
    with reporter.working(f"compiling {model}"):
        if is_artifact(model):
            return whet.load(model, threads, note=reporter.note)
        return whet.compile(model, inputs, threads, numerics=numerics, note=reporter.note)
