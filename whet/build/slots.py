"""Where the parameters of kernels are, and constants in one block of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.build.shared_constants import as_bytes
from whet.core.alignment import aligned_zeros, round_up
from whet.core.types import Array


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a kernel's parameter is.

    `kind` is arena or constant, and `at` the offset in bytes; or kind is shared, and `at` is the
    number of a shared constant; or kind is array, and `at` is the number of one of the caller's
    arrays, inputs before outputs; or kind is status, and `at` is the number of the status; or
    kind is alarm, of which there is one, behind the statuses.
    """

    kind: str
    at: int


def join_constants(arrays: Sequence[Array]) -> tuple[Array, list[int]]:
    """The bytes of all arrays one after the other, each aligned, and where each starts."""
    starts, end = [], 0
    for array in arrays:
        starts.append(end)
        end += round_up(array.nbytes)
    joined = aligned_zeros(end)
    for array, start in zip(arrays, starts):
        raw = as_bytes(array)
        joined[start : start + raw.size] = raw
    return joined, starts
