"""Softmax and normalizations."""

from __future__ import annotations

import numpy as np

from tools.graph_fuzz.families.convolution import image
from tools.graph_fuzz.families.movement import some_axis
from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from whet.core.dtypes import DType
from whet.core.types import Shape

EPSILONS = [None, 1e-5, 1e-3, 1e-2]


def positive(g: Growth, dtype: DType, shape: Shape) -> Held:
    """A variance, or the like."""
    return g.operand((g.draw.rng.integers(1, 17, shape) / 8).astype(dtype.numpy), 0.8)


@generates("Softmax", "LogSoftmax", "Hardmax")
def softmax(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 6))
    axis = some_axis(g, v.rank)
    return g.emit(name, v, axis=g.draw.pick([None, axis if g.opset >= 11 else axis % v.rank]))


@generates("BatchNormalization")
def batch_norm(g: Growth, name: str) -> Held | list[Held]:
    v = g.tensor(g.types(name), rank=range(2, 6))
    channels = (v.shape[1],)
    statistics = v.dtype
    if g.opset >= 14:
        statistics = g.draw.pick([v.dtype, g.dtype(g.types(name, "T2" if g.opset >= 15 else "U"))])
    parameters = v.dtype
    if g.opset >= 15:
        parameters = g.draw.pick([v.dtype, g.dtype(g.types(name, "T1"))])
    scale, bias = (g.fresh(parameters, channels, 0.85) for _ in range(2))
    mean, variance = g.fresh(statistics, channels, 0.85), positive(g, statistics, channels)
    epsilon = g.draw.pick(EPSILONS)
    if g.opset >= 14 and g.draw.chance(0.25) and v.size:
        return g.emit(name, v, scale, bias, mean, variance, outputs=3, training_mode=1,
                      epsilon=epsilon, momentum=g.draw.pick([None, 0.75]))  # fmt: skip
    return g.emit(name, v, scale, bias, mean, variance, epsilon=epsilon)


@generates("LayerNormalization")
def layer_norm(g: Growth, name: str) -> Held | list[Held]:
    v = g.tensor(g.types(name), rank=range(1, 6))
    axis = some_axis(g, v.rank) if g.draw.chance(0.5) else -1
    scale = g.fresh(v.dtype, v.shape[axis % v.rank :], 0.85)
    bias = g.fresh(v.dtype, v.shape[axis % v.rank :], 0.85) if g.draw.chance(0.6) else None
    outputs = g.draw.pick([1, 1, 1, 3])
    return g.emit(name, v, scale, bias, outputs=outputs, axis=axis, epsilon=g.draw.pick(EPSILONS))


@generates("RMSNormalization")
def rms_norm(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 6))
    axis = some_axis(g, v.rank) if g.draw.chance(0.5) else -1
    dtype = g.draw.pick([v.dtype, g.dtype(g.types(name, "V"))])
    scale = g.fresh(dtype, v.shape[axis % v.rank :], 0.85)
    return g.emit(name, v, scale, axis=axis, epsilon=g.draw.pick(EPSILONS))


@generates("GroupNormalization")
def group_norm(g: Growth, name: str) -> Held:
    v = image(g, g.types(name))
    if not v.size:
        raise Impossible
    groups = g.draw.pick([n for n in range(1, v.shape[1] + 1) if v.shape[1] % n == 0])
    shape = (v.shape[1] if g.opset >= 21 else groups,)
    scale, bias = (g.fresh(v.dtype, shape, 0.85) for _ in range(2))
    return g.emit(name, v, scale, bias, num_groups=groups, epsilon=g.draw.pick(EPSILONS))


@generates("InstanceNormalization")
def instance_norm(g: Growth, name: str) -> Held:
    v = image(g, g.types(name))
    scale, bias = (g.fresh(v.dtype, (v.shape[1],), 0.85) for _ in range(2))
    return g.emit(name, v, scale, bias, epsilon=g.draw.pick(EPSILONS))


@generates("MeanVarianceNormalization")
def mean_variance(g: Growth, name: str) -> Held:
    v = image(g, g.types(name))
    axes = g.draw.some(range(v.rank), 0.5) or [v.rank - 1]
    default = v.rank == 4 and g.draw.chance(0.5)
    # Rows of equal values have no deviation to divide by.
    wide = v.array.astype(np.float64)
    if not g.special and (np.std(wide, (0, 2, 3) if default else tuple(axes)) < 1e-2).any():
        raise Impossible
    return g.emit(name, v, axes=None if default else axes)


@generates("LRN")
def lrn(g: Growth, name: str) -> Held:
    v = image(g, g.types(name))
    return g.emit(name, v, size=g.draw.pick([1, 2, 3, 5]), alpha=g.draw.pick([None, 0.25]),
                  beta=g.draw.pick([None, 0.5]), bias=g.draw.pick([None, 2.0]))  # fmt: skip


@generates("LpNormalization")
def lp_norm(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 6))
    return g.emit(name, v, axis=g.draw.pick([None, some_axis(g, v.rank)]),
                  p=g.draw.pick([None, 1, 2]))  # fmt: skip
