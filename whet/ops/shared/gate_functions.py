"""The functions that the gates of recurrent layers can have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.types import Array
from whet.ops.activation import (
    Elu,
    HardSigmoid,
    LeakyRelu,
    Relu,
    Sigmoid,
    Softplus,
    Softsign,
    ThresholdedRelu,
)
from whet.ops.arithmetic import Add, Mul, Tanh
from whet.ops.base import Builder
from whet.ops.shared.precision import scalar


@dataclass(frozen=True)
class Activation:
    """A gate's function: as operators and in NumPy, with the defaults of its parameters.

    A default of None says that the function does not have the parameter.
    """

    build: Callable[[Builder, Any, float, float], Any]
    numpy: Callable[[Array, float, float], Array]
    alpha: float | None = None
    beta: float | None = None


def _affine(b: Builder, x: Any, alpha: float, beta: float) -> Any:
    return b(Add(), b(Mul(), x, scalar(b, alpha, x)), scalar(b, beta, x))


def _scaled_tanh(b: Builder, x: Any, alpha: float, beta: float) -> Any:
    inner = b(Tanh(), b(Mul(), x, scalar(b, beta, x)))
    return b(Mul(), inner, scalar(b, alpha, x))


ACTIVATIONS: dict[str, Activation] = {
    "tanh": Activation(lambda b, x, _a, _b: b(Tanh(), x), lambda x, _a, _b: np.tanh(x)),
    "sigmoid": Activation(lambda b, x, _a, _b: b(Sigmoid(), x), lambda x, _a, _b: Sigmoid.numpy(x)),
    "relu": Activation(lambda b, x, _a, _b: b(Relu(), x), lambda x, _a, _b: np.maximum(x, 0)),
    "affine": Activation(_affine, lambda x, alpha, beta: alpha * x + beta, 1.0, 0.0),
    "leakyrelu": Activation(
        lambda b, x, alpha, _b: b(LeakyRelu(alpha), x),
        lambda x, alpha, _b: np.where(x >= 0, x, alpha * x),
        0.01,
    ),
    "thresholdedrelu": Activation(
        lambda b, x, alpha, _b: b(ThresholdedRelu(alpha), x),
        lambda x, alpha, _b: np.where(x > alpha, x, 0),
        1.0,
    ),
    "scaledtanh": Activation(
        _scaled_tanh, lambda x, alpha, beta: alpha * np.tanh(beta * x), 1.0, 1.0
    ),
    "hardsigmoid": Activation(
        lambda b, x, alpha, beta: b(HardSigmoid(alpha, beta), x),
        lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
        0.2,
        0.5,
    ),
    "elu": Activation(
        lambda b, x, alpha, _b: b(Elu(alpha), x),
        lambda x, alpha, _b: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))),
        1.0,
    ),
    "softsign": Activation(
        lambda b, x, _a, _b: b(Softsign(), x), lambda x, _a, _b: x / (1 + np.abs(x))
    ),
    "softplus": Activation(
        lambda b, x, _a, _b: b(Softplus(), x), lambda x, _a, _b: np.logaddexp(x, 0)
    ),
}
