"""What importing a model gives: a graph with flat inputs and outputs, and how calls map to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from whet.core.errors import UsageError, check, fail
from whet.core.types import Array, TensorType
from whet.graph.graph import Graph

Structure = int | tuple["Structure", ...] | None
"""Where a value lies in a flat list of tensors: a tensor is its position, a sequence a tuple
of structures, an optional without an element None."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One tensor that a caller supplies.  The items of a sequence `s` are `s[0]`, `s[1]`, ..."""

    name: str
    type: TensorType
    specialised: bool
    """True if the graph holds for one value of this input only, which `guards` gives; such an
    input is no input of the graph."""


@dataclass(frozen=True, slots=True)
class Port:
    """A named input or output of the model and where its tensors lie in the flat list."""

    name: str
    structure: Structure


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
        found: list[Array | None] = [None] * len(self.inputs)
        check(
            len(values) == len(self.arguments),
            "WH3003",
            f"the model takes {len(self.arguments)} inputs, got {len(values)}",
            kind=UsageError,
        )
        for port, value in zip(self.arguments, values):
            _flatten_into(found, port.name, port.structure, value)
        return tuple(a for a in found if a is not None)

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
        return tuple(_packed(port.structure, outputs) for port in self.results)


def leaves(structure: Structure) -> Iterator[int]:
    """The positions in a structure, in order."""
    if isinstance(structure, tuple):
        for item in structure:
            yield from leaves(item)
    elif structure is not None:
        yield structure


def _flatten_into(found: list[Array | None], name: str, structure: Structure, value: Any) -> None:
    if isinstance(structure, int) and value is not None:
        found[structure] = np.asarray(value)
    elif isinstance(structure, tuple) and isinstance(value, (list, tuple)):
        check(
            len(value) == len(structure),
            "WH3003",
            f"input '{name}' was compiled for {len(structure)} items, got {len(value)}",
            kind=UsageError,
        )
        for n, (inner, item) in enumerate(zip(structure, value)):
            _flatten_into(found, f"{name}[{n}]", inner, item)
    elif structure is not None or value is not None:
        expected = {int: "a tensor", tuple: "a sequence"}.get(type(structure), "no value")
        fail(
            "WH3003",
            f"input '{name}' is {expected}, got {type(value).__name__}",
            kind=UsageError,
        )


def _packed(structure: Structure, outputs: Sequence[Array]) -> Any:
    if structure is None:
        return None
    if isinstance(structure, tuple):
        return [_packed(item, outputs) for item in structure]
    return outputs[structure]
