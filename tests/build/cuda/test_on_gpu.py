"""Models on a GPU give what the interpreter gives: `make test-gpu`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build.comparing import NO_CACHE, sample_graph
from tests.ops.test_properties import check_same
from whet.build.backend import named_target
from whet.build.native import build
from whet.graph.interpret import interpret
from whet.ops.base import REGISTRY

pytestmark = pytest.mark.gpu

NATIVE = [n for n in sorted(REGISTRY) if not REGISTRY[n].host and REGISTRY[n].deterministic]


@pytest.mark.parametrize("name", NATIVE)
def test_operators_agree_with_the_reference(name: str) -> None:
    cls = REGISTRY[name]
    rng = np.random.default_rng(sum(name.encode()))
    for sample in (*cls.samples(), *(cls.sample(rng) for _ in range(2))):
        graph, arrays = sample_graph(sample), sample.arrays(rng)
        made = build(graph, named_target("cuda"), 1, NO_CACHE)
        shown = f"{sample.op} on {', '.join(map(str, sample.types))}"
        for got, want in zip(made(arrays), interpret(graph, arrays), strict=True):
            check_same(got, np.asarray(want), shown)
