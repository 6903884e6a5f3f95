"""Jobs for the process that runs kernels: a kernel's parameters as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from whet.core.dtypes import parse_dtype
from whet.core.types import Shape
from whet.ir.program import row_major

Kind = Literal["input", "constant", "output", "workspace"]


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


@dataclass(frozen=True)
class KernelJob:
    """A kernel to run: `table` says which parameter each of its arguments is."""

    symbol: str
    threads: int
    exact: bool
    """Whether results must have the very bits of the expected ones."""
    parameters: tuple[Parameter, ...]
    table: tuple[int, ...]
    cache_bytes: int
    """The last-level cache of the machine: constants are read from copies beyond it."""

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self.parameters)

    def to_message(self) -> dict[str, Any]:
        return asdict(self)


def job_from_message(fields: Mapping[str, Any]) -> KernelJob:
    """The job that `to_message` described."""
    parameters = tuple(_parameter(p) for p in fields["parameters"])
    return KernelJob(**{**fields, "parameters": parameters, "table": tuple(fields["table"])})


def _parameter(fields: Mapping[str, Any]) -> Parameter:
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
