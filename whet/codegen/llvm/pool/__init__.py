"""The thread pool, written as text IR.

A job is a loop of n iterations, cut into chunks.  Every thread has a home, a run of neighbouring
chunks, which is the same for every loop of n iterations: what a thread wrote in one loop it finds
in its own cache when it reads or writes it in the next.  All that threads compete for is a word
per home, each in a cache line of its own:

    bits 63..32  generation: which job
    bits 31..16  end:        behind the last chunk that nobody has claimed
    bits 15..0   next:       the first one that nobody has claimed

A thread claims a chunk of its own home by exchanging the word for the same word with `next` one
higher.  When nothing is left at home it helps the others, whose last chunks it takes: `end` one
lower.  When an exchange succeeds, the job is current and cannot end before the chunk is done, so
it is safe to read the rest of it (body, context, ranges) then, and only then: a thread that was
away for any number of jobs can do no harm.

One word more announces a job when all its homes are ready:

    bits 63..32  generation: which job, and what sleeping workers wait on
    bits 31..0   homes:      how many the job has

The caller works like everybody else and then waits until the chunks that others claimed are
done.  It never waits for a worker that has not woken up: such a worker has claimed nothing.  For
the same reason a forked child, which has no workers, cannot hang.

One caller at a time has the pool (`busy`).  Others, and loops inside the body of a running job,
run their loop by themselves: nobody waits, nothing can deadlock, and no thread-local state is
needed to tell that a loop is nested.

A worker that finds nothing to do spins for a while and then sleeps on the generation.  When it
starts, it binds itself to a processor if there is a table that says to which; callers are never
bound.
"""

from __future__ import annotations

from whet.codegen.llvm.pool.interface import interface
from whet.codegen.llvm.pool.jobs import jobs
from whet.codegen.llvm.pool.machine import machine_of
from whet.codegen.llvm.pool.pinning import pinning
from whet.codegen.llvm.pool.state import variables
from whet.codegen.llvm.pool.waiting import waiting
from whet.codegen.llvm.pool.workers import workers

_LIBC = """\
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @sched_yield()
declare i64 @syscall(i64, ...)
declare i64 @llvm.umin.i64(i64, i64)
"""


def pool_ir(architecture: str) -> str:
    """The module that defines the functions of `whet.runtime.pool.FUNCTIONS`."""
    machine = machine_of(architecture)
    parts = (
        _LIBC, variables(), waiting(machine), pinning(machine), jobs(), workers(), interface(),
    )  # fmt: skip
    return "\n".join(parts)
