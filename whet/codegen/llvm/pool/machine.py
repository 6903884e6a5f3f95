"""What the pool must know about a processor's architecture."""

from __future__ import annotations

from dataclasses import dataclass

from whet.core.errors import UsageError, check


@dataclass(frozen=True, slots=True)
class Machine:
    """Instructions and numbers that differ between architectures."""

    pause: str
    """The intrinsic that lets a waiting thread take less of the core."""
    pause_parameter: str
    pause_argument: str
    futex: int
    sched_setaffinity: int
    """Numbers of system calls."""


_MACHINES = {
    "x86_64": Machine("llvm.x86.sse2.pause", "", "", futex=202, sched_setaffinity=203),
    # `yield` does nothing on most cores; an instruction barrier waits a few dozen cycles.
    "aarch64": Machine("llvm.aarch64.isb", "i32", "i32 15", futex=98, sched_setaffinity=122),
}


def machine_of(architecture: str) -> Machine:
    check(architecture in _MACHINES, "WH1002",
          f"there is no thread pool for processors of type '{architecture}'",
          kind=UsageError)  # fmt: skip
    return _MACHINES[architecture]
