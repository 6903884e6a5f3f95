"""Inputs to try a model with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from whet.core.types import Array
from whet.runtime.ports import leaves, pack
from whet.runtime.signature import Signature, TensorSpec


def sample_values(signature: Signature, given: Mapping[str, Any], seed: int = 0) -> tuple[Any, ...]:
    """One value per argument: the given one, or a random one of the right type.

    Reals are standard normal; integers are 0 or 1, which every vocabulary has; an input on
    whose value shapes depend gets the value that the model was compiled for.
    """
    rng = np.random.default_rng(seed)
    arrays: dict[int, Array] = {}
    for port in signature.arguments:
        for position in leaves(port.structure):
            spec = signature.inputs[position]
            guard = signature.guards.get(spec.name)
            arrays[position] = _random(spec, rng) if guard is None else guard
    flat = [arrays[n] for n in range(len(signature.inputs))]
    return tuple(given.get(p.name, pack(p.structure, flat)) for p in signature.arguments)


def _random(spec: TensorSpec, rng: np.random.Generator) -> Array:
    shape = tuple(d or 0 for d in spec.shape)
    if spec.dtype.is_float:
        return rng.standard_normal(shape).astype(spec.dtype.numpy)
    return rng.integers(0, 2, shape).astype(spec.dtype.numpy)
