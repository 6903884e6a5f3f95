"""Tensors without elements: every operator refuses their types or gives results of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from whet.core.errors import OperatorError, WhetError
from whet.core.types import Array, type_of
from whet.ops.base import REGISTRY, Sample


def emptied(sample: Sample, arrays: tuple[Array, ...]) -> Iterator[tuple[Array, ...]]:
    """The inputs with one extent made zero: wherever it occurs, or in one of the inputs."""
    for extent in {d for a in arrays for d in a.shape}:
        for only in (None, *range(len(arrays))):
            yield tuple(
                a[tuple(slice(0 if d == extent and only in (None, n) else d) for d in a.shape)]
                for n, a in enumerate(arrays)
            )


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_inputs_without_elements(name: str) -> None:
    cls = REGISTRY[name]
    rng = np.random.default_rng(sum(name.encode()))
    for sample in (*cls.samples(), *(cls.sample(rng) for _ in range(5))):
        for arrays in emptied(sample, sample.arrays(rng)):
            try:
                sample.op.infer_types(tuple(type_of(a) for a in arrays))
            except OperatorError:
                continue
            try:
                sample.op.run_reference(arrays)  # checks the types of the results
            except WhetError as error:
                if error.code != "WH1302":  # an index into nothing
                    raise
