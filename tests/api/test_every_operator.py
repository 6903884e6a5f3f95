"""Every operator can be compiled, stored, loaded and called, with the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import whet
from whet.graph.graph import apply, make_input
from whet.ops import REGISTRY


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_operator_survives_storage(name: str, tmp_path: Path) -> None:
    for n, sample in enumerate(REGISTRY[name].samples()):
        inputs = tuple(make_input(f"x{k}", t) for k, t in enumerate(sample.types))
        results = apply(sample.op, *inputs)
        graph = whet.Graph(inputs, results, tuple(f"y{k}" for k in range(len(results))))
        compiled = whet.compile(graph, note=lambda message: None)
        compiled.save(tmp_path / f"{n}.whet")
        loaded = whet.load(tmp_path / f"{n}.whet")
        arrays = sample.arrays(np.random.default_rng(n))
        expected, got = compiled.results(*arrays), loaded.results(*arrays)
        assert str(loaded.graph) == str(compiled.graph)
        assert list(got) == list(expected)
        if name.startswith("random"):
            continue
        for key, array in expected.items():
            assert (got[key].dtype, got[key].shape) == (array.dtype, array.shape)
            assert got[key].tobytes() == array.tobytes(), key
