"""Importing a model: the walk over its graph, stage by stage."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from whet.core.errors import ModelError, UnsupportedError, fail
from whet.core.types import Array
from whet.frontend.onnx.binding import Bound, BoundTensor, bind_inputs
from whet.frontend.onnx.convert import NodeConverter, Scope
from whet.frontend.onnx.declared import check_declared, disagreements
from whet.frontend.onnx.imported import ImportedModel, InputSpec, Port, Structure
from whet.frontend.onnx.interrupts import Deferred, DeferredInside, Reported
from whet.frontend.onnx.load import Source, load_model
from whet.frontend.onnx.mapping import Converted, NeedsValue, Unsupported
from whet.frontend.onnx.problems import Failed, Problems
from whet.frontend.onnx.splice import Splicer
from whet.frontend.onnx.staging import Tail, rest_of_model
from whet.frontend.onnx.structure import (
    check_structure,
    describe,
    names_read,
    opset_versions,
)
from whet.frontend.onnx.tensors import Foreign
from whet.frontend.onnx.tracing import inputs_behind
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Graph, Input, Result, Value

Note = Callable[[str], None]


def import_model(
    model: Any, inputs: Mapping[str, Any] | None = None, *, note: Note | None = None
) -> ImportedModel:
    """The model as a graph.

    `model` is a path, bytes or an `onnx.ModelProto`.  `inputs` gives a shape (a tuple of
    integers) or an example array per input name; dimensions that stay open become 1, and
    `note` is called with a line about each.  An input whose value determines a shape is
    replaced by its example, which then guards the result.
    """
    source = load_model(model)
    check_structure(source.proto)
    return _import_source(source, None, inputs or {}, note)


def _import_source(
    source: Source,
    known: Mapping[str, Constant] | None,
    given: Mapping[str, Any],
    note: Note | None = None,
) -> ImportedModel:
    """The model of a source; `known` are constants of the stage before, None for the first."""
    notes: list[str] = []

    def add_note(text: str) -> None:
        notes.append(text)
        if note is not None:
            note(text)

    graph = source.proto.graph
    constants = {t.name for t in graph.initializer} | {
        s.values.name for s in graph.sparse_initializer
    }
    # An initializer may also be listed as an input: it is one only if the caller says so.
    infos = [i for i in graph.input if i.name not in constants or i.name in given]
    bound = bind_inputs(infos, given, add_note)
    initial: ChainMap[str, Converted] = ChainMap(dict(known or {}))
    NodeConverter(source, GraphBuilder(), Problems()).add_initializers(graph, initial)
    specialised: frozenset[str] = frozenset()
    while True:
        walk = _Walk(source, bound, initial, specialised, is_first=known is None)
        try:
            made = walk.run()
        except _Specialise as wanted:
            specialised |= wanted.names
            continue
        for text in disagreements(walk.disagreeing, [o.name for o in graph.output]):
            add_note(text)
        return replace(made, notes=tuple(notes))


class _Specialise(Exception):  # noqa: N818 - a signal to the loop above, no error of its own
    """Asks to start again with more inputs replaced by their examples."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names


@dataclass(slots=True)
class _Arguments:
    """The model's inputs as graph values, in flat order."""

    specialised: frozenset[str]
    builder: GraphBuilder
    specs: list[InputSpec] = field(default_factory=list)
    tensors: dict[str, BoundTensor] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    guards: dict[str, Array] = field(default_factory=dict)

    def add(self, name: str, bound: Bound) -> tuple[Converted, Structure]:
        """The value that stands for an input, and where its tensors lie in the flat list."""
        if bound is None or isinstance(bound, Foreign):
            return bound, None
        if isinstance(bound, tuple):
            items = [self.add(f"{name}[{n}]", item) for n, item in enumerate(bound)]
            return tuple(v for v, _ in items), tuple(s for _, s in items)
        fixed = name in self.specialised
        self.specs.append(InputSpec(name, bound.type, fixed))
        self.tensors[name] = bound
        position = len(self.specs) - 1
        if fixed:
            assert bound.example is not None
            self.guards[name] = bound.example
            return self.builder.constant(bound.example), position
        value = self.builder.input(name, bound.type)
        self.inputs.append(value)
        return value, position


class _Walk:
    """One pass over the model's graph, for a fixed set of specialised inputs."""

    def __init__(
        self,
        source: Source,
        bound: Mapping[str, Bound],
        initial: ChainMap[str, Converted],
        specialised: frozenset[str],
        *,
        is_first: bool,
    ) -> None:
        self.source, self.is_first = source, is_first
        self.graph = source.proto.graph
        self.builder = GraphBuilder()
        self.problems = Problems()
        self.converter = NodeConverter(source, self.builder, self.problems)
        self.arguments = _Arguments(specialised, self.builder)
        self.scope = Scope(initial.new_child(), opset_versions(source.proto.opset_import))
        self.values = self.scope.values
        self.ports = []
        for name, what in bound.items():
            self.values[name], structure = self.arguments.add(name, what)
            self.ports.append(Port(name, structure))
        self.splicer = Splicer(
            source.proto,
            self.values,
            lambda graph: self.converter.add_initializers(graph, self.values),
            self._convert,
        )
        self.declared = {v.name: v.type for v in (*self.graph.value_info, *self.graph.output)}
        self.disagreeing: dict[str, str] = {}
        """Notes on the values whose declared shape is not theirs."""
        self.waiting: list[Any] = []
        """Nodes that are left to the next stage, in order."""
        self.pending: set[str] = set()
        """The outputs of those nodes."""

    def run(self) -> ImportedModel:
        for node in self.graph.node:
            self._convert(node)
        self.problems.raise_if_any()
        names = [o.name for o in self.graph.output]
        tail: Tail | None = None
        if self.waiting:
            tail, outputs, labels = self._tail(names)
            results: tuple[Port, ...] = ()
        else:
            outputs, labels, results = self._flat_outputs(names)
        graph = Graph(
            tuple(self.arguments.inputs), tuple(outputs), tuple(labels), self.builder.names
        )
        return ImportedModel(
            graph,
            tuple(self.arguments.specs),
            tuple(self.ports),
            results,
            self.arguments.guards,
            tail=tail,
        )

    def _convert(self, node: Any) -> None:
        if self.pending.intersection(names_read(node)):
            self._wait(node)
            return
        try:
            results = self.converter.convert(node, self.scope)
        except DeferredInside:
            problem = self.splicer.splice(node)
            if problem is None:
                return
            results = self.converter.report(node, self.scope, Unsupported(problem))
        except Deferred:
            self._wait(node)
            return
        except NeedsValue as need:
            if any(self._may_wait_for(node, v) for v in (need.value, *need.others)):
                self._wait(node)
            elif self.splicer.splice(node) is not None:
                self._fail_without(node, need.value)
            return
        except (Unsupported, Reported) as reason:
            results = self.converter.report(node, self.scope, reason)
        for name, value in zip(node.output, results):
            if name:
                self.values[name] = value
                if name in self.declared and not isinstance(value, Failed):
                    said = check_declared(name, self.declared[name], value)
                    if said is not None:
                        self.disagreeing[name] = said

    def _wait(self, node: Any) -> None:
        self.waiting.append(node)
        self.pending.update(name for name in node.output if name)

    def _may_wait_for(self, node: Any, value: Value) -> bool:
        """Start again with the inputs behind the value fixed, if they can be.

        They cannot when the value depends on data: then a later stage knows the value, unless
        this node reads nothing but inputs, so that a later stage would know no more.
        """
        bound = self._tensors_behind(value)
        if bound and all(b.may_be_specialised for b in bound.values()):
            missing = [b for b in bound.values() if not b.is_known]
            if not missing:
                raise _Specialise(frozenset(bound))
            if not any(b.type.dtype.is_float for b in missing):
                return False  # integers that are asked for are sizes
        read = [self.values[name] for name in names_read(node)]
        return any(isinstance(v, Result) for v in _tensors(read))

    def _tensors_behind(self, value: Value) -> dict[str, BoundTensor]:
        return {n: self.arguments.tensors[n] for n in sorted(v.name for v in inputs_behind(value))}

    def _fail_without(self, node: Any, value: Value) -> None:
        bound = self._tensors_behind(value)
        missing = [f"'{n}'" for n, b in bound.items() if b.may_be_specialised and not b.is_known]
        large = [f"'{n}' ({b.type})" for n, b in bound.items() if not b.may_be_specialised]
        names = ", ".join(large or missing)
        fail(
            "WH2005",
            f"a shape in {describe(node)} depends on the value of "
            # What a later stage takes is nothing that a user knows.
            f"{names if self.is_first else 'numbers that the model computes'}",
            hint=f"give an example array for {names}" if self.is_first and not large else None,
            kind=ModelError,
        )

    def _tail(self, names: Sequence[str]) -> tuple[Tail, tuple[Value, ...], tuple[str, ...]]:
        """The rest for the next stage, and what this one must compute for it."""
        needed = dict.fromkeys(
            [name for node in self.waiting for name in sorted(names_read(node))] + list(names)
        )
        reads = {name: self.values[name] for name in needed if name not in self.pending}
        constants = {name: v for name, v in reads.items() if isinstance(v, Constant)}
        outputs, labels, ports = self._flat_outputs([n for n in reads if n not in constants])
        model = rest_of_model(self.source.proto, self.waiting, [p.name for p in ports])
        source = Source(model, self.source.external)
        return Tail(model, constants, ports, partial(_import_source, source)), outputs, labels

    def _flat_outputs(
        self, names: Sequence[str]
    ) -> tuple[tuple[Value, ...], tuple[str, ...], tuple[Port, ...]]:
        outputs: list[Value] = []
        labels: list[str] = []

        def place(label: str, value: Converted) -> Structure:
            if value is None:
                return None
            if isinstance(value, tuple):
                return tuple(place(f"{label}[{n}]", v) for n, v in enumerate(value))
            if isinstance(value, Foreign):
                fail("WH2002", f"'{label}': {value.reason}", kind=UnsupportedError)
            outputs.append(value)
            labels.append(label)
            return len(outputs) - 1

        ports = tuple(Port(name, place(name, self.values[name])) for name in names)
        return tuple(outputs), tuple(labels), ports


def _tensors(values: Sequence[Converted]) -> list[Value]:
    found = []
    for value in values:
        if isinstance(value, tuple):
            found += _tensors(value)
        elif isinstance(value, Value) and not isinstance(value, Constant):
            found.append(value)
    return found
