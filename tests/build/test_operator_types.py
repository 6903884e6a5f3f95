"""Operators on other element types than their samples have, for levels below this machine's.

A type that no instruction of a processor knows must run all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.build.comparing import NO_CACHE, guarded_results, sample_graph
from tests.ops.test_properties import check_same
from tests.targets import LEVELS
from whet.build.native import build
from whet.core.cpu import named_target
from whet.core.dtypes import DType, bf16, f16, f32, i8
from whet.core.errors import WhetError
from whet.core.types import Array, TensorType
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.ops.base import REGISTRY, Op

OPERATORS = [n for n in sorted(REGISTRY) if not REGISTRY[n].host and REGISTRY[n].deterministic]
TARGETS = [named_target(name) for name in LEVELS[:2]]
"""The lowest ones: what they lack is the most."""


def retyped(cls: type[Op], dtype: DType) -> Iterator[tuple[Graph, tuple[Array, ...]]]:
    """The first sample of an operator that is on f32 and also takes the type, if there is one."""
    rng = np.random.default_rng(0)
    for sample in (*cls.samples(), cls.sample(rng)):
        types = tuple(TensorType(t.shape, dtype) if t.dtype is f32 else t for t in sample.types)
        try:
            graph = sample_graph(replace(sample, types=types))
        except WhetError:
            continue  # not of this type
        if types != sample.types:
            yield graph, tuple(map(_converted, sample.arrays(rng), types, sample.types))
            return


def _converted(array: Array, wanted: TensorType, given: TensorType) -> Array:
    if wanted == given:
        return array
    scaled = array if wanted.dtype.is_float else 3 * np.abs(array)
    return scaled.astype(wanted.dtype.numpy)


@pytest.mark.parametrize("name", OPERATORS)
def test_types_without_instructions(name: str) -> None:
    for number, dtype in enumerate((f16, bf16, i8)):
        for graph, arrays in retyped(REGISTRY[name], dtype):
            target = TARGETS[number % len(TARGETS)]
            with np.errstate(all="ignore"):
                expected = interpret(graph, arrays)
            executable = build(graph, target, 1, NO_CACHE)
            for results in guarded_results(executable, graph, arrays):
                for got, want in zip(results, expected, strict=True):
                    check_same(got, np.asarray(want), f"{graph} for {target.name}")
