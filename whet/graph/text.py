"""Graphs as readable text that parses back to the identical graph.

    i0: f32[1, 3, 8, 8] = input("image")
    c0: f32[4, 3, 3, 3] = constant("5d41402abc4b2a76b9719d911017c592")
    c1: f32[4, 1, 1] = constant([0.5, 1.0, -1.0, 0.0])
    v0: f32[1, 4, 6, 6] = conv(i0, c0, strides=[1, 1], pads=[0, 0, 0, 0])  # layer1/conv
    v1: f32[1, 4, 6, 6] = add(v0, c1)  # layer1/conv
    return "scores"=v1

Short constants stand in the text; the others are named by their digest and their arrays live
in a side table, which `stored_arrays` gives and `parse_graph` takes.  A graph that is an
attribute (the body of a scan) is written in braces with the same grammar.  Comments after
nodes are the names from the source model.

Text is refused with `WH1201` (it cannot be read), `WH1202` (it refers to what it does not
define) or `WH1106` (nobody defines the operator), always with the line number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from whet.core.errors import WhetError
from whet.core.types import Array, TensorType
from whet.graph.body import GraphBody
from whet.graph.graph import (
    Graph,
    Input,
    Node,
    Value,
    apply,
    make_constant,
    make_input,
)
from whet.graph.literals import array_from_items, show_array
from whet.graph.rewrite import bodies, body_graph
from whet.graph.syntax import Reader, refuse
from whet.ops.base import REGISTRY, Body, Op, OutputType, make_op, show_attribute

# What `infer` may raise on attributes that its author never imagined; anything else is a bug.
_INFER_FAILURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


# ----------------------------------------------------------------------------------- printing
def print_graph(graph: Graph) -> str:
    """The text of the graph; equal graphs have equal text."""
    return "\n".join(_lines(graph)) + "\n"


def stored_arrays(graph: Graph) -> dict[str, Array]:
    """The side table: the arrays that the text names by digest, in order of appearance."""
    found = {c.digest: c.array for c in graph.constants if show_array(c.array) is None}
    for node in graph.nodes:
        for body in bodies(node.op).values():
            found |= stored_arrays(body)
    return found


def _lines(graph: Graph) -> Iterator[str]:
    names: dict[Value, str] = {}
    fresh = count()
    for n, value in enumerate(graph.inputs):
        names[value] = f"i{n}"
        yield f"i{n}: {value.type} = input({json.dumps(value.name)})"
    for n, constant in enumerate(graph.constants):
        names[constant] = f"c{n}"
        shown = show_array(constant.array) or f'"{constant.digest}"'
        yield f"c{n}: {constant.type} = constant({shown})"
    for node in graph.nodes:
        for result in node.results:
            names[result] = f"v{next(fresh)}"
        targets = ", ".join(f"{names[r]}: {r.type}" for r in node.results)
        yield f"{targets} = {_call(node, names)}{_comment(graph.names.get(node))}"
    returned = (f"{json.dumps(n)}={names[v]}" for n, v in zip(graph.output_names, graph.outputs))
    yield f"return {', '.join(returned)}".rstrip()


def _call(node: Node, names: Mapping[Value, str]) -> str:
    arguments = [names[v] for v in node.inputs]
    arguments += [f"{k}={_show(v)}" for k, v in node.op.attributes().items()]
    return f"{node.op.name}({', '.join(arguments)})"


def _show(value: Any) -> str:
    if not isinstance(value, Body):
        return show_attribute(value)
    lines = "\n".join(_lines(body_graph(value))).splitlines()
    return "\n".join(["{", *(f"  {line}" for line in lines), "}"])


def _comment(name: str | None) -> str:
    """A name as a comment; line breaks in it must not end the comment."""
    return f"  # {' '.join(name.split())}" if name and name.strip() else ""


# ------------------------------------------------------------------------------------ parsing
def parse_graph(text: str, arrays: Mapping[str, Array] | None = None) -> Graph:
    """The graph of a text and its side table of arrays.

    Raises: `WH1201` for text that cannot be read or whose types do not fit, `WH1202` for
    values and arrays that are not defined, each with the line number.
    """
    reader = Reader(text)
    graph = _GraphParser(reader, arrays or {}).graph()
    if reader.peek().kind != "end":
        refuse(reader.line, f"expected the end of the text, found {reader.shown()}")
    return graph


class _GraphParser:
    """Reads the statements of one graph, up to and including its `return`."""

    def __init__(self, reader: Reader, arrays: Mapping[str, Array]) -> None:
        self.reader, self.arrays = reader, arrays
        self.env: dict[str, Value] = {}
        self.inputs: list[Input] = []
        self.names: dict[Node, str] = {}

    def graph(self) -> Graph:
        while not self.reader.accept("return"):
            self.statement()
        line = self.reader.line
        outputs: list[tuple[str, Value]] = []
        while self.reader.peek().kind == "string" or outputs:
            outputs.append(self.output())
            if not self.reader.accept(","):
                break
        try:
            return Graph(
                tuple(self.inputs),
                tuple(v for _, v in outputs),
                tuple(name for name, _ in outputs),
                self.names,
            )
        except WhetError as error:
            refuse(line, error.message, code="WH1202")

    def output(self) -> tuple[str, Value]:
        name = self.reader.string()
        self.reader.expect("=")
        return name, self.value()

    def statement(self) -> None:
        """`name: type, name: type = head(...)`, with the source model's name as a comment."""
        line = self.reader.line
        targets = [self.target()]
        while self.reader.accept(","):
            targets.append(self.target())
        self.reader.expect("=")
        head = self.reader.name()
        self.reader.expect("(")
        declared = tuple(type for _, type in targets)
        values: tuple[Value, ...]
        if head in ("input", "constant"):
            if len(declared) != 1 or not isinstance(declared[0], TensorType):
                refuse(line, f"{head} defines one value of known shape")
            read = self.input if head == "input" else self.constant
            values = (read(line, declared[0]),)
        else:
            values = self.node(line, head, declared)
        for (name, _), value in zip(targets, values):
            if name in self.env:
                refuse(line, f"'{name}' is defined twice", code="WH1202")
            self.env[name] = value

    def target(self) -> tuple[str, OutputType]:
        name = self.reader.name()
        self.reader.expect(":")
        return name, self.reader.type()

    def value(self) -> Value:
        line, name = self.reader.line, self.reader.name()
        if name not in self.env:
            refuse(line, f"'{name}' is not defined before this line", code="WH1202")
        return self.env[name]

    def input(self, line: int, type: TensorType) -> Value:
        value = make_input(self.reader.string(), type)
        self.reader.expect(")")
        if value in self.inputs:
            refuse(line, f"input '{value.name}' is defined twice", code="WH1202")
        self.inputs.append(value)
        return value

    def constant(self, line: int, type: TensorType) -> Value:
        stored = self.reader.peek().kind == "string"
        given = self.reader.string() if stored else self.reader.literal()
        self.reader.expect(")")
        if stored:
            return self.stored_constant(line, given, type)
        array = array_from_items(given, type) if isinstance(given, tuple) else None
        if array is None:
            refuse(line, f"the elements do not fit {type}")
        return make_constant(array)

    def stored_constant(self, line: int, digest: str, type: TensorType) -> Value:
        if digest not in self.arrays:
            refuse(line, f"there is no array '{digest}'", code="WH1202")
        value = make_constant(self.arrays[digest])
        if value.digest != digest or value.type != type:
            refuse(line, f"array '{digest}' has other contents than {type} of this name",
                   code="WH1202")  # fmt: skip
        return value

    def node(self, line: int, name: str, declared: tuple[OutputType, ...]) -> tuple[Value, ...]:
        inputs: list[Value] = []
        attributes: dict[str, Any] = {}

        def argument() -> None:
            if not self.reader.is_keyword():
                inputs.append(self.value())
                return
            key_line, key = self.reader.line, self.reader.name()
            self.reader.expect("=")
            if key in attributes:
                refuse(key_line, f"attribute '{key}' is given twice")
            attributes[key] = self.body() if self.reader.accept("{") else self.reader.literal()

        self.reader.sequence(")", argument)
        comment = self.reader.comment()
        results = self.apply(line, name, attributes, inputs)
        got = tuple(r.type for r in results)
        if got != declared:
            refuse(line, f"{name} gives {', '.join(map(str, got))}, not "
                   f"{', '.join(map(str, declared))}")  # fmt: skip
        if comment:
            self.names[results[0].node] = comment
        return results

    def body(self) -> GraphBody:
        inner = _GraphParser(self.reader, self.arrays)
        graph: Graph = self.reader.nested(inner.graph)
        self.reader.expect("}")
        return GraphBody(graph)

    def apply(self, line: int, name: str, attributes: dict[str, Any], inputs: list[Value]) -> Any:
        try:
            op: Op = make_op(name, attributes)
            return apply(op, *inputs)
        except WhetError as error:
            code = error.code if name not in REGISTRY else "WH1201"
            refuse(line, error.message, *error.details, code=code)
        except _INFER_FAILURES as error:
            refuse(line, f"{name} cannot be applied: {type(error).__name__}: {error}")
