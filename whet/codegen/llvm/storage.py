"""Where the elements of buffers are: the parameter table, the stack, or registers."""

from __future__ import annotations

from collections.abc import Mapping

from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.operand import llvm_type, memory_type
from whet.codegen.llvm.support import require_code
from whet.core.errors import check
from whet.ir.program import SCRATCH_LIMIT_BYTES, Buffer


class Storage:
    """The buffers of one function."""

    def __init__(
        self, function: FunctionWriter, slots: Mapping[Buffer, int], frozen: frozenset[Buffer]
    ) -> None:
        self.function, self.slots, self.frozen = function, slots, frozen
        self.bases: dict[Buffer, str] = {}
        self.generation: dict[Buffer, int] = {}
        self.registers: dict[tuple[Buffer, int, int, int], str] = {}

    def allocate(self, buffer: Buffer) -> None:
        """Room for a scratch buffer; a second allocation of it is a new one."""
        self.generation[buffer] = self.generation.get(buffer, 0) + 1
        if buffer.scope == "memory":
            require_code(buffer.type.nbytes <= SCRATCH_LIMIT_BYTES,
                         f"a scratch buffer of {buffer.type} on the stack")  # fmt: skip
            name = self.function.fresh("stack")
            kind = f"[{max(buffer.type.size, 1)} x {memory_type(buffer.dtype)}]"
            self.function.allocas.append(f"{name} = alloca {kind}, align 64")
            self.bases[buffer] = name

    def base(self, buffer: Buffer) -> str:
        """The address of element 0 of a memory buffer."""
        if buffer not in self.bases:
            check(buffer in self.slots, "WH1301", f"buffer '{buffer.name}' is not defined")
            slot, base = self.function.fresh("slot"), self.function.fresh("base")
            self.function.allocas += [
                f"{slot} = getelementptr ptr, ptr %table, i64 {self.slots[buffer]}",
                f"{base} = load ptr, ptr {slot}, align 8, !invariant.load !{{}}",
            ]
            self.bases[buffer] = base
        return self.bases[buffer]

    def report(self) -> None:
        """Write what tells the caller of an index outside its buffer.

        The address of the status is the last entry of the table, and it is there only if
        something may report; it is read when something does.
        """
        slot, status = self.function.fresh("slot"), self.function.fresh("status")
        self.function.line(f"{slot} = getelementptr ptr, ptr %table, i64 {len(self.slots)}")
        self.function.line(f"{status} = load ptr, ptr {slot}, align 8")
        self.function.line(f"store i64 1, ptr {status}, align 8")
        self.function.module.has_status = True

    def register(self, buffer: Buffer, position: int, lanes: int) -> str:
        """The stack slot that stands for a register; `sroa` turns it into one."""
        key = (buffer, self.generation[buffer], position, lanes)
        if key not in self.registers:
            name = self.function.fresh("reg")
            self.function.allocas.append(f"{name} = alloca {llvm_type(buffer.dtype, lanes)}")
            self.registers[key] = name
        return self.registers[key]
