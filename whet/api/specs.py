"""From graphs and imported models to signatures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.graph.graph import Graph
from whet.ops.base import DynamicType, OutputType
from whet.runtime.ports import Port
from whet.runtime.signature import Signature, TensorSpec

if TYPE_CHECKING:
    from whet.frontend.onnx.imported import ImportedModel


def spec_of(name: str, type: OutputType) -> TensorSpec:
    """A value's type as a spec; the extents of a host operator's result stay open."""
    shape = (None,) * type.rank if isinstance(type, DynamicType) else type.shape
    return TensorSpec(name, type.dtype, shape)


def output_specs(graph: Graph) -> tuple[TensorSpec, ...]:
    return tuple(spec_of(name, v.type) for name, v in zip(graph.output_names, graph.outputs))


def graph_signature(graph: Graph) -> Signature:
    """The signature of a graph: every input and output is one tensor."""
    return Signature(
        arguments=tuple(Port(v.name, n) for n, v in enumerate(graph.inputs)),
        inputs=tuple(spec_of(v.name, v.type) for v in graph.inputs),
        results=tuple(Port(name, n) for n, name in enumerate(graph.output_names)),
        outputs=output_specs(graph),
    )


def imported_signature(imported: ImportedModel) -> Signature:
    """The signature of an imported model, with its guards."""
    return Signature(
        arguments=imported.arguments,
        inputs=tuple(spec_of(s.name, s.type) for s in imported.inputs),
        results=imported.results,
        outputs=() if imported.tail else output_specs(imported.graph),
        guards=dict(imported.guards),
    )
