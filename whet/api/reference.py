"""What a model means: its graph as imported, run in double precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.frontend.onnx import import_model
from whet.frontend.onnx.staging import run_stages
from whet.graph.interpret import interpret


def reference_results(model: Any, names: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    """One value per output of the model, computed without any pass.

    Floating-point values are carried in f64, except in models whose shapes depend on data:
    these are imported again for the values of each stage, with the types that they declare.
    """
    imported = import_model(model, dict(zip(names, values, strict=True)))
    precise = imported.tail is None
    flat = imported.flatten(values)
    return run_stages(imported, flat, lambda g, arrays: interpret(g, arrays, precise=precise))
