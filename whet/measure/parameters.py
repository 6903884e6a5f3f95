"""The memory behind a kernel's parameters, as plain data and as bytes: filled and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import as_strided

from whet.core.dtypes import parse_dtype
from whet.core.types import Array, Shape
from whet.ir.program import row_major

Kind = Literal["input", "constant", "output", "workspace"]

POISON = 0xFF
"""Ones in all bits: NaN in every type that has it."""


@dataclass(frozen=True)
class Parameter:
    """A piece of memory: element (i, j, ...) is at offset + i * strides[0] + ... elements.

    `array` names the values of an input or constant, or what an output must hold afterwards.
    """

    kind: Kind
    array: str
    dtype: str
    shape: Shape
    strides: Shape
    offset: int = 0
    border: tuple[tuple[int, int], ...] | None = None
    lead: int = 0
    """Bytes from an aligned address to where it begins, when its kernel is timed."""

    @property
    def itemsize(self) -> int:
        return parse_dtype(self.dtype).itemsize

    @property
    def bounds(self) -> tuple[int, int]:
        """The first element of its memory, and the one after its last, border included.

        A view begins behind element 0 of what it is a view of, which kernels may read as well:
        of pairs of neighbours they pick every second one.
        """
        if 0 in self.shape:
            return self.offset, self.offset
        low = high = self.offset
        border = self.border or ((0, 0),) * len(self.shape)
        for extent, stride, (before, after) in zip(self.shape, self.strides, border):
            ends = (-before * stride, (extent - 1 + after) * stride)
            low, high = low + min(ends), high + max(ends)
        return min(0, low), high + 1

    @property
    def nbytes(self) -> int:
        low, high = self.bounds
        return (high - low) * self.itemsize


def parameter_from_message(fields: Mapping[str, Any]) -> Parameter:
    """The parameter that a message describes."""
    border = fields["border"]
    return Parameter(**{
        **fields,
        "shape": tuple(fields["shape"]),
        "strides": tuple(fields["strides"]),
        "border": None if border is None else tuple((low, high) for low, high in border),
    })  # fmt: skip


def contiguous(kind: Kind, array: str, dtype: str, shape: Sequence[int]) -> Parameter:
    """Memory of its own, without gaps."""
    return Parameter(kind, array, dtype, tuple(shape), row_major(tuple(shape)))


def view(p: Parameter, memory: Array, *, border: bool = False) -> Array:
    """The parameter's elements inside its bytes; with its border, if asked for."""
    flat = memory.view(parse_dtype(p.dtype).numpy)
    if not flat.size:
        return flat.reshape(p.shape)
    shape, start = p.shape, p.offset - p.bounds[0]
    if border and p.border is not None:
        shape = tuple(d + before + after for d, (before, after) in zip(p.shape, p.border))
        start -= sum(s * before for s, (before, _) in zip(p.strides, p.border))
    return as_strided(flat[start:], shape, [s * flat.itemsize for s in p.strides])


def fill(p: Parameter, memory: Array, values: Array | None) -> None:
    """Poison everywhere, zeros in the border, and the values if there are any."""
    memory[:] = POISON
    if p.border is not None:
        view(p, memory, border=True)[...] = 0
        if values is None:
            view(p, memory).view(f"u{p.itemsize}")[...] = int.from_bytes([POISON] * p.itemsize)
    if values is not None:
        view(p, memory)[...] = values


def strayed(p: Parameter, memory: Array) -> bool:
    """Whether something beside the elements of an output was written: border or gaps."""
    untouched = np.empty_like(memory)
    fill(p, untouched, view(p, memory))
    return not np.array_equal(untouched, memory)
