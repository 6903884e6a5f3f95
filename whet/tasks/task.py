"""A task: a connected DAG of tensor expressions with the layouts of its boundary."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from whet.core.digest import digest_text
from whet.ir.affine import free_symbols
from whet.ir.expr import Axis, Read, Reduce, elements
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, Placeholder, Tensor, describe, stages, subexpressions

Border = tuple[tuple[int, int], ...]
"""Zero elements kept before and after each axis of a stored value."""


def wider_border(a: Border | None, b: Border) -> Border:
    """The least border that has both within it."""
    if a is None:
        return b
    return tuple((max(x[0], y[0]), max(x[1], y[1])) for x, y in zip(a, b))


@dataclass(frozen=True, eq=False)
class Task:
    """The computation of one kernel.

    `buffers` gives every boundary tensor (placeholders and outputs) its place in memory;
    `borders` the zeros that surround it there; `constants` the inputs whose values are known
    when the kernel is built, so that it may store them in another order; `given` the inputs
    that are arrays of the caller's, which begin where his allocator put them.  A kernel of a
    `guarded` task raises an alarm when it meets values that its algorithm would spread to results
    which do not depend on them; that is no part of the key, for the same schedules are best.
    """

    outputs: tuple[Compute, ...]
    buffers: Mapping[Tensor, Buffer]
    constants: frozenset[Tensor]
    borders: Mapping[Tensor, Border]
    given: frozenset[Tensor] = frozenset()
    guarded: bool = False

    @cached_property
    def inputs(self) -> tuple[Placeholder, ...]:
        return tuple(t for t in stages(self.outputs) if isinstance(t, Placeholder))

    @cached_property
    def moving(self) -> tuple[Tensor, ...]:
        """The boundary tensors that are others at every call."""
        return tuple(t for t in (*self.inputs, *self.outputs) if t not in self.constants)

    @cached_property
    def constant_bytes(self) -> int:
        """The bytes that a call reads of the constants."""
        return sum(self._read_bytes(t) for t in self.constants)

    def _read_bytes(self, tensor: Tensor) -> int:
        """All of a tensor, but of a table that is looked up in no more than is asked for.

        y[i, j in 128, 768] = table[tokens[i], j]     ->  128 rows, however many there are
        """
        bodies = [s.body for s in stages(self.outputs) if isinstance(s, Compute)]
        reads = [e for b in bodies for e in subexpressions(b) if isinstance(e, Read)]
        own = [e for e in reads if e.tensor is tensor]
        if not all(any(isinstance(x, Read) for x in subexpressions(*e.indices)) for e in own):
            return tensor.type.nbytes
        asked = sum(elements([a for a in free_symbols(e) if isinstance(a, Axis)]) for e in own)
        return min(tensor.type.nbytes, asked * tensor.dtype.itemsize)

    @cached_property
    def operations(self) -> float:
        """Element computations of all stages, a reduced term counting as two."""
        total = 0.0
        for stage in stages(self.outputs):
            if isinstance(stage, Compute):
                reduces = [e for e in subexpressions(stage.body) if isinstance(e, Reduce)]
                terms = sum(elements(e.axes) for e in reduces)
                total += stage.type.size * (1 + 2 * terms)
        return total

    @cached_property
    def key(self) -> str:
        """Equal for tasks that the same kernel serves: no node names, layouts included."""
        return digest_text(*self._lines)

    @cached_property
    def text(self) -> str:
        """The text that the key stands for: stages, then the place of every boundary tensor."""
        return "\n".join(self._lines)

    @cached_property
    def class_key(self) -> str:
        """Equal for tasks that differ in extents and numbers only, so that a schedule of one
        is a good start for the other.

        Kept are the stages, small steps and offsets of indices, element types, the order of
        axes in memory, and which tensors are constant or have a border.
        """
        lines = [_without_extents(describe(*self.outputs))]
        for tensor in (*self.inputs, *self.outputs):
            strides = self.buffers[tensor].element_strides
            order = sorted(range(len(strides)), key=lambda n: -strides[n])
            lines.append(
                f"{tensor.name} {tensor.dtype} {order} {1 in strides} "
                f"{tensor in self.borders} {tensor in self.constants}"
            )
        return digest_text(*lines)

    @cached_property
    def _lines(self) -> tuple[str, ...]:
        lines = [describe(*self.outputs)]
        for tensor in (*self.inputs, *self.outputs):
            buffer = self.buffers[tensor]
            lines.append(
                f"{tensor.name} {buffer.element_strides} {buffer.offset} "
                f"{self.borders.get(tensor)} {tensor in self.constants}"
                f"{' given' if tensor in self.given else ''}"
            )
        return tuple(lines)


_EXTENTS = (
    re.compile(r"(?<=\bin )\d+(?:, \d+)*"),
    re.compile(r"(?<=placeholder )\S+\[[\d, ]*\]"),
    re.compile(r"(?<![\w.])-?\d+\.\d*(?:e[-+]?\d+)?"),
    re.compile(r"(?<=[<>=/%] )\d+"),
    re.compile(r"(?<![\w.])(?:9|\d{2,})(?![\w.])"),
)
"""Extents of axes and placeholders, numbers that are no integers (their value never matters to a
schedule), bounds and divisors, and all integers that are too large for a step or an offset."""


def _without_extents(text: str) -> str:
    """y[i in 56] = sum(x[2 * i + k - 1] ... for k in 3)  ->  y[i in #] = ... for k in #)"""
    for pattern in _EXTENTS:
        text = pattern.sub("#", text)
    return text
