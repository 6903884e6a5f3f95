"""Small native jobs for the thread pool, written directly as text IR, and what runs them."""

from __future__ import annotations

import os
import platform
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from whet.codegen.llvm.compile import Library, emit_object, host_cpu
from whet.codegen.llvm.poolcode import process_pool
from whet.core.caching import FileCache
from whet.core.config import CacheConfig
from whet.core.types import Array
from whet.runtime.pool import ThreadPool

Job = Callable[[str, Array, int], None]
"""Runs one of `JOBS` on an array."""

GETTID = {"x86_64": 186, "aarch64": 178}[platform.machine()]


def _each(name: str, statements: str) -> str:
    """A body that runs the statements for every %i of its range."""
    return f"""
define internal void @{name}(ptr %context, i64 %begin, i64 %end) nounwind {{
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %last ]
{statements}
  br label %last
last:
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %end
  br i1 %more, label %loop, label %out
out:
  ret void
}}
"""


def _call(name: str, body: str) -> str:
    """void NAME(ptr context, i64 n): one job with that body."""
    return f"""
define void @{name}(ptr %context, i64 %n) nounwind {{
  call void @whet_parallel(ptr @{body}, ptr %context, i64 %n)
  ret void
}}
"""


def _often(name: str, body: str) -> str:
    """void NAME(ptr context, i64 jobs): jobs of 2, 3, ... 38, 2, 3, ... iterations."""
    return f"""
define void @{name}(ptr %context, i64 %jobs) nounwind {{
entry:
  br label %loop
loop:
  %j = phi i64 [ 0, %entry ], [ %next, %loop ]
  %rest = urem i64 %j, 37
  %n = add i64 %rest, 2
  call void @whet_parallel(ptr @{body}, ptr %context, i64 %n)
  %next = add i64 %j, 1
  %more = icmp ult i64 %next, %jobs
  br i1 %more, label %loop, label %out
out:
  ret void
}}
"""


def sum_of_jobs(jobs: int) -> int:
    """What @sum_often adds up: 1 + 2 + ... + n for every job of n iterations."""
    period = [n * (n + 1) // 2 for n in range(2, 39)]
    return jobs // 37 * sum(period) + sum(period[: jobs % 37])


# Adds i + 1 to the context.
_ADD = _each("add", """
  %value = add i64 %i, 1
  %before = atomicrmw add ptr %context, i64 %value monotonic
""")  # fmt: skip

# Counts in byte i of the context, without atomics: two threads must never share an index.
_COUNT = _each("count", """
  %slot = getelementptr i8, ptr %context, i64 %i
  %before = load i8, ptr %slot
  %after = add i8 %before, 1
  store i8 %after, ptr %slot
""")  # fmt: skip

# A loop of i + 2 iterations for every i.
_NEST = _each("nest", """
  %inner = add i64 %i, 2
  call void @whet_parallel(ptr @add, ptr %context, i64 %inner)
""")  # fmt: skip

# Waits until all iterations are under way, each in a thread of its own, and stores the threads'
# numbers.  The context holds the count of arrivals, the number expected, then the numbers.
_MEET = _each("meet", f"""
  %slots = getelementptr i64, ptr %context, i64 2
  %slot = getelementptr i64, ptr %slots, i64 %i
  %thread = call i64 (i64, ...) @syscall(i64 {GETTID})
  store i64 %thread, ptr %slot
  %before = atomicrmw add ptr %context, i64 1 seq_cst
  %goal = getelementptr i64, ptr %context, i64 1
  %expected = load i64, ptr %goal
  br label %wait
wait:
  %ignored = call i32 @sched_yield()
  %now = load atomic i64, ptr %context seq_cst, align 8
  %all = icmp uge i64 %now, %expected
  br i1 %all, label %met, label %wait
met:
""")  # fmt: skip

# Stores the number of the thread that ran iteration i.
_TRACE = _each("trace", f"""
  %slot = getelementptr i64, ptr %context, i64 %i
  %thread = call i64 (i64, ...) @syscall(i64 {GETTID})
  store i64 %thread, ptr %slot
""")  # fmt: skip

_DEFINITIONS = {
    "sum_once": _call("sum_once", "add"),
    "count_once": _call("count_once", "count"),
    "nest_once": _call("nest_once", "nest"),
    "meet_once": _call("meet_once", "meet"),
    "trace_once": _call("trace_once", "trace"),
    "sum_often": _often("sum_often", "add"),
    "nest_often": _often("nest_often", "nest"),
}
JOBS = tuple(_DEFINITIONS)

_MODULE = "\n".join([
    "declare void @whet_parallel(ptr, ptr, i64)",
    "declare i64 @syscall(i64, ...)",
    "declare i32 @sched_yield()",
    *(_ADD, _COUNT, _NEST, _MEET, _TRACE),
    *_DEFINITIONS.values(),
])  # fmt: skip


def load(cache_dir: Path) -> tuple[ThreadPool, Library]:
    """The process's pool, and the jobs linked with it."""
    pool = process_pool(FileCache(CacheConfig(dir=cache_dir)))
    return pool, Library([emit_object(_MODULE, *host_cpu())], pool.symbols)


def meet(job: Job, threads: int) -> list[int]:
    """Thread numbers of a job that needs so many threads at once, the caller's first.

    Nobody can help others while all wait for all.
    """
    context = np.zeros(2 + threads, np.int64)
    context[1] = threads
    job("meet_once", context, threads)
    found: list[int] = context[2:].tolist()
    return found


def exit_status(pid: int, seconds: float = 20) -> int:
    """The exit status of a child that must end by itself."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail("the forked child hangs")


def run_in_fork(check: Callable[[], bool]) -> None:
    """Fork; the child must find that the check holds."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if check() else 2
        finally:
            os._exit(status)
    assert exit_status(pid) == 0
