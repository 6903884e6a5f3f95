"""Checks of every access, for finding mistakes in schedules and code generation.

An access outside its buffer ends the process with a message such as

    whet: kernel k3f: 'x0' has extent 56 along axis 1 and is accessed at 57
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.module import Module
from whet.codegen.llvm.operand import Operand, literal
from whet.core.dtypes import bool_, i64

_REPORT = "whet_out_of_bounds"
_MESSAGE = "whet: kernel %s: '%s' has extent %ld along axis %ld and is accessed at %ld\n"


def check_access(
    f: FunctionWriter, buffer: str, shape: Sequence[int], indices: Sequence[Operand]
) -> None:
    """Ends the process unless every index is within its extent."""
    define_report(f.module)
    for axis, (extent, index) in enumerate(zip(shape, indices, strict=True)):
        # As an unsigned number a negative index is far outside.
        outside = f.emit(f"icmp uge {index}, {extent}", bool_)
        f.open_branch()
        names = ", ".join(f"ptr @{f.module.string(t)}" for t in (f.name, buffer))
        numbers = ", ".join(str(x) for x in (literal(extent, i64), literal(axis, i64), index))
        f.line(f"call void @{_REPORT}({names}, {numbers})")
        f.close_branch(outside)


def define_report(module: Module) -> None:
    """The function that prints the message and gives up."""
    text = module.string(_MESSAGE)
    parameters = "ptr %kernel, ptr %buffer, i64 %extent, i64 %axis, i64 %index"
    function = f"""define internal void @{_REPORT}({parameters}) cold noreturn nounwind {{
  call i32 (i32, ptr, ...) @dprintf(i32 2, ptr @{text}, {parameters})
  call void @abort()
  unreachable
}}"""
    if function not in module.functions:
        module.declarations["dprintf"] = "declare i32 @dprintf(i32, ptr, ...)"
        module.declare("abort", "void")
        module.functions.append(function)
