"""A layer by torch: cuDNN and cuBLAS in a graph of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it

from harness.gpu_layers import GpuLayer
from whet.ops.conv import Conv

CALLS = 24
"""Calls of one graph."""
REPLAYS = 9
MOST_COPY_BYTES = 100 << 20
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
Way = tuple[str, tuple[Callable[[Any], Any], Any]]


def library_seconds(layer: GpuLayer, precision: str) -> tuple[float, str]:
    """The fastest way in which torch computes the layer alone, without what follows it, and which
    that is: seconds of a call within a graph, each with weights of its own."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    dtype = TYPES.get(precision, torch.float32)
    x, w = (torch.randn(v.tensor_type.shape, dtype=dtype, device="cuda")
            for v in layer.node.inputs[:2])  # fmt: skip
    ways = dict(_convolutions(layer.node.op, x, w) if isinstance(layer.node.op, Conv)
                else _products(x, w))  # fmt: skip
    with torch.no_grad():
        times = {name: _seconds(call, weight) for name, (call, weight) in ways.items()}
    best = min(times, key=lambda name: times[name])
    return times[best], best


def _convolutions(op: Conv, x: Any, w: Any) -> Iterator[Way]:
    rank = x.ndim - 2
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]
    low, high = op.pads[:rank], op.pads[rank:]
    assert low == high
    kinds = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
    for name, kind in kinds.items():
        form = torch.channels_last_3d if rank == 3 and name == "nhwc" else kind
        own, weight = x.contiguous(memory_format=form), w.contiguous(memory_format=form)
        yield (
            name,
            (
                lambda v, own=own: function(own, v, None, op.strides, low, op.dilations, op.groups),
                weight,
            ),
        )


def _products(x: Any, w: Any) -> Iterator[Way]:
    rows = x.reshape(-1, x.shape[-1])
    yield "x @ w", (lambda v: rows @ v, w)
    yield "x @ w.T", (lambda v: rows @ v.T, w.T.contiguous())


def _seconds(call: Callable[[Any], Any], weight: Any) -> float:
    copies = max(1, min(CALLS, MOST_COPY_BYTES // weight.nbytes))
    weights = [weight.clone() for _ in range(copies)]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call(weights[0])
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call(weights[n % copies]) for n in range(CALLS)]
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    samples = []
    for _ in range(REPLAYS):
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        samples.append(first.elapsed_time(last) * 1e-3 / CALLS)
    del kept
    return float(np.median(samples[1:]))
