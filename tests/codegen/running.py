"""Loop programs as machine code, called from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from tests.targets import HOST
from whet.build.native import NO_CACHE
from whet.codegen.llvm.compile import Library
from whet.codegen.llvm.emit import emit_program
from whet.codegen.llvm.generator import LlvmGenerator
from whet.codegen.llvm.module import Module
from whet.codegen.llvm.serial import SERIAL_POOL
from whet.core.cpu import CpuTarget
from whet.core.types import Array
from whet.ir.program import Program


def run_native(
    program: Program,
    arrays: Sequence[Array],
    *,
    checked: bool = False,
    target: CpuTarget | None = None,
    portable: bool = False,
) -> list[Array]:
    """The outputs of the program; memory is filled with ones in all bits before.

    What is `portable` takes no instructions of the target for granted.
    """
    target = target or HOST
    module = Module(None if portable else target)
    emit_program(program, module, {} if checked else None)
    library = Library(LlvmGenerator(target).objects([module.text(), SERIAL_POOL], NO_CACHE))
    made = [_filled(b.shape, b.dtype.numpy) for b in (*program.outputs, *program.workspace)]
    table = (ctypes.c_void_p * (len(arrays) + len(made)))(
        *(a.ctypes.data for a in (*arrays, *made))
    )
    library.function(program.name, ctypes.c_void_p)(ctypes.addressof(table))
    return made[: len(program.outputs)]


def _filled(shape: tuple[int, ...], dtype: np.dtype) -> Array:  # type: ignore[type-arg]
    made = np.empty(shape, dtype)
    made.reshape(-1).view(np.uint8)[:] = 0xFF
    return made
