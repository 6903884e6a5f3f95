"""The inputs and outputs of a compiled model, and whether given arrays fit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from whet.core.dtypes import DType, dtype_of
from whet.core.errors import UsageError, fail
from whet.core.types import Array
from whet.runtime.arrays import as_numpy
from whet.runtime.executable import Adopt
from whet.runtime.ports import Misfit, Port, pack, unpack


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name and type of a tensor.  An extent is None where it is known only after a run."""

    name: str
    dtype: DType
    shape: tuple[int | None, ...]

    @property
    def type_text(self) -> str:
        """The type alone, such as `f32[1, ?]`."""
        extents = ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.dtype}[{extents}]"

    def __str__(self) -> str:
        return f"{self.name}: {self.type_text}"


@dataclass(frozen=True)
class Signature:
    """The ports of a model, their tensors, and the values that some inputs must have.

    `guards` holds the inputs whose value shapes depend on: the program is right for these
    values only and does not take them as arguments.
    """

    arguments: tuple[Port, ...]
    inputs: tuple[TensorSpec, ...]
    results: tuple[Port, ...]
    outputs: tuple[TensorSpec, ...]
    guards: Mapping[str, Array] = field(default_factory=dict)

    def arrange(self, args: Sequence[Any], by_name: Mapping[str, Any]) -> Sequence[Any]:
        """One value per argument port from a call by position, by name or both."""
        if not by_name and len(args) == len(self.arguments):
            return args
        names = [port.name for port in self.arguments]
        if len(args) > len(names):
            self._refuse(f"the model takes {len(names)} inputs, got {len(args)}")
        values = dict(zip(names, args))
        unknown = [name for name in by_name if name not in names]
        if unknown:
            self._refuse(f"the model has no input {', '.join(map(repr, unknown))}")
        twice = [name for name in by_name if name in values]
        if twice:
            self._refuse(f"{', '.join(map(repr, twice))} given twice")
        values.update(by_name)
        missing = [
            port.name
            for port in self.arguments
            if port.name not in values and port.structure is not None
        ]
        if missing:
            self._refuse(f"no array for {', '.join(map(repr, missing))}")
        return tuple(values.get(name) for name in names)

    def _refuse(self, problem: str) -> NoReturn:
        inputs = ", ".join(map(str, self.inputs)) or "no inputs"
        fail("WH3003", problem, hint=f"it takes {inputs}", kind=UsageError)

    def flatten(
        self, values: Sequence[Any], adopt: Adopt | None = None
    ) -> tuple[Array, ...] | Misfit:
        """The arrays of all inputs, or why the values do not fit; `adopt` takes those that lie on
        a device."""
        found: list[Any] = [None] * len(self.inputs)
        names = [""] * len(self.inputs)

        def place(position: int, name: str, value: Any) -> None:
            found[position], names[position] = value, name

        for port, value in zip(self.arguments, values, strict=True):
            misfit = unpack(port, value, place)
            if misfit is not None:
                return misfit
        there: Sequence[Any] = [None] * len(found) if adopt is None else adopt(found, names)
        arrays = tuple(
            as_numpy(value, name) if array is None else array
            for value, name, array in zip(found, names, there)
        )
        return self.misfit(arrays) or arrays

    def misfit(self, arrays: Sequence[Array]) -> Misfit | None:
        """Why the flat arrays do not fit, or None if they do."""
        for spec, array in zip(self.inputs, arrays, strict=True):
            if array.dtype != spec.dtype.numpy:
                return Misfit(_differs(spec, array), fixable=False, hint=_conversion(spec, array))
            if array.shape != spec.shape:
                return Misfit(_differs(spec, array), fixable=True)
            guard = self.guards.get(spec.name)
            if guard is not None and not np.array_equal(array, guard):
                return Misfit(
                    f"shapes depend on the value of input '{spec.name}', which was "
                    f"{_short(guard)} and is {_short(array)}",
                    fixable=True,
                )
        return None

    def unguarded(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """The arrays that the program itself takes."""
        if not self.guards:
            return tuple(arrays)
        return tuple(a for spec, a in zip(self.inputs, arrays) if spec.name not in self.guards)

    def pack(self, outputs: Sequence[Array]) -> dict[str, Any]:
        """The value of every result port by its name."""
        return {port.name: pack(port.structure, outputs) for port in self.results}


def _differs(spec: TensorSpec, array: Array) -> str:
    got = TensorSpec(spec.name, dtype_of(array), array.shape)
    return f"input '{spec.name}' is {spec.type_text}, got {got.type_text}"


def _conversion(spec: TensorSpec, array: Array) -> str:
    """The way to make an array of the right element type, and what that may cost."""
    name = spec.dtype.numpy.name
    wanted = f"np.{name}" if spec.dtype.numpy.isbuiltin == 1 else f"ml_dtypes.{name}"
    loses = not np.can_cast(array.dtype, spec.dtype.numpy) if array.dtype.isbuiltin == 1 else True
    return f"{spec.name}.astype({wanted})" + (", which may lose digits" if loses else "")


def _short(array: Array) -> str:
    """The array as text of bounded length."""
    with np.printoptions(threshold=8, edgeitems=3):
        return str(array.tolist() if array.size <= 8 else array).replace("\n", "")
