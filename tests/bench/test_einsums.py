"""Contractions with epilogues of their own: what they mean, and that one kernel computes each."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnxruntime
import pytest

import whet
from tests.build.comparing import plan_of
from whet.frontend.onnx import import_model
from whet.graph.passes import expand_composites, optimize
from zoo.einsums import CONTRACTIONS, Contraction


def small(contraction: Contraction) -> Contraction:
    extents = {c: min(extent, 5 + n) for n, (c, extent) in enumerate(contraction.extents.items())}
    return dataclasses.replace(contraction, extents=extents)


@pytest.mark.parametrize("contraction", CONTRACTIONS, ids=str)
def test_one_kernel_computes_what_the_model_says(contraction: Contraction) -> None:
    model = small(contraction).model()
    graph = expand_composites(optimize(import_model(model).graph))
    assert len(plan_of(graph).steps) == 1
    rng = np.random.default_rng(0)
    values = {
        i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim], np.float32)
        for i in model.graph.input
    }
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, values)
    found = whet.compile(model, threads=1)(*values.values())
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_work_is_that_of_the_sums() -> None:
    (first, *_) = CONTRACTIONS
    assert first.operations == 2 * 2 * 8 * 128 * 128 * 96
