"""Graphs as planning sees them: whole, or a region of one over outer values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from whet.graph.graph import Node, Value, readers, topological


class Dag(Protocol):
    """Nodes between inputs and outputs."""

    @property
    def inputs(self) -> tuple[Value, ...]: ...
    @property
    def outputs(self) -> tuple[Value, ...]: ...
    @property
    def nodes(self) -> tuple[Node, ...]: ...
    @property
    def users(self) -> Mapping[Value, tuple[Node, ...]]: ...
    @property
    def names(self) -> Mapping[Node, str]: ...


@dataclass(frozen=True, eq=False)
class Region:
    """Nodes that the outputs need beyond the inputs, which are values of the graph around them."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    names: Mapping[Node, str] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return topological(self.outputs, self.inputs)

    @cached_property
    def users(self) -> Mapping[Value, tuple[Node, ...]]:
        return readers(self.nodes)
