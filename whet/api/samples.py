"""Inputs to try a model with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from whet.core.types import Array
from whet.runtime.ports import Port, pack
from whet.runtime.signature import Signature, TensorSpec


def sample_values(signature: Signature, given: Mapping[str, Any], seed: int = 0) -> tuple[Any, ...]:
    """One value per argument: the given one, or a random one of the right type.

    Reals are standard normal; integers are 0 or 1, which every vocabulary has; an input on
    whose value shapes depend gets the value that the model was compiled for.  A given number
    stands for a tensor without dimensions.
    """
    rng = np.random.default_rng(seed)
    flat = [signature.guards.get(spec.name, _random(spec, rng)) for spec in signature.inputs]

    def value(port: Port) -> Any:
        found = given.get(port.name)
        if isinstance(found, (bool, int, float)) and isinstance(port.structure, int):
            return np.asarray(found, signature.inputs[port.structure].dtype.numpy)
        return pack(port.structure, flat) if found is None else found

    return tuple(map(value, signature.arguments))


def _random(spec: TensorSpec, rng: np.random.Generator) -> Array:
    shape = tuple(d or 0 for d in spec.shape)
    if spec.dtype.is_float:
        return rng.standard_normal(shape).astype(spec.dtype.numpy)
    return rng.integers(0, 2, shape).astype(spec.dtype.numpy)
