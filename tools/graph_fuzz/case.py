"""A case: a model, inputs for it, and how it is compiled and called.  Stored as plain files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tools.graph_fuzz.draw import Draw
from tools.graph_fuzz.targets import NAMES
from whet.core.types import Array
from whet.frontend.onnx.external import ExternalData
from whet.frontend.onnx.tensors import Foreign, read_tensor

WAYS = {"plain": 84, "cached": 8, "artifact": 8}
NUMERICS = {"real": 75, "exact": 13, "guarded": 12}
MOST_CHECKED = 4
"""Nodes of models that are compiled with checks, which take long to compile."""
LAYOUTS = ("fortran", "reversed", "sparse", "unaligned")


@dataclass(frozen=True)
class Variant:
    """How a model is compiled and called."""

    target: str = "cpu"
    threads: int = 1
    numerics: str = "real"
    way: str = "plain"
    """plain, cached (compiled twice, the second time from the cache), artifact (stored, loaded)."""
    checked: bool = False
    layout: str = "sparse"
    """Another memory layout in which inputs are given too."""
    pages: bool = True
    """Forbidden pages around arrays, which end the process; else margins that are looked at."""


def draw_variant(seed: int, index: int, target: str | None, style: str, nodes: int) -> Variant:
    """The variant of that number, for a model with that kind of values and so many nodes."""
    draw = Draw(seed, index, 1)
    name = target or NAMES[index % len(NAMES)]
    threads = draw.pick([2, 4, 8, 16]) if name == "many-cores" else draw.pick([1, 1, 2, 2, 3, 4])
    # What is only true of real numbers need not hold for infinities.
    kinds = {"exact": 6, "guarded": 4} if style == "special" else NUMERICS
    return Variant(
        target=name,
        threads=threads,
        numerics=draw.weighted(kinds),
        way=draw.weighted(WAYS),
        checked=nodes <= MOST_CHECKED and draw.chance(0.12),
        layout=draw.pick(LAYOUTS),
    )


@dataclass(frozen=True)
class Case:
    """A model with inputs and a variant."""

    model: Any
    inputs: Mapping[str, Array]
    variant: Variant

    @property
    def size(self) -> int:
        """Nodes, bodies included."""
        return count_nodes(self.model.graph)


def count_nodes(graph: Any) -> int:
    bodies = [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
    return len(graph.node) + sum(map(count_nodes, bodies))


def save_case(case: Case, folder: Path) -> None:
    """Writes the model, its inputs as ONNX tensors, and the variant."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    (folder / "model.txt").write_text(onnx.printer.to_text(case.model) + "\n")
    inputs: Any = onnx.GraphProto()
    inputs.initializer.extend(numpy_helper.from_array(a, n) for n, a in case.inputs.items())
    (folder / "inputs.pb").write_bytes(inputs.SerializeToString())
    (folder / "variant.json").write_text(json.dumps(dataclasses.asdict(case.variant), indent=1))


def load_case(folder: Path) -> Case:
    """The case that `save_case` wrote."""
    model: Any = onnx.ModelProto()
    model.ParseFromString((folder / "model.onnx").read_bytes())
    inputs: Any = onnx.GraphProto()
    inputs.ParseFromString((folder / "inputs.pb").read_bytes())
    arrays = {}
    for tensor in inputs.initializer:
        array = read_tensor(tensor, ExternalData(None))
        assert not isinstance(array, Foreign), array.reason
        arrays[tensor.name] = np.array(array)
    return Case(model, arrays, Variant(**json.loads((folder / "variant.json").read_text())))
