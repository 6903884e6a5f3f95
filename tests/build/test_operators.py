"""Every operator as native code gives what its reference gives."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.build.comparing import check_native, sample_graph
from whet.core.dtypes import DType, bf16, f32, f64, i32, i64, u8
from whet.core.types import Shape, type_of
from whet.ops.base import REGISTRY, Sample
from whet.ops.casting import Bitcast

RANDOM_SAMPLES = 2
NATIVE = [n for n in sorted(REGISTRY) if not REGISTRY[n].host and REGISTRY[n].deterministic]


@pytest.mark.parametrize("dtype", [f32, f64, i32, i64, u8, bf16], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3, 2)])
def test_bits_read_as_the_type_that_they_have(dtype: DType, shape: Shape) -> None:
    """That is no view of memory as far as the placement knows, and no reason to fail."""
    x = np.arange(math.prod(shape)).reshape(shape).astype(dtype.numpy)
    check_native(sample_graph(Sample(Bitcast(dtype), (type_of(x),))), (x,), f"bitcast of {dtype}")


@pytest.mark.parametrize("name", NATIVE)
def test_native_code_agrees_with_the_reference(name: str) -> None:
    cls = REGISTRY[name]
    rng = np.random.default_rng(sum(name.encode()))
    for sample in (*cls.samples(), *(cls.sample(rng) for _ in range(RANDOM_SAMPLES))):
        shown = f"{sample.op} on {', '.join(map(str, sample.types))}"
        check_native(sample_graph(sample), sample.arrays(rng), shown)
