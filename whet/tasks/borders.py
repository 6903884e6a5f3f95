"""Zero borders: how they lie in memory.

A value that windows slide over is stored with zeros around it.  Memory that it has to itself is
zeroed once; memory that it shares with other values needs its border anew in every call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whet.core.dtypes import DType
from whet.core.types import Shape
from whet.tasks.layout import storage_order
from whet.tasks.task import Border


@dataclass(frozen=True)
class Geometry:
    """A value with its border in memory; equal ones can take turns without new zeros."""

    shape: Shape
    inner: int | None
    border: Border
    dtype: DType

    @property
    def boxes(self) -> tuple[tuple[int, int, int], ...]:
        """Extent and border of every axis, slowest first."""
        order = storage_order(len(self.shape), self.inner)
        return tuple((self.shape[a], *self.border[a]) for a in order)

    @property
    def zero_bytes(self) -> int:
        """Bytes of the border alone."""
        whole = math.prod(extent + low + high for extent, low, high in self.boxes)
        return (whole - math.prod(self.shape)) * self.dtype.itemsize
