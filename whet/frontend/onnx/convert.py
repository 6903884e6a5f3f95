"""Converting nodes: finds what an ONNX node means and applies it to graph values.

A node means, in this order: a function that the model itself defines, an entry of the mapping
table, or the function body that its operator set declares.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.core.errors import ModelError, OperatorError, check
from whet.frontend.onnx.attributes import (
    OLDEST_OPSET,
    Attributes,
    changed_since,
    check_node,
    decode_attributes,
    find_schema,
    find_signature,
    named_attributes,
)
from whet.frontend.onnx.functions import Function, declared_function, has_function
from whet.frontend.onnx.interrupts import Deferred, DeferredInside, Reported
from whet.frontend.onnx.load import Source
from whet.frontend.onnx.mapping import (
    ClosedGraph,
    Context,
    Converted,
    Unsupported,
    find_converter,
)
from whet.frontend.onnx.problems import Failed, Problems, failed_outputs
from whet.frontend.onnx.structure import (
    MAX_DEPTH,
    describe,
    function_key,
    names_captured,
    names_read,
    opset_versions,
    plain_domain,
    subgraphs,
)
from whet.frontend.onnx.tensors import read_sparse, read_tensor
from whet.graph.body import fresh_inputs
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Input, Value
from whet.ops.base import DynamicType

MAX_CONVERTED = 200_000
"""How many nodes are converted at most, loops unrolled and functions inlined: far above any
real model, and what stops a small file from describing an endless one."""


UNKNOWN = "the operator is not supported"


@dataclass(frozen=True, slots=True)
class Scope:
    """The surroundings of a node: values by name, operator set versions, the enclosing function's
    attributes, and how deep it is nested."""

    values: ChainMap[str, Converted]
    opsets: Mapping[str, int]
    attributes: Attributes | None = None
    depth: int = 0

    def inner(self) -> Scope:
        """The scope of a subgraph: sees all of this one and adds its own."""
        return Scope(self.values.new_child(), self.opsets, self.attributes, self.depth + 1)


class NodeConverter:
    """Converts nodes one by one into values of one builder."""

    def __init__(self, source: Source, builder: GraphBuilder, problems: Problems) -> None:
        self._external = source.external
        self._builder = builder
        self._problems = problems
        self._functions = {
            function_key(f.domain, f.name, f.overload): Function.of_model(f)
            for f in source.proto.functions
        }
        self._converted = 0

    def convert(self, node: Any, scope: Scope) -> tuple[Converted, ...]:
        """The node's outputs.  Raises `Unsupported`, `NeedsValue`, `Deferred` or `Reported`."""
        self._converted += 1
        check(
            self._converted <= MAX_CONVERTED,
            "WH2006",
            f"the model has more than {MAX_CONVERTED} nodes after unrolling and inlining",
            kind=ModelError,
        )
        check(
            scope.depth <= MAX_DEPTH,
            "WH2006",
            f"{describe(node)} is nested more than {MAX_DEPTH} levels deep",
            kind=ModelError,
        )
        read = []
        for name in names_read(node):
            check(
                name in scope.values,
                "WH2003",
                f"{describe(node)} reads '{name}', which nothing produces",
                kind=ModelError,
            )
            read.append(scope.values[name])
        if any(isinstance(v, Failed) for v in read):
            raise Reported
        if any(map(is_dynamic, read)):
            raise Deferred
        try:
            results = self._convert(node, scope)
        except Deferred as inner:
            raise DeferredInside from inner
        except OperatorError as error:
            raise ModelError(
                error.code,
                f"{describe(node)}: {error.message}",
                details=error.details,
                hint=error.hint,
            ) from error
        check(
            len(results) >= len(node.output),
            "WH2003",
            f"{describe(node)} has {len(node.output)} outputs, its operator {len(results)}",
            kind=ModelError,
        )
        return results

    def _convert(self, node: Any, scope: Scope) -> tuple[Converted, ...]:
        domain = plain_domain(node.domain)
        attributes = named_attributes(node, scope.attributes)
        inputs = tuple(scope.values[name] if name else None for name in node.input)
        function = self._functions.get(function_key(domain, node.op_type, node.overload))
        if function is not None:
            return self._inline(function, inputs, attributes, scope)
        opset = scope.opsets.get(domain)
        check(
            opset is not None,
            "WH2003",
            f"{describe(node)}: the model imports no operator set '{domain or 'ai.onnx'}'",
            kind=ModelError,
        )
        assert opset is not None
        signature = find_signature(domain, node.op_type, opset)
        if signature is not None:
            check_node(node, attributes, signature)
            if not domain and opset < OLDEST_OPSET and changed_since(node.op_type, opset):
                raise Unsupported(f"opset {opset} defines it unlike opset {OLDEST_OPSET}")
        converter = find_converter(domain, node.op_type, opset)
        if converter is None:
            declared = declared_function(node, domain, opset, attributes, inputs)
            if declared is None:
                raise Unsupported(UNKNOWN)
            return self._inline(declared, inputs, attributes, scope)

        def run_subgraph(graph: Any, args: Sequence[Converted]) -> tuple[Converted, ...]:
            return self._run_subgraph(graph, args, scope)

        def close_subgraph(graph: Any) -> ClosedGraph:
            return self._close_subgraph(graph, scope)

        self._builder.current_name = node.name or node.op_type
        context = Context(
            self._builder,
            node.op_type,
            domain,
            opset,
            node.name,
            inputs,
            decode_attributes(node, attributes, self._external),
            len(node.output),
            run_subgraph,
            close_subgraph,
        )
        result = converter(context)
        return result if isinstance(result, tuple) else (result,)

    def _inline(
        self,
        function: Function,
        inputs: Sequence[Converted],
        attributes: Attributes,
        scope: Scope,
    ) -> tuple[Converted, ...]:
        """The outputs of a function's body on the inputs; outer names are not visible in it."""
        check(
            len(inputs) <= len(function.inputs),
            "WH2003",
            f"function '{function.name}' takes {len(function.inputs)} inputs, got {len(inputs)}",
            kind=ModelError,
        )
        values: ChainMap[str, Converted] = ChainMap({})
        values.update(dict.fromkeys(function.inputs))
        values.update(zip(function.inputs, inputs))
        opsets = {**scope.opsets, **opset_versions(function.opset_import)}
        inner = Scope(values, opsets, {**function.defaults, **attributes}, scope.depth + 1)
        self.run_nodes(function.nodes, inner)
        return tuple(_result(values, name) for name in function.outputs)

    def _run_subgraph(
        self, graph: Any, args: Sequence[Converted], scope: Scope
    ) -> tuple[Converted, ...]:
        check(
            len(args) == len(graph.input),
            "WH2003",
            f"the subgraph '{graph.name}' takes {len(graph.input)} inputs, got {len(args)}",
            kind=ModelError,
        )
        inner = scope.inner()
        self.add_initializers(graph, inner.values)
        inner.values.update(zip((i.name for i in graph.input), args))
        outer_name = self._builder.current_name
        self.run_nodes(graph.node, inner)
        self._builder.current_name = outer_name
        return tuple(_result(inner.values, o.name) for o in graph.output)

    def _close_subgraph(self, graph: Any, scope: Scope) -> ClosedGraph:
        """The subgraph on inputs of its own in the place of values that it reads from outside."""
        stand_ins: dict[Value, Input] = {}

        def stand_in(value: Converted) -> Converted:
            if isinstance(value, tuple):
                return tuple(map(stand_in, value))
            if not isinstance(value, Value) or isinstance(value, Constant):
                return value
            if value not in stand_ins:
                (stand_ins[value],) = fresh_inputs([value.tensor_type])
            return stand_ins[value]

        around = scope.inner()
        for name in sorted(names_captured(graph)):
            around.values[name] = stand_in(scope.values[name])
        outputs = self._run_subgraph(graph, (), around)
        return ClosedGraph(outputs, tuple(stand_ins.values()), tuple(stand_ins))

    def add_initializers(self, graph: Any, values: ChainMap[str, Converted]) -> None:
        """Adds the graph's constants to the values."""
        for tensor in graph.initializer:
            values[tensor.name] = self._constant(read_tensor(tensor, self._external))
        for sparse in graph.sparse_initializer:
            values[sparse.values.name] = self._constant(read_sparse(sparse, self._external))

    def _constant(self, array: Any) -> Converted:
        return array if not hasattr(array, "dtype") else self._builder.constant(array)

    def run_nodes(self, nodes: Sequence[Any], scope: Scope) -> None:
        """Converts the nodes of a subgraph or function, collecting what is unsupported."""
        for node in nodes:
            try:
                results = self.convert(node, scope)
            except (Unsupported, Reported) as reason:
                results = self.report(node, scope, reason)
            scope.values.update(zip(node.output, results))

    def report(
        self, node: Any, scope: Scope, reason: Unsupported | Reported
    ) -> tuple[Converted, ...]:
        """Notes what is unsupported about a node that could not be converted; gives what
        stands for its outputs.

        A node behind an unsupported one has inputs of unknown type; of it and of the nodes in
        its subgraphs only those whose operator is unknown are noted.
        """
        if isinstance(reason, Unsupported):
            self._problems.add(node, scope, str(reason))
        elif not self._knows(node, scope):
            self._problems.add(node, scope, UNKNOWN)
        else:
            for graph in subgraphs(node):
                inner = scope.inner()
                for child in graph.node:
                    inner.values.update(zip(child.output, self.report(child, inner, reason)))
        domain = plain_domain(node.domain)
        schema = find_schema(domain, node.op_type, scope.opsets.get(domain, 0))
        return failed_outputs(node, schema, scope.values)

    def _knows(self, node: Any, scope: Scope) -> bool:
        domain = plain_domain(node.domain)
        if function_key(domain, node.op_type, node.overload) in self._functions:
            return True
        opset = scope.opsets.get(domain, 0)
        return find_converter(domain, node.op_type, opset) is not None or has_function(
            domain, node.op_type, opset
        )


def _result(values: ChainMap[str, Converted], name: str) -> Converted:
    value = values.get(name)  # a function body may leave out outputs that nobody asks for
    if isinstance(value, Failed):
        raise Reported
    return value


def is_dynamic(value: Converted) -> bool:
    """True for a result whose shape is not known, and for sequences with one."""
    if isinstance(value, tuple):
        return any(map(is_dynamic, value))
    return isinstance(value, Value) and isinstance(value.type, DynamicType)
