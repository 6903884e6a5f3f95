"""The networks by name, and reading those that others have exported."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from whet.core.types import Array
from zoo import convolutional, sequential

BUILDERS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": convolutional.resnet50,
    "mobilenet_v2": convolutional.mobilenet_v2,
    "resnet18_3d": convolutional.resnet18_3d,
    "dcgan": convolutional.dcgan,
    "bert_base": sequential.bert_base,
    "resnext50": convolutional.resnext50,
    "nasnet_a": convolutional.nasnet_a,
    "nasrnn": sequential.nasrnn,
    "squeezenet": convolutional.squeezenet,
    "inception_v3": convolutional.inception_v3,
    "vit_tiny": sequential.vit_tiny,
    "llama_prefill": sequential.llama_prefill,
}


@dataclass(frozen=True, slots=True)
class Network:
    """An ONNX file and the names, shapes and types of its inputs."""

    name: str
    path: Path
    inputs: tuple[tuple[str, tuple[int, ...], str], ...]

    def sample(self, seed: int = 7, tokens: int = 30_000) -> dict[str, Array]:
        """Seeded inputs; integers are numbers of tokens, of which there are so many."""
        rng = np.random.default_rng(seed)
        values: dict[str, Array] = {}
        for name, shape, dtype in self.inputs:
            if dtype.startswith("int"):
                values[name] = rng.integers(0, tokens, shape).astype(dtype)
            else:
                values[name] = rng.standard_normal(shape, np.float32)
        return values


def build_networks(folder: Path, only: Sequence[str] | None = None) -> list[Network]:
    """The built-in networks, written to the folder."""
    found = []
    for name, build in BUILDERS.items():
        if only and name not in only:
            continue
        path = folder / f"{name}.onnx"
        model = build()
        onnx.save(model, path)
        inputs = tuple(described(i) for i in model.graph.input)
        found.append(Network(name, path, inputs))
    return found


def described(value: onnx.ValueInfoProto) -> tuple[str, tuple[int, ...], str]:
    """Name, shape and type of an input."""
    tensor = value.type.tensor_type
    shape = tuple(d.dim_value for d in tensor.shape.dim)
    return value.name, shape, helper.tensor_dtype_to_np_dtype(tensor.elem_type).name


def read_networks(folder: Path, only: Sequence[str] | None = None) -> list[Network]:
    """The networks of batch 1 that the folder's index.json lists."""
    index = json.loads((folder / "index.json").read_text())
    found = []
    for entry in index.values():
        if entry["batch"] != 1 or entry["kind"] != "network":
            continue
        if only and entry["name"] not in only:
            continue
        inputs = tuple((n, tuple(s), d) for n, s, d in entry["inputs"])
        found.append(Network(entry["name"], folder / entry["file"], inputs))
    return found
