"""Workers that stay on a processor of their own."""

from __future__ import annotations

from whet.codegen.llvm.pool.machine import Machine
from whet.codegen.llvm.pool.state import function


def pinning(machine: Machine) -> str:
    """@pin."""
    call = f"i64 {machine.sched_setaffinity}, i64 0, i64 %bytes, ptr %mask"
    return function("internal void @pin(i64 %me)", f"""
        ; Binds this thread to its place in the table of `whet.runtime.places`, if there is one.
        entry:
          ; acquire: the table was written before.
          %table = load atomic ptr, ptr @places acquire, align 8
          %none = icmp eq ptr %table, null
          br i1 %none, label %out, label %choose
        choose:
          %count = load i64, ptr %table, align 8
          %second = getelementptr i64, ptr %table, i64 1
          %bytes = load i64, ptr %second, align 8
          %masks = getelementptr i64, ptr %table, i64 2
          ; The first place is left to the caller, who has number 0 and is not bound.
          %number = urem i64 %me, %count
          %offset = mul i64 %number, %bytes
          %mask = getelementptr i8, ptr %masks, i64 %offset
          %result = call i64 (i64, ...) @syscall({call})
          %bound = icmp eq i64 %result, 0
          %counter = select i1 %bound, ptr @pinned, ptr @refused
          %before = atomicrmw add ptr %counter, i32 1 monotonic
          br label %out
        out:
          ret void
        """)  # fmt: skip
