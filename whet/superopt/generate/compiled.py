"""Compiling the inner loops with Numba, which the extra `rules` brings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from whet.core.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

try:
    import numba
except ImportError as error:  # pragma: no cover - depends on the installation
    raise UsageError(
        "WH3007", "generating rules needs numba", hint="pip install 'whet[rules]'"
    ) from error


def compiled(function: F) -> F:
    """The function as machine code, kept on disk between runs; threads may run it side by side."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def inlined(function: F) -> F:
    """A small function that is copied into the compiled ones that call it."""
    return cast(F, numba.njit(inline="always")(function))


U = np.uint64


@inlined
def mix(z: Any) -> Any:
    """A 64-bit number scrambled one to one (the finisher of splitmix64)."""
    z = (z ^ (z >> U(30))) * U(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U(27))) * U(0x94D049BB133111EB)
    return z ^ (z >> U(31))
