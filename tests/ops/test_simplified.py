"""Simplifying the tensor expressions of real operators keeps every bit of their results."""

from __future__ import annotations

import numpy as np
import pytest

from whet.ir.evaluate import evaluate
from whet.ir.simplify import simplify
from whet.ir.tensor import Compute, placeholder, stages
from whet.ops.base import REGISTRY

OPERATORS = sorted(name for name, cls in REGISTRY.items() if cls.compute is not None)


@pytest.mark.parametrize("name", OPERATORS)
def test_simplified_stages_give_the_same_bits(name: str) -> None:
    rng = np.random.default_rng(0)
    for sample in REGISTRY[name].samples()[:2]:
        inputs = tuple(placeholder(t.shape, t.dtype, f"x{n}") for n, t in enumerate(sample.types))
        arrays = dict(zip(inputs, sample.arrays(rng)))
        for stage in stages(sample.op.compute_tensors(inputs)):
            if isinstance(stage, Compute):
                (expected,) = evaluate([stage], arrays)
                simple = simplify(stage.body)
                (result,) = evaluate([Compute(stage.name, stage.axes, simple)], arrays)
                np.testing.assert_array_equal(result, expected, strict=True)
                assert simplify(simple) is simple
                arrays[stage] = expected
