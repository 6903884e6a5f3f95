"""Nodes of subgraphs and functions put in the place of the node that holds them.

A node with a shape inside that depends on data cannot be converted at once: the values before
that shape belong to one stage and those behind it to the next.  Where it is known which of its
nodes run, these take its place, so that the cut can be made between them:

    y = If(true) { i = NonZero(x); y = Gather(x, i) }   ->   i = NonZero(x); y = Gather(x, i)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

from whet.frontend.onnx.mapping import Converted
from whet.frontend.onnx.nodes.loops import MAX_UNROLLED
from whet.frontend.onnx.structure import (
    function_key,
    names_captured,
    opset_versions,
    plain_domain,
    subgraphs,
)
from whet.graph.graph import Constant


class Splicer:
    """Finds what stands for a node.

    `values` are those of the model's graph; `add_initializers` adds the constants of a graph
    to them, and `convert` converts a node as one of the model's own.
    """

    def __init__(
        self,
        model: Any,
        values: Mapping[str, Converted],
        add_initializers: Callable[[Any], None],
        convert: Callable[[Any], None],
    ) -> None:
        self.values, self.add_initializers, self.convert = values, add_initializers, convert
        self.opsets = opset_versions(model.opset_import)
        self.functions = {function_key(f.domain, f.name, f.overload): f for f in model.functions}
        self.taken = {name for node in model.graph.node for name in node.output}

    def splice(self, node: Any) -> str | None:
        """Convert what stands for the node; why that is not possible, else None."""
        function = self.functions.get(
            function_key(plain_domain(node.domain), node.op_type, node.overload)
        )
        if function is not None:
            return self._function(node, function)
        if node.op_type == "If":
            return self._branch(node)
        if node.op_type == "Loop":
            return self._rounds(node)
        return "a shape inside it depends on data"

    def _known(self, name: str) -> Constant | None:
        value = self.values.get(name)
        return value if isinstance(value, Constant) and value.array.size == 1 else None

    def _prefix(self, node: Any) -> str:
        """The start of the names inside: no other name does."""
        prefix = f"{next(filter(None, node.output), node.op_type)}/"
        while any(name.startswith(prefix) for name in (*self.values, *self.taken)):
            prefix += "/"
        return prefix

    def _branch(self, node: Any) -> str | None:
        condition = self._known(node.input[0])
        if condition is None:
            return "which branch is taken and a shape inside it depend on data"
        taken = "then_branch" if condition.array.any() else "else_branch"
        graph = next(a.g for a in node.attribute if a.name == taken)
        self._graph(graph, {}, self._prefix(node), node.output)
        return None

    def _rounds(self, node: Any) -> str | None:
        """The rounds of a loop one after the other, as long as constants say that it goes on."""
        body = next(a.g for a in node.attribute if a.name == "body")
        count_name, going, *states = (*node.input, "", "")[: max(len(node.input), 2)]
        count = self._known(count_name) if count_name else None
        if count_name and count is None:
            return OPEN
        items: list[list[str]] = [[] for _ in body.output[1 + len(states) :]]
        number, prefix = 0, self._prefix(node)
        while count is None or number < int(count.array):
            if number == MAX_UNROLLED:
                return f"a loop of more than {MAX_UNROLLED} rounds"
            if going:
                goes = self._known(going)
                if goes is None:
                    return OPEN
                if not goes.array.any():
                    break
            own = f"{prefix}{number}/"
            constants: Any = onnx.GraphProto()
            constants.initializer.append(_scalar(f"{own}number", onnx.TensorProto.INT64, number))
            constants.initializer.append(_scalar(f"{own}going", onnx.TensorProto.BOOL, True))
            self.add_initializers(constants)
            given = (f"{own}number", f"{own}going", *states)
            results = [f"{own}result{n}" for n in range(len(body.output))]
            names = dict(zip((i.name for i in body.input), given))
            self._graph(body, names, own, results)
            going, states = results[0], results[1 : 1 + len(states)]
            for found, name in zip(items, results[1 + len(states) :]):
                found.append(name)
            number += 1
        self._identities(states, node.output)
        for n, (found, output) in enumerate(zip(items, node.output[len(states) :])):
            sequence = f"{prefix}items{n}"
            self.convert(helper.make_node("SequenceConstruct", found, [sequence]))
            self.convert(helper.make_node("ConcatFromSequence", [sequence], [output], axis=0,
                                          new_axis=1))  # fmt: skip
        return None

    def _function(self, node: Any, function: Any) -> str | None:
        if any(self.opsets.get(d) != v for d, v in opset_versions(function.opset_import).items()):
            return "a shape inside it depends on data, and it has an operator set of its own"
        attributes = {a.name: a for a in function.attribute_proto}
        attributes |= {a.name: a for a in node.attribute}
        given = (*node.input, *[""] * len(function.input))
        names = dict(zip(function.input, given))
        names |= _own_names(function.node, self._prefix(node))
        for inner in function.node:
            self.convert(renamed(inner, names, attributes))
        self._identities([names[name] for name in function.output], node.output)
        return None

    def _graph(
        self, graph: Any, given: Mapping[str, str], prefix: str, outputs: Sequence[str]
    ) -> None:
        names = {**given, **_own_names(graph.node, prefix)}
        constants: Any = onnx.GraphProto()
        for tensor in graph.initializer:
            names[tensor.name] = f"{prefix}{tensor.name}"
            constants.initializer.add().CopyFrom(tensor)
            constants.initializer[-1].name = names[tensor.name]
        for sparse in graph.sparse_initializer:
            names[sparse.values.name] = f"{prefix}{sparse.values.name}"
            constants.sparse_initializer.add().CopyFrom(sparse)
            constants.sparse_initializer[-1].values.name = names[sparse.values.name]
        self.add_initializers(constants)
        for inner in graph.node:
            self.convert(renamed(inner, names))
        self._identities([names.get(o.name, o.name) for o in graph.output], outputs)

    def _identities(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        for source, target in zip(sources, targets):
            if target:
                self.convert(helper.make_node("Identity", [source], [target]))


OPEN = "the number of rounds and a shape inside the loop depend on data"


def _own_names(nodes: Sequence[Any], prefix: str) -> dict[str, str]:
    return {name: f"{prefix}{name}" for node in nodes for name in node.output if name}


def _scalar(name: str, kind: int, value: int) -> Any:
    return helper.make_tensor(name, kind, [], [value])


def renamed(
    node: Any, names: Mapping[str, str], attributes: Mapping[str, Any] | None = None
) -> Any:
    """A copy of the node that reads and gives values under other names.

    `attributes` are put in the place of references to attributes of a function.
    """
    copy: Any = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    if attributes is not None:
        del copy.attribute[:]
        for attribute in node.attribute:
            source = attributes.get(attribute.ref_attr_name, attribute)
            if not source.ref_attr_name:
                copy.attribute.add().CopyFrom(source)
                copy.attribute[-1].name = attribute.name
    for graph in subgraphs(copy):
        captured = names_captured(graph)
        inner = {old: new for old, new in names.items() if old in captured}
        for n, child in enumerate(graph.node):
            changed = renamed(child, inner, attributes)
            graph.node[n].CopyFrom(changed)
        for output in graph.output:
            output.name = inner.get(output.name, output.name)
    return copy
