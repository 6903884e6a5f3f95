"""Running code as it looks from the outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from whet.core.types import Array, Shape


class Adopted:
    """An array on a device, as what computes there takes and gives it.

    NumPy makes a copy of it (`__array__`).
    """

    __slots__ = ()

    dtype: np.dtype[Any]
    shape: Shape

    def assign(self, array: Array) -> None:
        """Makes its elements those of an array of this process, which has its type and shape."""
        raise NotImplementedError


Adopt = Callable[[Sequence[Any], Sequence[str]], Sequence[Adopted | None]]
"""Makes of the values of a call, given their names, arrays that it takes where they lie: on the
device; None for values that lie elsewhere."""


@runtime_checkable
class OnDevice(Protocol):
    """Something that computes on a device, where arrays may lie already."""

    def adopt(self, values: Sequence[Any], names: Sequence[str]) -> Sequence[Adopted | None]:
        """See `Adopt`."""

    def leaving(
        self, inputs: Sequence[Array | Adopted], stays: Sequence[bool]
    ) -> Sequence[Array | Adopted]:
        """The outputs, those that stay as arrays on the device, the others as NumPy arrays."""


class Executable(Protocol):
    """A prepared program on arrays.

    It may own buffers that are used again in every call, and then makes concurrent calls wait
    for each other.  Results are fresh, writable and contiguous arrays that share no memory with
    the inputs, unless `out` gives the arrays to write to, one of the right type per output.
    """

    @property
    def engine(self) -> str:
        """The engine that runs it: `native` or `interpreter`."""

    @property
    def adopt(self) -> Adopt | None:
        """Takes arrays of other libraries on its device as they are; None if it has no device."""

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]: ...

    def describe(self) -> list[str]:
        """Lines of text on how it runs: what is native code, and what is not, and why."""


class OutliersError(Exception):
    """Native code met values that its algorithms would spread to results of others.

    Only code that was built with guards raises it, before any result can be used.
    """


def own_results(results: Sequence[Array], inputs: Sequence[Array | Adopted]) -> tuple[Array, ...]:
    """The results as contiguous arrays that nobody else holds.

    An output can be a constant of the graph, an input, a view of one, or another output.
    """
    taken = [a for a in inputs if not isinstance(a, Adopted)]
    owned: list[Array] = []
    for result in results:
        array = np.asarray(result, order="C")
        if not array.flags.writeable or any(np.may_share_memory(array, t) for t in taken):
            array = array.copy()
        owned.append(array)
        taken.append(array)
    return tuple(owned)
