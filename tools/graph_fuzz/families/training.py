"""Losses, optimizer steps and other functions of the standard."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from whet.core.types import Shape

DOMAIN = "ai.onnx.preview.training"


@generates("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(g: Growth, name: str) -> Held | list[Held]:
    v = g.tensor(g.types(name), range(2, 5), lambda v: 0 < v.size <= 600)
    classes = v.shape[1]
    labels = g.draw.rng.integers(0, classes, (v.shape[0], *v.shape[2:])).astype(np.int64)
    weights = None
    if g.draw.chance(0.4):
        shares = g.draw.rng.integers(1, 9, (classes,)) / 8
        weights = g.operand(shares.astype(v.dtype.numpy), 0.8)
    ignore = g.draw.pick([None, None, 0]) if classes > 1 else None
    if ignore is not None and (labels == 0).all():
        raise Impossible
    outputs = g.draw.integer(1, 2) if name.startswith("Softmax") else 1
    return g.emit(name, v, g.operand(labels), weights, outputs=outputs, ignore_index=ignore,
                  reduction=g.draw.pick([None, "none", "sum", "mean"]))  # fmt: skip


@generates("AffineGrid")
def affine_grid(g: Growth, name: str) -> Held:
    dtype = g.dtype(g.types(name, "T1"))
    space, batch = g.draw.pick([2, 3]), g.draw.integer(1, 2)
    size = [batch, g.draw.integer(1, 3), *(g.draw.integer(1, 5) for _ in range(space))]
    theta = g.same(dtype, (batch, space, space + 1))
    return g.emit(name, theta, g.ints(size), align_corners=g.draw.pick([None, 0, 1]))


@generates("Adagrad", "Adam", "Momentum", domain=DOMAIN)
def optimizer(g: Growth, name: str) -> Held | list[Held]:
    rates = [d for d in g.types(name, "T1", DOMAIN) if d in g.types(name, "T3", DOMAIN)]
    dtype = g.dtype(rates)
    rate = g.operand(np.asarray(0.125, dtype.numpy))
    step = g.operand(np.asarray(g.draw.integer(0, 3), np.int64))
    count = g.draw.integer(1, 2)
    shapes: list[Shape] = [g.shape(g.draw.integer(1, 3), most=200) for _ in range(count)]
    kinds = {"Adagrad": "xgs", "Adam": "xgms", "Momentum": "xgm"}[name]
    operands = [
        g.operand(g.draw.rng.integers(1, 17, s).astype(dtype.numpy) / dtype.numpy.type(8))
        if kind == "s" else g.same(dtype, s)
        for kind in kinds for s in shapes
    ]  # fmt: skip
    given: dict[str, Any] = {"norm_coefficient": 0.25}
    if name == "Momentum":
        given |= {"alpha": 0.75, "beta": 0.5, "mode": g.draw.pick(["standard", "nesterov"])}
    outputs = count * (len(kinds) - 1)
    return g.emit(name, rate, step, *operands, outputs=outputs, domain=DOMAIN, **given)
