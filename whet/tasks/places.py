"""Memory and places in it: storages, strides, offsets."""

from __future__ import annotations

from dataclasses import dataclass, field

from whet.core.dtypes import DType
from whet.core.types import Shape
from whet.graph.graph import Node, Value
from whet.ir.program import Buffer
from whet.tasks.borders import Geometry
from whet.tasks.divisions import Division
from whet.tasks.task import Border


@dataclass(eq=False)
class Storage:
    """A piece of memory: part of the arena, a constant, or an array of the caller's."""

    kind: str
    """arena, constant, input or output"""
    size: int
    dtype: DType
    value: Value
    geometry: Geometry | None = None
    """What its zero border looks like, if it has one."""

    def __post_init__(self) -> None:
        there = self.value.tensor_type.size
        if self.kind in ("input", "output") and self.size > there:
            raise AssertionError(f"{self.size} elements do not lie in {self.kind} of {there}")

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def demand(self, buffer: Buffer, border: Border | None = None) -> None:
        """Raise an error unless all elements of the buffer and its border lie in this memory."""
        if 0 in buffer.shape:
            return
        around = border or ((0, 0),) * len(buffer.shape)
        steps = list(zip(buffer.shape, around, buffer.element_strides))
        ends = [(-low * s, (d - 1 + high) * s) for d, (low, high), s in steps]
        first = buffer.offset + sum(min(*pair, 0) for pair in ends)
        last = buffer.offset + sum(max(*pair, 0) for pair in ends)
        if first < 0 or last >= self.size or buffer.dtype.itemsize != self.dtype.itemsize:
            raise AssertionError(
                f"{buffer.dtype} elements {first} to {last} of '{buffer.name}' do not lie in "
                f"{self.kind} memory of {self.size} {self.dtype} elements"
            )


@dataclass(frozen=True, eq=False)
class Place:
    """A value's elements: element (i, j, ...) is at offset + i * strides[0] + ... in storage."""

    storage: Storage
    strides: Shape
    offset: int
    border: Border | None = None

    def every(self, starts: Shape, steps: Shape, along: Shape) -> Place:
        """The place of the elements from `starts` on, `steps[n]` apart along axis `along[n]`."""
        if not any(starts) and all(s == 1 for s in steps):
            return self
        strides = tuple(self.strides[axis] * step for axis, step in zip(along, steps))
        offset = self.offset + sum(s * start for s, start in zip(self.strides, starts))
        return Place(self.storage, strides, offset)


@dataclass(eq=False)
class Placement:
    """The places of all values, the nodes that are mere views, and copies at the edges.

    `arriving` gives the caller's memory of inputs that are brought into another layout first;
    `leaving` the caller's memory of outputs that are computed elsewhere, by output number.  Parts
    of `divisions` have memory of their own.
    """

    places: dict[Value, Place] = field(default_factory=dict)
    views: dict[Node, bool] = field(default_factory=dict)
    arriving: dict[Value, Place] = field(default_factory=dict)
    leaving: dict[int, Place] = field(default_factory=dict)
    divisions: tuple[Division, ...] = ()
