"""How long it takes to hand a job to the thread pool and get it back.

    python bench/fork_join.py [--threads 2]

Hot: the workers are still looking out for work.  Cold: they sleep.  In a job with a meeting,
every thread waits inside the body until all have arrived, so the figure is the full way there
and back; a job without one may end before anybody else has noticed it.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable

import numpy as np

from whet.codegen.llvm.compile import Library, emit_object, host_cpu
from whet.codegen.llvm.poolcode import process_pool
from whet.core.caching import FileCache
from whet.core.config import process_config

JOBS = """
declare void @whet_parallel(ptr, ptr, i64)

define internal void @empty(ptr %context, i64 %begin, i64 %end) nounwind {
  ret void
}

; context: arrivals so far, arrivals that end this meeting
define internal void @meet(ptr %context, i64 %begin, i64 %end) nounwind {
entry:
  %slot = getelementptr i64, ptr %context, i64 1
  %goal = load i64, ptr %slot
  %before = atomicrmw add ptr %context, i64 1 acq_rel
  br label %wait
wait:
  %now = load atomic i64, ptr %context acquire, align 8
  %all = icmp uge i64 %now, %goal
  br i1 %all, label %out, label %wait
out:
  ret void
}

; context: as above
define void @empty_jobs(ptr %context, i64 %n, i64 %jobs) nounwind {
entry:
  br label %loop
loop:
  %j = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @whet_parallel(ptr @empty, ptr %context, i64 %n)
  %next = add i64 %j, 1
  %more = icmp ult i64 %next, %jobs
  br i1 %more, label %loop, label %out
out:
  ret void
}

define void @meetings(ptr %context, i64 %n, i64 %jobs) nounwind {
entry:
  %slot = getelementptr i64, ptr %context, i64 1
  br label %loop
loop:
  %j = phi i64 [ 0, %entry ], [ %next, %loop ]
  %goal = load i64, ptr %slot
  %later = add i64 %goal, %n
  store i64 %later, ptr %slot
  call void @whet_parallel(ptr @meet, ptr %context, i64 %n)
  %next = add i64 %j, 1
  %more = icmp ult i64 %next, %jobs
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""


def timings(call: Callable[[int], None], jobs: int, repeats: int, pause: float) -> list[float]:
    """Microseconds per job, once per repeat, after a pause each time."""
    found = []
    for _ in range(repeats):
        time.sleep(pause)
        start = time.perf_counter()
        call(jobs)
        found.append((time.perf_counter() - start) / jobs * 1e6)
    return found


def report(name: str, microseconds: list[float]) -> None:
    low, middle = min(microseconds), statistics.median(microseconds)
    tenth = statistics.quantiles(microseconds, n=10)[-1]
    print(f"{name:28}{low:10.2f}{middle:10.2f}{tenth:10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads
    pool = process_pool(FileCache(process_config().cache))
    pool.set_threads(threads)
    library = Library([emit_object(JOBS, *host_cpu())], pool.symbols)
    context = np.zeros(2, np.int64)

    def caller(name: str) -> Callable[[int], None]:
        native = library.function(name, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        address = context.ctypes.data
        return lambda jobs: native(address, threads, jobs)

    empty, meetings = caller("empty_jobs"), caller("meetings")
    print(f"{threads} threads, microseconds  {'min':>9}{'median':>10}{'90 %':>10}")
    for call in (empty, meetings):
        call(1000)
    report("hot, empty", timings(empty, 1000, 100, 0.0))
    report("hot, all threads meet", timings(meetings, 1000, 100, 0.0))
    report("cold, empty", timings(empty, 1, 300, 0.001))
    report("cold, all threads meet", timings(meetings, 1, 300, 0.001))


if __name__ == "__main__":
    main()
