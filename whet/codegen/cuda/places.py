"""Buffers in the text of a kernel: their base, and elements by linear addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.codegen.cuda.support import HALVES
from whet.ir.affine import Affine, affine, combine
from whet.ir.expr import Expr, Var
from whet.ir.program import Buffer
from whet.ir.threads import Role

FRAGMENT_REGISTERS = {"left": 4, "right": 4, "sum": 8}
"""Registers of 32 bits that a lane holds of a matrix."""


@dataclass(eq=False)
class Places:
    """The bases of buffers, and what is special about some of them."""

    bases: dict[Buffer, str] = field(default_factory=dict)
    distributed: set[Buffer] = field(default_factory=set)
    rank: Var | None = None
    """The variable of the cluster loop."""
    roles: dict[Buffer, Role] = field(default_factory=dict)
    elements: tuple[Var, Var, str] | None = None
    """Within a loop over the elements of a fragment: the row and the first column of neighbours
    that a lane holds, and the number of the first among its elements."""

    def address(self, buffer: Buffer, indices: Sequence[Expr]) -> Affine:
        """The element as a linear address, within a block's own part if that is distributed."""
        strides = buffer.element_strides
        parts = list(zip(map(affine, indices), strides))
        return combine(parts[1:] if buffer in self.distributed else parts, buffer.offset)

    def is_elsewhere(self, buffer: Buffer, indices: Sequence[Expr]) -> bool:
        """Whether an element may lie in another block's part."""
        return buffer in self.distributed and indices[0] is not self.rank

    def in_memory(self, buffer: Buffer) -> bool:
        """Whether a buffer is memory or shared memory, and not a thread's own."""
        return buffer.scope == "shared" or (buffer.scope == "memory" and buffer not in self.own)

    own: set[Buffer] = field(default_factory=set)
    """Scratch memory of threads."""

    def holds_values(self, buffer: Buffer) -> bool:
        """Whether elements are kept as they are computed with, and not as they lie in memory."""
        return buffer.scope == "register" and (
            buffer.dtype in HALVES or buffer.dtype.name == "bool"
        )
