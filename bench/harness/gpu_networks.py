"""The networks that are timed on GPUs, what they should give, and graphs of launches to play."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from whet.core.types import Array
from zoo import convolutional, sequential
from zoo.networks import Network, described

BUILDERS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": convolutional.resnet50,
    "resnext50": convolutional.resnext50,
    "mobilenet_v2": convolutional.mobilenet_v2,
    "resnet18_3d": convolutional.resnet18_3d,
    "dcgan": convolutional.dcgan,
    "bert_base": sequential.bert_base,
    "vit_base": lambda: sequential.vit_tiny(width=768, heads=12),
}
Replay = Callable[[], None]
REPLAYS = 20


def networks(folder: Path, names: Sequence[str]) -> list[Network]:
    """The networks of these names as files in the folder."""
    found = []
    for name in names:
        path = folder / f"{name}.onnx"
        if not path.exists():
            onnx.save(BUILDERS[name](), path)
        inputs = tuple(described(i) for i in onnx.load(path).graph.input)
        found.append(Network(name, path, inputs))
    return found


def replay_of(executable: Any) -> Replay:
    """Plays what the last call of an executable, which has one segment, has recorded."""
    (segment,) = executable.segments
    (context,) = segment.idle[None]
    return lambda: context.driver.play(context.recording, context.stream)


def replayed_seconds(executable: Any) -> float:
    """Seconds of a replay by the GPU's own clock, the mean of some behind each other."""
    replay = replay_of(executable)
    (context,) = executable.segments[0].idle[None]
    driver, stream = context.driver, context.stream
    first, last = driver.new_event(timed=True), driver.new_event(timed=True)
    replay()
    driver.record(first, stream)
    for _ in range(REPLAYS):
        replay()
    driver.record(last, stream)
    driver.finish(last)
    seconds = driver.milliseconds(first, last) * 1e-3 / REPLAYS
    driver.close_event(first)
    driver.close_event(last)
    return float(seconds)


def reference(network: Network, sample: Mapping[str, Array]) -> list[Array]:
    """What ONNX Runtime computes in f32."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2  # of each of the networks that are compiled at the same time
    session = onnxruntime.InferenceSession(
        network.path, options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(result) for result in session.run(None, dict(sample))]


def error_of(model: Any, sample: Mapping[str, Array], wanted: list[Array]) -> float:
    """The largest difference of an output from the wanted one, relative to its norm."""
    return max(
        float(np.linalg.norm(np.asarray(got, np.float64) - want) / np.linalg.norm(want))
        for got, want in zip(model.results(**sample).values(), wanted, strict=True)
    )
