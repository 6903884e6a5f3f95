"""Waiting for a job: spinning first, then asleep."""

from __future__ import annotations

from whet.codegen.llvm.pool.machine import Machine
from whet.codegen.llvm.pool.state import GENERATION, function

_FUTEX_WAIT, _FUTEX_WAKE = 128, 129
"""Futex operations, private to the process."""


def waiting(machine: Machine) -> str:
    """@pause, @spin, @wait and @wake."""
    return "\n".join([_pause(machine), _spin(), _wait(machine), _wake(machine)])


def _pause(machine: Machine) -> str:
    declaration = f"declare void @{machine.pause}({machine.pause_parameter})\n"
    return declaration + function("internal void @pause()", f"""
        call void @{machine.pause}({machine.pause_argument})
        ret void
        """)  # fmt: skip


def _spin() -> str:
    return function("internal i1 @spin(ptr %word, i32 %seen, i64 %limit)", """
        ; Looks at the word until it changes or patience ends; true if it has changed.
        entry:
          br label %look
        look:
          %turn = phi i64 [ 0, %entry ], [ %next, %again ]
          ; monotonic: nothing else is read on the strength of what is seen here.
          %now = load atomic i32, ptr %word monotonic, align 4
          %changed = icmp ne i32 %now, %seen
          %over = icmp uge i64 %turn, %limit
          %stop = or i1 %changed, %over
          br i1 %stop, label %out, label %again
        again:
          call void @pause()
          %next = add i64 %turn, 1
          br label %look
        out:
          ret i1 %changed
        """)  # fmt: skip


def _wait(machine: Machine) -> str:
    futex = f"i64 {machine.futex}, ptr {GENERATION}, i32 {_FUTEX_WAIT}"
    return function("internal void @wait(i32 %generation)", f"""
        ; Returns when the generation has changed, or for no reason at all.
        entry:
          %limit = load atomic i64, ptr @spin_limit monotonic, align 8
          %changed = call i1 @spin(ptr {GENERATION}, i32 %generation, i64 %limit)
          br i1 %changed, label %out, label %sleep
        sleep:
          ; seq_cst, as the caller's store of the job and load of the sleepers: either the
          ; caller sees this sleeper, or the kernel sees the new generation.
          %before = atomicrmw add ptr @sleepers, i32 1 seq_cst
          %result = call i64 (i64, ...) @syscall({futex}, i32 %generation, ptr null)
          ; 0: woken by @wake, which has already subtracted this sleeper.
          %woken = icmp eq i64 %result, 0
          br i1 %woken, label %out, label %undo
        undo:
          ; monotonic: too high a count costs a system call, and only the owner of the pool
          ; and this thread lower it.
          %after = atomicrmw sub ptr @sleepers, i32 1 monotonic
          br label %out
        out:
          ret void
        """)  # fmt: skip


def _wake(machine: Machine) -> str:
    futex = f"i64 {machine.futex}, ptr {GENERATION}, i32 {_FUTEX_WAKE}"
    return function("internal void @wake(i32 %count)", f"""
        ; Wakes up to `count` workers.  Those woken are subtracted at once, so that the next job
        ; makes no system call for workers that are already on their way.
        entry:
          ; seq_cst: see @wait.
          %sleepers = load atomic i32, ptr @sleepers seq_cst, align 4
          %none = icmp eq i32 %sleepers, 0
          br i1 %none, label %out, label %call
        call:
          %woken = call i64 (i64, ...) @syscall({futex}, i32 %count)
          %any = icmp sgt i64 %woken, 0
          br i1 %any, label %subtract, label %out
        subtract:
          %fewer = trunc i64 %woken to i32
          %before = atomicrmw sub ptr @sleepers, i32 %fewer monotonic
          br label %out
        out:
          ret void
        """)  # fmt: skip
