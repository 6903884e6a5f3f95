"""Operators for GPUs, their text run on this CPU (`tools.cuda_on_cpu`)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build.comparing import NO_CACHE, sample_graph
from tests.ops.test_properties import check_same
from tests.targets import needs_text_runner
from tools.cuda_on_cpu.backend import gpu_in_this_process
from whet.build.native import build
from whet.core.gpu import PRESETS
from whet.graph.interpret import interpret
from whet.ops.base import REGISTRY

pytestmark = needs_text_runner

NATIVE = [n for n in sorted(REGISTRY) if not REGISTRY[n].host and REGISTRY[n].deterministic]


@pytest.mark.parametrize("name", NATIVE)
def test_operators_agree_with_the_reference(name: str) -> None:
    """One of an operator's samples, on one of the kinds of GPUs: which one, its name decides."""
    rng = np.random.default_rng(sum(name.encode()))
    samples = list(REGISTRY[name].samples())
    sample = samples[sum(name.encode()) % len(samples)]
    target = list(PRESETS.values())[len(name) % len(PRESETS)]
    graph, arrays = sample_graph(sample), sample.arrays(rng)
    with gpu_in_this_process(checked=True):
        made = build(graph, target, 1, NO_CACHE)
        shown = f"{sample.op} on {', '.join(map(str, sample.types))}"
        for got, want in zip(made(arrays), interpret(graph, arrays), strict=True):
            check_same(got, np.asarray(want), shown)
