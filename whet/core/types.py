"""The logical type of a tensor: shape and element type (layout lives beside it, not in it)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.dtypes import DType, dtype_of
from whet.core.errors import OperatorError, fail

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

MAX_ELEMENTS = 1 << 40
"""More elements than any machine holds: a damaged model, not a large one."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type.  Prints as `f32[1, 3, 224, 224]`."""

    shape: Shape
    dtype: DType

    def __post_init__(self) -> None:
        if any(d < 0 for d in self.shape) or math.prod(self.shape) > MAX_ELEMENTS:
            fail("WH1107", f"impossible tensor shape {list(self.shape)}", kind=OperatorError)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: Sequence[int]) -> TensorType:
        return TensorType(tuple(shape), self.dtype)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(self.shape, dtype)


def type_of(array: Array) -> TensorType:
    """The type of a NumPy array."""
    return TensorType(tuple(array.shape), dtype_of(array))


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The NumPy broadcast of the shapes; `WH1102` if they do not fit."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[int] = []
    for axis in range(-rank, 0):
        sizes = {s[axis] for s in shapes if -axis <= len(s)} - {1}
        if len(sizes) > 1:
            text = " and ".join(str(list(s)) for s in shapes)
            fail("WH1102", f"shapes {text} do not broadcast", kind=OperatorError)
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)
