"""Running code as it looks from the outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from whet.core.types import Array


class Executable(Protocol):
    """A prepared program on arrays.

    It may own buffers that are used again in every call, and then makes concurrent calls wait
    for each other.  Results are fresh, writable and contiguous arrays that share no memory with
    the inputs, unless `out` gives the arrays to write to, one of the right type per output.
    """

    @property
    def engine(self) -> str:
        """The engine that runs it: `native` or `interpreter`."""

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]: ...

    def describe(self) -> list[str]:
        """Lines of text on how it runs: what is native code, and what is not, and why."""


class OutliersError(Exception):
    """Native code met values that its algorithms would spread to results of others.

    Only code that was built with guards raises it, before any result can be used.
    """


def own_results(results: Sequence[Array], inputs: Sequence[Array]) -> tuple[Array, ...]:
    """The results as contiguous arrays that nobody else holds.

    An output can be a constant of the graph, an input, a view of one, or another output.
    """
    taken = list(inputs)
    owned: list[Array] = []
    for result in results:
        array = np.asarray(result, order="C")
        if not array.flags.writeable or any(np.may_share_memory(array, t) for t in taken):
            array = array.copy()
        owned.append(array)
        taken.append(array)
    return tuple(owned)
