"""Every operator as native code gives what its reference gives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build.comparing import check_native, sample_graph
from whet.ops.base import REGISTRY

RANDOM_SAMPLES = 2
NATIVE = [n for n in sorted(REGISTRY) if not REGISTRY[n].host and REGISTRY[n].deterministic]


@pytest.mark.parametrize("name", NATIVE)
def test_native_code_agrees_with_the_reference(name: str) -> None:
    cls = REGISTRY[name]
    rng = np.random.default_rng(sum(name.encode()))
    for sample in (*cls.samples(), *(cls.sample(rng) for _ in range(RANDOM_SAMPLES))):
        shown = f"{sample.op} on {', '.join(map(str, sample.types))}"
        check_native(sample_graph(sample), sample.arrays(rng), shown)
