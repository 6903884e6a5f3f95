"""A task: a connected DAG of tensor expressions with the layouts of its boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from whet.core.digest import digest_text
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, Placeholder, Tensor, describe, stages

Border = tuple[tuple[int, int], ...]
"""Zero elements kept before and after each axis of a stored value."""


@dataclass(frozen=True, eq=False)
class Task:
    """What one kernel computes.

    `buffers` gives every boundary tensor (placeholders and outputs) its place in memory;
    `borders` the zeros that surround it there; `constants` the inputs whose values are known
    when the kernel is built, so that it may store them in another order.
    """

    outputs: tuple[Compute, ...]
    buffers: Mapping[Tensor, Buffer]
    constants: frozenset[Tensor]
    borders: Mapping[Tensor, Border]

    @cached_property
    def inputs(self) -> tuple[Placeholder, ...]:
        return tuple(t for t in stages(self.outputs) if isinstance(t, Placeholder))

    @cached_property
    def key(self) -> str:
        """Equal for tasks that the same kernel serves: no node names, layouts included."""
        lines = [describe(*self.outputs)]
        for tensor in (*self.inputs, *self.outputs):
            buffer = self.buffers[tensor]
            lines.append(
                f"{tensor.name} {buffer.element_strides} {buffer.offset} "
                f"{self.borders.get(tensor)} {tensor in self.constants}"
            )
        return digest_text(*lines)
