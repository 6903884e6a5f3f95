"""Graphs: immutable, interned values.

A value is an `Input`, a `Constant` or a `Result` of a `Node`.  Nodes are interned: applying an
equal operator to the same values gives the same node, so common subexpressions exist once by
construction, and what no output needs does not exist at all.  A pass is a function from Graph
to Graph that rebuilds the values it changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from whet.core.digest import digest_array
from whet.core.errors import GraphError, check
from whet.core.types import Array, TensorType, type_of
from whet.ops.base import DynamicType, Op, OutputType

LARGE = 2.0**64
"""Constants beyond it are taken for infinite."""


class Value:
    """A tensor in a graph.  Compared by identity; equal values are the same object."""

    __slots__ = ("__weakref__",)
    type: OutputType

    @property
    def tensor_type(self) -> TensorType:
        """The static type; an error for the result of a host operator."""
        if isinstance(self.type, DynamicType):
            raise GraphError("WH1202", f"the shape of {self.type} is not known before it has run")
        return self.type


class Input(Value):
    """A value that the caller supplies."""

    __slots__ = ("name", "type")

    def __init__(self, name: str, type: TensorType) -> None:
        self.name, self.type = name, type


class Constant(Value):
    """A known array.  The array is read-only from here on."""

    __slots__ = ("_array", "_bucket", "_digest", "_finite", "type")

    def __init__(self, array: Array, bucket: _Bucket) -> None:
        self.type: TensorType = type_of(array)
        self._array: Array | None = array
        self._bucket: _Bucket | None = bucket
        self._digest: str | None = None
        self._finite: bool | None = None

    @property
    def array(self) -> Array:
        assert self._array is not None
        return self._array

    @property
    def is_made(self) -> bool:
        """Whether the elements are there already: always, unless they are computed on demand."""
        return self._array is not None

    @property
    def digest(self) -> str:
        """The digest of type, shape and elements; hashed when first asked for."""
        if self._digest is None:
            self._digest = digest_array(self.array)
        return self._digest

    @property
    def is_finite(self) -> bool:
        """Whether all elements are numbers, and small enough that sums of some stay finite."""
        if self._finite is None:
            a = self.array
            ends = (a.min(), a.max()) if self.type.dtype.is_float and a.size else ()
            self._finite = all(abs(float(x)) <= LARGE for x in ends)  # NaN is in both ends
        return self._finite


class Computed(Constant):
    """A constant that is an operator on constants; its elements are computed when asked for.

        concat(w, v, axis=0)   ->   a constant of their joint type that holds no elements yet

    A search over graphs makes thousands of merged weights and looks at the elements of few.
    """

    __slots__ = ("index", "node")

    def __init__(self, node: Node, index: int, type: TensorType) -> None:
        self.node, self.index, self.type = node, index, type
        self._array = self._bucket = None
        self._digest = self._finite = None

    @property
    def array(self) -> Array:
        if self._array is None:
            given = tuple(v.array for v in self.node.inputs if isinstance(v, Constant))
            array = np.asarray(self.node.op.run_reference(given)[self.index]).view()
            array.flags.writeable = False
            self._array = array
        return self._array

    @property
    def is_finite(self) -> bool:
        """As of any constant; while nothing is computed, what its inputs let expect.  A graph
        that is compiled holds its elements, so that no kernel rests on this."""
        if self._array is None:
            given = (v for v in self.node.inputs if isinstance(v, Constant))
            return all(v.is_finite for v in given)
        return super().is_finite


class _Bucket:
    """The constants that look alike at a few elements: all are kept apart by comparison."""

    __slots__ = ("__weakref__", "constants")

    def __init__(self) -> None:
        self.constants: WeakSet[Constant] = WeakSet()


class Result(Value):
    """Output number `index` of a node."""

    __slots__ = ("index", "node", "type")

    def __init__(self, node: Node, index: int, type: OutputType) -> None:
        self.node, self.index, self.type = node, index, type


class Node:
    """An operator applied to values."""

    __slots__ = ("__weakref__", "inputs", "op", "results")

    def __init__(self, op: Op, inputs: tuple[Value, ...], types: tuple[OutputType, ...]) -> None:
        self.op, self.inputs = op, inputs
        self.results = tuple(Result(self, n, t) for n, t in enumerate(types))


_inputs: WeakValueDictionary[tuple[str, TensorType], Input] = WeakValueDictionary()
_buckets: WeakValueDictionary[tuple[TensorType, bytes], _Bucket] = WeakValueDictionary()
_nodes: WeakValueDictionary[tuple[Op, tuple[int, ...]], Node] = WeakValueDictionary()
_computed: WeakValueDictionary[tuple[Node, int], Computed] = WeakValueDictionary()


def make_input(name: str, type: TensorType) -> Input:
    """The input of this name and type."""
    return _inputs.setdefault((name, type), Input(name, type))


def make_constant(array: Array) -> Constant:
    """The constant with these elements (arrays of equal content are one constant).

    Weights are large and seldom equal, so a few elements tell most of them apart, and only
    those that agree there are compared as a whole.
    """
    array = np.asarray(array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    key = (type_of(array), _sample(array))
    bucket = _buckets.get(key)
    if bucket is None:
        bucket = _buckets[key] = _Bucket()
    for found in bucket.constants:
        if _same_bits(found.array, array):
            return found
    array = array.view()
    array.flags.writeable = False
    made = Constant(array, bucket)
    bucket.constants.add(made)
    return made


def _sample(array: Array) -> bytes:
    """The bytes of up to 256 elements spread over the array."""
    if array.size <= 256:
        return array.tobytes()
    return bytes(array.flat[np.linspace(0, array.size - 1, 256).astype(np.int64)].tobytes())


def _same_bits(left: Array, right: Array) -> bool:
    if left is right:
        return True
    a, b = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (left, right))
    return bool(np.array_equal(a, b))


def apply(op: Op, *inputs: Value) -> tuple[Result, ...]:
    """The results of the operator on the values; types are checked here."""
    key = (op, tuple(map(id, inputs)))
    node = _nodes.get(key)
    if node is None:
        node = Node(op, inputs, op.infer_types(tuple(v.tensor_type for v in inputs)))
        _nodes[key] = node
    return node.results


def compute_later(op: Op, *inputs: Value) -> tuple[Value, ...]:
    """The results of an operator on constants as constants whose elements are computed on demand;
    equal expressions are one constant."""
    made = apply(op, *inputs)
    found = []
    for result in made:
        key = (result.node, result.index)
        constant = _computed.get(key)
        if constant is None:
            constant = _computed[key] = Computed(result.node, result.index, result.tensor_type)
        found.append(constant)
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Graph:
    """Inputs, named outputs, and everything that the outputs depend on.

    `names` remembers what the source model called a node, for messages and printing; it is
    not part of a graph's meaning.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[Value, ...]
    output_names: tuple[str, ...]
    names: Mapping[Node, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", MappingProxyType(dict(self.names)))
        check(len(self.outputs) == len(self.output_names), "WH1202", "unnamed outputs",
              kind=GraphError)  # fmt: skip
        for names in ([v.name for v in self.inputs], list(self.output_names)):
            check(len(set(names)) == len(names), "WH1202", f"names are not unique: {names}",
                  kind=GraphError)  # fmt: skip
        known = set(self.inputs)
        for v in self.values():
            check(not isinstance(v, Input) or v in known, "WH1202",
                  f"'{getattr(v, 'name', '')}' is read but is not an input of the graph",
                  kind=GraphError)  # fmt: skip

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that the outputs need, producers before their users."""
        return topological(self.outputs)

    def values(self) -> Iterator[Value]:
        """Every value that is read or returned, each once."""
        yield from dict.fromkeys(
            [v for node in self.nodes for v in node.inputs] + list(self.outputs)
        )

    @cached_property
    def constants(self) -> tuple[Constant, ...]:
        return tuple(v for v in self.values() if isinstance(v, Constant))

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constants."""
        return sum(v.tensor_type.nbytes for v in self.constants)

    @cached_property
    def users(self) -> Mapping[Value, tuple[Node, ...]]:
        """The nodes that read each value (an output of the graph is no user)."""
        return readers(self.nodes)

    def __str__(self) -> str:
        from whet.graph.text import print_graph

        return print_graph(self)


def readers(nodes: Sequence[Node]) -> dict[Value, tuple[Node, ...]]:
    """Those of the nodes that read each value."""
    found: dict[Value, list[Node]] = {}
    for node in nodes:
        for v in dict.fromkeys(node.inputs):
            found.setdefault(v, []).append(node)
    return {v: tuple(users) for v, users in found.items()}


def topological(roots: Sequence[Value], given: Collection[Value] = ()) -> tuple[Node, ...]:
    """All nodes that the roots depend on beyond given values, producers first (iterative: graphs
    are deep)."""
    known = set(given)
    order: dict[Node, None] = {}
    stack: list[tuple[Node, bool]] = [
        (v.node, False) for v in reversed(roots) if isinstance(v, Result) and v not in known
    ]
    while stack:
        node, ready = stack.pop()
        if node in order:
            continue
        if ready:
            order[node] = None
            continue
        stack.append((node, True))
        stack.extend(
            (v.node, False)
            for v in reversed(node.inputs)
            if isinstance(v, Result) and v.node not in order and v not in known
        )
    return tuple(order)
