"""The result of an import: a graph with flat inputs and outputs, and how calls map to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from whet.core.errors import UsageError, check, fail
from whet.core.types import Array, TensorType
from whet.graph.graph import Graph
from whet.runtime.ports import Port as Port, Structure as Structure, pack, unpack


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One tensor that a caller supplies.  The items of a sequence `s` are `s[0]`, `s[1]`, ..."""

    name: str
    type: TensorType
    specialised: bool
    """True if the graph holds for one value of this input only, which `guards` gives; such an
    input is no input of the graph."""


class Remainder(Protocol):
    """The part of a model whose shapes are known only after the graph has run."""

    def stage(self, arrays: Sequence[Array]) -> ImportedModel:
        """The rest of the model for these outputs of the graph, which are its flat inputs."""


@dataclass(frozen=True)
class ImportedModel:
    """A model as a graph.

    A call takes one value per port of `arguments`; `flatten` turns these into the flat list
    that `inputs` describes, `graph_inputs` leaves out what is specialised (after comparing it
    with `guards`), and `pack` turns the graph's outputs into one value per port of `results`.

    With a `tail` the graph computes only what does not depend on data-dependent shapes: its
    outputs are the flat inputs of `tail.stage(outputs)`, which gives the model's results.
    """

    graph: Graph
    inputs: tuple[InputSpec, ...]
    arguments: tuple[Port, ...]
    results: tuple[Port, ...]
    guards: Mapping[str, Array] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tail: Remainder | None = None

    def flatten(self, values: Sequence[Any]) -> tuple[Array, ...]:
        """The flat arrays behind one value per argument port."""
        found: dict[int, Array] = {}

        def place(position: int, name: str, value: Any) -> None:
            found[position] = np.asarray(value)

        check(
            len(values) == len(self.arguments),
            "WH3003",
            f"the model takes {len(self.arguments)} inputs, got {len(values)}",
            kind=UsageError,
        )
        for port, value in zip(self.arguments, values):
            misfit = unpack(port, value, place)
            if misfit is not None:
                fail("WH3003", misfit.reason, kind=UsageError)
        return tuple(found[n] for n in range(len(self.inputs)))

    def guards_hold(self, flat: Sequence[Array]) -> bool:
        """True if the specialised inputs have the values that the graph was made for."""
        return all(
            np.array_equal(array, self.guards[spec.name])
            for spec, array in zip(self.inputs, flat, strict=True)
            if spec.specialised
        )

    def graph_inputs(self, flat: Sequence[Array]) -> tuple[Array, ...]:
        """The arrays for the graph's own inputs."""
        return tuple(a for spec, a in zip(self.inputs, flat, strict=True) if not spec.specialised)

    def pack(self, outputs: Sequence[Array]) -> tuple[Any, ...]:
        """One value per result port: an array, a list of values, or None."""
        return tuple(pack(port.structure, outputs) for port in self.results)
