"""whet as an ONNX backend: the interface of `onnx.backend.base`.

import whet.integrate.onnx_backend as backend
outputs = backend.run_model(model, [x])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx.backend.base import Backend, BackendRep

from whet.api.engine import Engine
from whet.core.types import Array
from whet.frontend.onnx import import_model
from whet.frontend.onnx.staging import run_stages
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.graph.passes import optimize


class WhetModel(BackendRep):
    """A model that is imported when its inputs are known, since their shapes decide.

    It runs in the interpreter unless an engine is given.
    """

    def __init__(self, model: Any, engine: Engine | None = None) -> None:
        self._model, self._engine = model, engine

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for a list of inputs in the model's order, or a mapping by name."""
        names = [i.name for i in self._model.graph.input]
        initial = {t.name for t in self._model.graph.initializer}
        given = inputs if isinstance(inputs, Mapping) else _by_position(names, initial, inputs)
        imported = import_model(self._model, given)
        values = [given[port.name] for port in imported.arguments]
        return run_stages(imported, imported.flatten(values), self._execute)

    def _execute(self, graph: Graph, arrays: Sequence[Array]) -> tuple[Array, ...]:
        if self._engine is None:
            return interpret(graph, arrays, round_halves=False)
        return self._engine.prepare(optimize(graph), 1)(arrays)


def _by_position(names: Sequence[str], initial: set[str], inputs: Sequence[Any]) -> dict[str, Any]:
    """Inputs by name; those with an initializer may be left out."""
    if len(inputs) != len(names):
        names = [n for n in names if n not in initial]
    return dict(zip(names, inputs))


class WhetBackend(Backend):
    """The entry points that ONNX tools call."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> WhetModel:
        return WhetModel(model, kwargs.get("engine"))

    @classmethod
    def run_model(
        cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0] == "CPU"


is_compatible = WhetBackend.is_compatible
prepare = WhetBackend.prepare
run_model = WhetBackend.run_model
supports_device = WhetBackend.supports_device
