"""Networks compiled with the search over graphs give what the interpreter gives without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import whet
from tests.joint.walks import inputs_for
from whet.frontend.onnx import import_model
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.graph.passes import optimize
from zoo.reduced import REDUCED, TOKENS


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("numerics", ["real", "exact"])
def test_networks(
    name: str, numerics: str, configured: Callable[..., None], tmp_path: Path
) -> None:
    configured(REWRITE_SECONDS=2, CACHE_DIR=tmp_path / "cache")
    model = REDUCED[name]()
    graph = import_model(model).graph
    arrays = inputs_for(graph, np.random.default_rng(0), TOKENS)
    compiled = whet.compile(model, threads=2, numerics=numerics)
    assert compiled.engine == "native"
    found = compiled(*arrays)
    results = found if isinstance(found, tuple) else (found,)
    for a, b in zip(results, interpret(graph, arrays, precise=True), strict=True):
        scale = float(np.max(np.abs(b)))
        np.testing.assert_allclose(a, b, atol=2e-5 * scale, rtol=1e-4)
    names = {"bert_base", "vit_tiny"}
    if numerics == "real" and name in names:
        assert len(compiled.graph.nodes) != len(as_written(model).nodes), "it was rewritten"


def as_written(model: object) -> Graph:
    return optimize(import_model(model).graph)
