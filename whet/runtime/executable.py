"""What running code looks like from the outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from whet.core.types import Array


class Executable(Protocol):
    """A prepared program on arrays.

    It may own buffers that are used again in every call, and then makes concurrent calls wait
    for each other.  Results are fresh, writable and contiguous arrays that share no memory with
    the inputs, unless `out` gives the arrays to write to, one of the right type per output.
    """

    def __call__(
        self, inputs: Sequence[Array], out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]: ...
