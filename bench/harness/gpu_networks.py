"""The networks that are timed on GPUs, and graphs of launches that are played again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

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
