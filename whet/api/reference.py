"""The meaning of a model: its graph as imported, run in double precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.api.compiled import CompiledModel
from whet.core.errors import UsageError, check
from whet.frontend.onnx import import_model
from whet.frontend.onnx.staging import run_stages
from whet.graph.interpret import interpret
from whet.runtime.ports import Misfit


def stored_reference_results(compiled: CompiledModel, values: Sequence[Any]) -> tuple[Any, ...]:
    """The same of a model that was stored: all that is left of it is its graph after all passes."""
    signature = compiled.signature
    flat = signature.flatten(values)
    check(not isinstance(flat, Misfit), "WH3003", getattr(flat, "reason", ""), kind=UsageError)
    assert not isinstance(flat, Misfit)
    results = interpret(compiled.graph, signature.unguarded(flat), precise=True)
    return tuple(signature.pack(results).values())


def reference_results(model: Any, names: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    """One value per output of the model, computed without any pass.

    Floating-point values are carried in f64, except in models whose shapes depend on data:
    these are imported again for the values of each stage, with the types that they declare.
    """
    imported = import_model(model, dict(zip(names, values, strict=True)))
    precise = imported.tail is None
    flat = imported.flatten(values)
    return run_stages(imported, flat, lambda g, arrays: interpret(g, arrays, precise=precise))
