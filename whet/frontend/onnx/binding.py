"""Binding a model's inputs to types: declared dimensions, given shapes, given examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.dtypes import DType
from whet.core.errors import UsageError, check, fail
from whet.core.types import Array, Shape, TensorType, type_of
from whet.frontend.onnx.declared import describe_type, foreign_type
from whet.frontend.onnx.tensors import FROM_ONNX, Foreign, check_dims

Note = Callable[[str], None]
_NO_NAME = ("", "?", "-1", "None")
MAX_SPECIALISED_INTEGERS = 4096
MAX_SPECIALISED_FLOATS = 64


@dataclass(frozen=True, slots=True)
class BoundTensor:
    """An input tensor with its type and, if one was given, an example of its value."""

    type: TensorType
    example: Array | None

    @property
    def is_known(self) -> bool:
        return self.example is not None

    @property
    def may_be_specialised(self) -> bool:
        """True for inputs that plausibly carry sizes: integers, and a few floats (scales)."""
        if self.type.dtype.is_float:
            return self.type.size <= MAX_SPECIALISED_FLOATS
        return self.type.size <= MAX_SPECIALISED_INTEGERS


Bound = BoundTensor | tuple["Bound", ...] | Foreign | None


def bind_inputs(infos: Sequence[Any], given: Mapping[str, Any], note: Note) -> dict[str, Bound]:
    """The meaning of each input, from its declaration and what the caller gave for it.

    A dimension that nothing fixes becomes 1, with a note; a symbol has one value everywhere.
    """
    known = [info.name for info in infos]
    for name in given:
        check(
            name in known,
            "WH2007",
            f"the model has no input '{name}'",
            hint=f"its inputs are {', '.join(known) or 'none'}",
            kind=UsageError,
        )
    symbols: dict[str, tuple[int, str]] = {}
    for info in infos:
        if info.name in given:
            _collect_symbols(info.name, info.type, given[info.name], symbols)
    resolver = _Resolver(symbols, note)
    return {
        i.name: resolver.bind(i.name, i.type, given.get(i.name), i.name in given) for i in infos
    }


def symbol_of(dim: Any) -> str:
    """The name of an open dimension, empty if it has none; some exporters write "?" for that."""
    return "" if dim.dim_param in _NO_NAME else str(dim.dim_param)


def _collect_symbols(
    name: str, declared: Any, value: Any, symbols: dict[str, tuple[int, str]]
) -> None:
    if declared.WhichOneof("value") != "tensor_type" or not declared.tensor_type.HasField("shape"):
        return
    for dim, size in zip(declared.tensor_type.shape.dim, _given_shape(name, value)):
        symbol = symbol_of(dim)
        if not symbol:
            continue
        first, where = symbols.setdefault(symbol, (size, name))
        check(
            first == size,
            "WH2007",
            f"dimension '{symbol}' is {first} in '{where}' and {size} in '{name}'",
            kind=UsageError,
        )


@dataclass(frozen=True, slots=True)
class _Resolver:
    symbols: dict[str, tuple[int, str]]
    note: Note

    def bind(self, name: str, declared: Any, value: Any, present: bool) -> Bound:
        match declared.WhichOneof("value"):
            case "tensor_type":
                return self._tensor(name, declared, value, present)
            case "sequence_type":
                check(
                    isinstance(value, (list, tuple)),
                    "WH2007",
                    f"input '{name}' is a {describe_type(declared)}",
                    hint="give a list of example arrays for it",
                    kind=UsageError,
                )
                element = declared.sequence_type.elem_type
                return tuple(
                    self.bind(f"{name}[{n}]", element, item, True) for n, item in enumerate(value)
                )
            case "optional_type":
                check(
                    present,
                    "WH2007",
                    f"input '{name}' is an {describe_type(declared)}",
                    hint="give an example for it, or None for no value",
                    kind=UsageError,
                )
                if value is None:
                    return None
                return self.bind(name, declared.optional_type.elem_type, value, True)
            case None:
                return _bound_by_example(name, value)
        return foreign_type(declared)

    def _tensor(self, name: str, declared: Any, value: Any, present: bool) -> Bound:
        dtype = FROM_ONNX.get(declared.tensor_type.elem_type)
        if dtype is None:
            return foreign_type(declared)
        if not present:
            return BoundTensor(TensorType(self._default_shape(name, declared), dtype), None)
        shape = check_dims(f"input '{name}'", _given_shape(name, value))
        self._check_shape(name, declared, shape)
        if isinstance(value, (list, tuple)):
            return BoundTensor(TensorType(shape, dtype), None)
        return BoundTensor(TensorType(shape, dtype), _example(name, value, dtype))

    def _default_shape(self, name: str, declared: Any) -> Shape:
        tensor = declared.tensor_type
        check(
            tensor.HasField("shape"),
            "WH2007",
            f"the model does not say how many dimensions the input '{name}' has",
            hint=f"give its shape, such as {name}=1x3x224x224",
            kind=UsageError,
        )
        shape = []
        for axis, dim in enumerate(tensor.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                shape.append(int(dim.dim_value))
            elif symbol_of(dim) in self.symbols:
                shape.append(self.symbols[symbol_of(dim)][0])
            else:
                self._note_default(name, axis, symbol_of(dim))
                shape.append(1)
        return check_dims(f"input '{name}'", shape)

    def _note_default(self, name: str, axis: int, symbol: str) -> None:
        what = f"dimension {axis} of input '{name}'"
        if symbol:
            self.symbols[symbol] = (1, name)
            what = f"dimension '{symbol}' of input '{name}'"
        self.note(f"{what} is not given and set to 1")

    def _check_shape(self, name: str, declared: Any, shape: Shape) -> None:
        tensor = declared.tensor_type
        dims = tensor.shape.dim
        fits = not tensor.HasField("shape") or (
            len(dims) == len(shape)
            and all(
                not d.HasField("dim_value") or d.dim_value < 0 or d.dim_value == size
                for d, size in zip(dims, shape)
            )
        )
        check(
            fits,
            "WH2007",
            f"input '{name}' is {describe_type(declared)}, the given shape is {list(shape)}",
            kind=UsageError,
        )


def _bound_by_example(name: str, value: Any) -> Bound:
    """The type of an input that has no declaration: that of its example."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return tuple(_bound_by_example(f"{name}[{n}]", v) for n, v in enumerate(value))
    array = np.asarray(value)
    return BoundTensor(type_of(array), array)


def _is_shape(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(d, (int, np.integer)) and not isinstance(d, bool) for d in value
    )


def _given_shape(name: str, value: Any) -> Shape:
    if _is_shape(value):
        return tuple(int(d) for d in value)
    if hasattr(value, "shape"):
        return tuple(int(d) for d in value.shape)
    if isinstance(value, (int, float)):
        return ()
    fail(
        "WH2007",
        f"input '{name}' was given as {type(value).__name__}",
        hint="give a shape (a tuple of integers) or an example array",
        kind=UsageError,
    )


def _example(name: str, value: Any, dtype: DType) -> Array:
    array = np.asarray(value) if hasattr(value, "shape") else np.asarray(value, dtype.numpy)
    check(
        array.dtype.newbyteorder("=") == dtype.numpy,
        "WH2007",
        f"input '{name}' has elements of type {dtype}, the example is {array.dtype}",
        kind=UsageError,
    )
    return array.astype(dtype.numpy, copy=False)
