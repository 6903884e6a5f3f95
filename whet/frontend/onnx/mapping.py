"""The table from ONNX operators to whet's: one line or one small function each.

    direct("Relu", Relu)                     same inputs, no attributes

    @maps("Transpose")
    def transpose(c: Context) -> Value: ...   everything else

A converter receives a `Context` for one ONNX node and returns the node's output values, one
or a tuple.  `since` says from which opset version of the operator on a converter is valid;
the newest one that is not newer than the model's opset is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from whet.core.dtypes import DType
from whet.core.errors import OperatorError, check
from whet.core.types import Array, TensorType
from whet.frontend.onnx.tensors import Foreign
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant, Input, Value
from whet.ops.base import Op
from whet.ops.movement import Expand

MAX_INDICES = 1 << 26

Converted = Any
"""What stands for an ONNX value during import: a Value, a tuple (a sequence), None (an input
that is left out, an optional without element), `Foreign` (a type that whet does not have)."""


class Unsupported(Exception):  # noqa: N818 - a signal to the importer, no error of its own
    """The node cannot be converted; the importer collects the reasons of all nodes."""


class NeedsValue(Exception):  # noqa: N818 - a signal to the importer, no error of its own
    """A converter needs the numbers behind a value that is not constant.

    Knowing one of `others` instead, in order of preference, would do as well.
    """

    def __init__(self, value: Value, *others: Value) -> None:
        self.value, self.others = value, others


@dataclass(frozen=True, slots=True)
class ClosedGraph:
    """A subgraph whose nodes read nothing from outside but through `inputs`, which stand for
    `values`."""

    outputs: tuple[Converted, ...]
    inputs: tuple[Input, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Context:
    """One ONNX node during import."""

    builder: GraphBuilder
    op_type: str
    domain: str
    opset: int
    name: str
    inputs: tuple[Converted, ...]
    attributes: dict[str, Any]
    """Decoded: int, float, str, list, np.ndarray for tensors, the proto for graphs."""
    n_outputs: int
    run_subgraph: Callable[[Any, Sequence[Converted]], tuple[Converted, ...]]
    """Converts a subgraph attribute (GraphProto) given its inputs; outer names are visible."""
    close_subgraph: Callable[[Any], ClosedGraph]
    """Converts a subgraph without inputs so that it can run apart from what is around it."""

    def __call__(self, op: Op, *values: Value) -> Value:
        """The single output of an operator."""
        return self.builder.one(op, *values)

    def results(self, op: Op, *values: Value) -> tuple[Value, ...]:
        """All outputs of an operator."""
        return self.builder.results(op, *values)

    def input(self, index: int) -> Value:
        """Input number `index`, which must be a tensor and present."""
        value = self.optional(index)
        if value is None:
            raise Unsupported(f"input {index} is missing")
        return value

    def optional(self, index: int) -> Value | None:
        """Input number `index`, or None if the node leaves it out."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if isinstance(value, Foreign):
            raise Unsupported(value.reason)
        if value is not None and not isinstance(value, Value):
            raise Unsupported(f"input {index} is not a tensor")
        return value

    def sequence(self, index: int) -> tuple[Value, ...]:
        """Input number `index`, which must be a sequence of tensors."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if not isinstance(value, tuple) or not all(isinstance(v, Value) for v in value):
            raise Unsupported(f"input {index} is not a sequence of tensors")
        return value

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def type(self, index: int) -> TensorType:
        """The type of input number `index`."""
        return self.input(index).tensor_type

    def const(self, index: int) -> Array:
        """The array behind input number `index`; asks for a value when it is not constant."""
        return array_of(self.input(index))

    def const_ints(self, index: int) -> tuple[int, ...]:
        """The integers behind input number `index`, flattened."""
        array = self.const(index)
        # Some operators take a count as floating point too (the depth of OneHot).
        self.require(bool(np.isfinite(array).all()), f"input {index} must hold integers")
        return tuple(int(v) for v in array.reshape(-1))

    def const_scalar(self, index: int) -> Any:
        """The one number behind input number `index`, as a NumPy scalar."""
        array = self.const(index)
        self.require(array.size == 1, f"input {index} must be a single number")
        return array.reshape(-1)[0]

    def const_int(self, index: int) -> int:
        """The one integer behind input number `index`."""
        values = self.const_ints(index)
        self.require(len(values) == 1, f"input {index} must be a single number")
        return values[0]

    def constant(self, data: Any, dtype: DType) -> Value:
        """A constant tensor."""
        try:
            array = np.asarray(data, dtype.numpy)
        except (OverflowError, ValueError):  # infinity as an integer, say
            self.unsupported(f"a constant is no value of type {dtype}")
        return self.builder.constant(array)

    def filled(self, value: float, dtype: DType, shape: Sequence[int]) -> Value:
        """A tensor with the same value everywhere, which takes memory only if it is small."""
        return self(Expand(tuple(shape)), self.constant(value, dtype))

    def indices(self, count: int) -> Array:
        """0, 1, ... `count` - 1, refused if there are so many that they must be an error."""
        self.require(0 <= count <= MAX_INDICES, f"{count} indices")
        return np.arange(count)

    def unsupported(self, reason: str) -> NoReturn:
        raise Unsupported(reason)

    def require(self, condition: bool, reason: str) -> None:
        """Refuse the node unless the condition holds."""
        if not condition:
            raise Unsupported(reason)

    def require_types(self, condition: bool, reason: str) -> None:
        """Refuse the types of the inputs unless the condition holds.

        Unlike what is unsupported, this is no error in the branch of an `If` that a known
        condition does not take.
        """
        check(condition, "WH1102", reason, kind=OperatorError)

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> Any:
        """A text attribute, which must be one of the allowed words."""
        value = self.attr(name, default)
        self.require(value in allowed, f"{name} '{value}'")
        return value


def array_of(value: Value) -> Array:
    """The array behind a value; asks for it when it is not constant."""
    if not isinstance(value, Constant):
        raise NeedsValue(value)
    return value.array


Converter = Callable[[Context], Converted]
CONVERTERS: dict[tuple[str, str], dict[int, Converter]] = {}
"""(domain, operator) to converters by the opset version from which they hold."""


def maps(*names: str, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Decorator: registers a converter for these ONNX operators."""

    def register(converter: Converter) -> Converter:
        for name in names:
            CONVERTERS.setdefault((domain, name), {})[since] = converter
        return converter

    return register


def direct(name: str, op: type[Op], *, since: int = 1, domain: str = "") -> None:
    """Registers an operator that takes the same inputs and has no attributes."""
    maps(name, since=since, domain=domain)(
        lambda c: c(op(), *(c.input(n) for n in range(len(c.inputs))))
    )


def find_converter(domain: str, name: str, opset: int) -> Converter | None:
    """The newest converter that is valid for the opset."""
    versions = CONVERTERS.get((domain, name), {})
    valid = [v for v in versions if v <= opset]
    return versions[max(valid)] if valid else None


def normalized_axis(axis: int, rank: int) -> int:
    """The axis counted from the front."""
    if not -rank <= axis < max(rank, 1):
        raise Unsupported(f"axis {axis} is outside rank {rank}")
    return axis + rank if axis < 0 else axis
