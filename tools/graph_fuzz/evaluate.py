"""What a model gives, by the interpreter: in double precision, as declared, and with noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tools.graph_fuzz.noise import noisy, rightly_rounded
from tools.graph_fuzz.rounding import Noise
from whet.core.types import Array
from whet.frontend.onnx.imported import ImportedModel
from whet.graph.graph import Graph
from whet.graph.interpret import interpret

Run = tuple[Array, ...]
"""The outputs of a model: f64 for floating-point ones that are carried, else as declared."""


def run_model(
    imported: ImportedModel, flat: Sequence[Array], execute: Callable[[Graph, Sequence[Array]], Run]
) -> Run:
    """The model's outputs, stage by stage where shapes depend on data."""
    arrays = tuple(flat)
    while True:
        outputs = execute(imported.graph, imported.graph_inputs(arrays))
        if imported.tail is None:
            return outputs
        arrays = _declared(imported.graph, outputs)
        imported = imported.tail.stage(arrays)


def _declared(graph: Graph, outputs: Run) -> Run:
    with np.errstate(all="ignore"):
        return tuple(
            a.astype(v.type.dtype.numpy, copy=False) for a, v in zip(outputs, graph.outputs)
        )


def reference_runs(imported: ImportedModel, flat: Sequence[Array]) -> list[Run]:
    """The outputs in double precision first, then as declared, then with halves carried on."""
    runs = [
        run_model(imported, flat, lambda g, a: interpret(g, a, precise=True)),
        run_model(imported, flat, lambda g, a: interpret(g, a)),
    ]
    if any(v.type.dtype.name in ("f16", "bf16") for n in imported.graph.nodes for v in n.results):
        runs.append(run_model(imported, flat, lambda g, a: interpret(g, a, round_halves=False)))
    return runs


def noisy_runs(
    imported: ImportedModel, flat: Sequence[Array], count: int, seed: int, **settings: Any
) -> list[Run]:
    """The outputs with noise, `count` times."""
    rng = np.random.default_rng([seed, count])
    noises = [Noise(rng, n, **settings) for n in range(count)]
    return [run_model(imported, flat, lambda g, a, n=n: noisy(g, a, n)) for n in noises]


def rounded_run(imported: ImportedModel, flat: Sequence[Array]) -> Run:
    """The outputs when every operator is right to the last digit of its type."""
    return run_model(imported, flat, rightly_rounded)
