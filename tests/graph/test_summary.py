"""Counts and estimates of a graph."""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import f32
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.graph.summary import summarize
from whet.ops import REGISTRY


def test_summary_of_a_small_network() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((1, 3, 8, 8), f32))
    w = b.constant(np.ones((4, 3, 3, 3), np.float32))
    conv = REGISTRY["conv"](strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1))
    y = b.one(REGISTRY["relu"](), b.one(conv, x, w))
    summary = summarize(Graph((x,), (y,), ("y",)))
    outputs = 4 * 6 * 6
    assert summary.nodes == {"conv": 1, "relu": 1}
    assert summary.flops == outputs * (2 * 27 + 1)
    assert summary.weight_bytes == 4 * 3 * 9 * 4
    assert summary.activation_bytes == 2 * outputs * 4
    assert summary.peak_bytes == 2 * outputs * 4
    assert "flops        7,920" in str(summary)


def test_composites_count_what_they_expand_into() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((2, 8), f32))
    summary = summarize(Graph((x,), (b.one(REGISTRY["softmax"](axis=1), x),), ("y",)))
    assert summary.nodes == {"softmax": 1}
    assert summary.flops >= 2 * 8 * 4  # maximum, difference, exponential, sum, quotient


def test_peak_is_what_is_alive_together() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType((256,), f32))
    y = x
    for _ in range(10):
        y = b.one(REGISTRY["exp"](), y)
    summary = summarize(Graph((x,), (y,), ("y",)))
    assert summary.activation_bytes == 10 * 1024
    assert summary.peak_bytes == 2 * 1024
