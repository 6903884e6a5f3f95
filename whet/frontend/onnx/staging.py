"""Staging: models whose shapes depend on data are imported in pieces, while they run.

    i = NonZero(x); y = Gather(w, i); z = Add(y, b)

The graph of the first stage computes `i`; the type of `y` depends on how many elements that
has.  So `Gather` and `Add` stay ONNX nodes, in a small model with the input `i`, which is
imported when `i` is known, once per shape:

    stage 1: graph (x) -> (i)       stage 2: graph (i) -> (z)

The same holds for a shape that is computed from data (a Reshape to the result of an ArgMax):
the value is a specialised input of the next stage.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

from whet.core.types import Array, TensorType, type_of
from whet.frontend.onnx.imported import ImportedModel, Port
from whet.graph.graph import Constant, Graph
from whet.runtime.ports import pack

CACHED_STAGES = 16

Execute = Callable[[Graph, Sequence[Array]], Sequence[Array]]
Import = Callable[[Mapping[str, Constant], Mapping[str, Any]], ImportedModel]
"""Imports the rest of a model, given its constants and examples of its inputs."""


@dataclass(frozen=True)
class Tail:
    """The nodes that wait for values, as a model whose inputs are the outputs of the stage
    before it."""

    model: Any
    constants: Mapping[str, Constant]
    """What the nodes read that is known already."""
    ports: tuple[Port, ...]
    """Where each input of `model` lies among the outputs of the stage before."""
    import_rest: Import
    _made: OrderedDict[tuple[TensorType, ...], list[ImportedModel]] = field(
        default_factory=OrderedDict
    )

    def stage(self, arrays: Sequence[Array]) -> ImportedModel:
        """The rest of the model for these values; remembered per shape and guarded value."""
        key = tuple(type_of(a) for a in arrays)
        known = self._made.setdefault(key, [])
        self._made.move_to_end(key)
        for made in known:
            if made.guards_hold(arrays):
                return made
        examples = {p.name: pack(p.structure, arrays) for p in self.ports}
        made = self.import_rest(self.constants, examples)
        known.append(made)
        del known[:-CACHED_STAGES]
        if len(self._made) > CACHED_STAGES:
            self._made.popitem(last=False)
        return made


def rest_of_model(model: Any, nodes: Sequence[Any], reads: Sequence[str]) -> Any:
    """The model with only these nodes, and with what they read as its inputs."""
    rest = onnx.ModelProto()
    rest.ir_version = model.ir_version
    rest.opset_import.extend(model.opset_import)
    rest.functions.extend(model.functions)
    rest.graph.name = f"{model.graph.name} (rest)"
    rest.graph.node.extend(nodes)
    for name in reads:
        rest.graph.input.add().name = name
    rest.graph.output.extend(model.graph.output)
    return rest


def run_stages(model: ImportedModel, flat: Sequence[Array], execute: Execute) -> tuple[Any, ...]:
    """The model's results for flat inputs, stage by stage; `execute` runs one graph."""
    while True:
        outputs = execute(model.graph, model.graph_inputs(flat))
        if model.tail is None:
            return model.pack(outputs)
        model, flat = model.tail.stage(outputs), outputs
