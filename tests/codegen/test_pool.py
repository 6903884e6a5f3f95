"""The thread pool: every iteration runs once, in as many threads as were asked for."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from tests.codegen.pool_jobs import Job, meet, run_in_fork, sum_of_jobs
from whet.codegen.llvm.compile import Library, emit_object, host_cpu
from whet.codegen.llvm.emit import emit_program
from whet.codegen.llvm.module import Module
from whet.codegen.llvm.pool import pool_ir
from whet.codegen.llvm.pool.state import CHUNKS_PER_THREAD, LINE_BYTES
from whet.codegen.llvm.poolcode import pool_object, process_pool
from whet.core.caching import FileCache
from whet.core.config import CacheConfig
from whet.core.dtypes import f32
from whet.core.errors import UsageError
from whet.ir.expr import Var, as_expr
from whet.ir.program import Buffer, Loop, Program, Store
from whet.runtime.pool import FUNCTIONS, MAX_THREADS, ThreadPool

ROOT = Path(__file__).resolve().parents[2]
HANGS_SECONDS = 60.0
"""What takes longer does not end."""


def threads_of_process() -> int:
    """How many there are.  The system lists a thread for a moment longer than it exists."""

    def listed() -> int:
        time.sleep(0.004)
        return len(list(Path("/proc/self/task").iterdir()))

    return min(listed() for _ in range(5))


# ------------------------------------------------------------------------------- correctness
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_sums_of_many_jobs_are_exact(pool: ThreadPool, job: Job, threads: int) -> None:
    pool.set_threads(threads)
    total = np.zeros(1, np.int64)
    job("sum_often", total, 200_000)
    assert total[0] == sum_of_jobs(200_000)


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 11, 12, 13, 97, 1000, 65_537])
def test_every_iteration_runs_once(pool: ThreadPool, job: Job, threads: int, n: int) -> None:
    pool.set_threads(threads)
    counts = np.zeros(n + 1, np.uint8)
    job("count_once", counts, n)
    assert (counts[:n] == 1).all()
    assert counts[n] == 0


def test_a_negative_extent_runs_nothing(pool: ThreadPool, job: Job) -> None:
    pool.set_threads(2)
    total = np.zeros(1, np.int64)
    job("sum_once", total, -3)
    assert total[0] == 0


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_loops_inside_loops_run(pool: ThreadPool, job: Job, threads: int) -> None:
    pool.set_threads(threads)
    total = np.zeros(1, np.int64)
    job("nest_once", total, 100)
    assert total[0] == sum((i + 2) * (i + 3) // 2 for i in range(100))


def test_chunks_are_contiguous_and_several_per_thread(pool: ThreadPool, job: Job) -> None:
    pool.set_threads(3)
    owners = np.zeros(10_000, np.int64)
    job("trace_once", owners, len(owners))
    changes = np.flatnonzero(np.diff(owners)) + 1
    chunks = 3 * CHUNKS_PER_THREAD
    borders = {c * len(owners) // chunks for c in range(chunks)}
    assert set(changes.tolist()) <= borders


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_threads_begin_where_they_began_before(pool: ThreadPool, job: Job, threads: int) -> None:
    """What a thread left in its cache it finds there; the caller has the first iterations."""
    pool.set_threads(threads)
    owners = [meet(job, threads) for _ in range(50)]
    assert owners == [owners[0]] * 50
    assert owners[0][0] == threading.get_native_id()


def test_callers_on_several_threads(pool: ThreadPool, job: Job) -> None:
    pool.set_threads(3)
    totals = [np.zeros(1, np.int64) for _ in range(4)]
    names = ["sum_often", "nest_often", "sum_often", "nest_often"]
    jobs = [60_000, 3_000, 60_000, 3_000]
    callers = [
        threading.Thread(target=job, args=(name, total, n))
        for name, total, n in zip(names, totals, jobs, strict=True)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    nested = sum(sum((i + 2) * (i + 3) // 2 for i in range(2 + j % 37)) for j in range(jobs[1]))
    assert [int(t[0]) for t in totals] == [sum_of_jobs(60_000), nested] * 2


def test_the_number_of_threads_may_change_while_jobs_run(pool: ThreadPool, job: Job) -> None:
    pool.set_threads(2)
    total = np.zeros(1, np.int64)
    caller = threading.Thread(target=job, args=("sum_often", total, 300_000))
    caller.start()
    for n in range(60):
        pool.set_threads(1 + n % 4)
    caller.join()
    assert total[0] == sum_of_jobs(300_000)


# ------------------------------------------------------------------------------------ threads
@pytest.mark.parametrize("threads", [1, 2, 4, 3])
def test_the_number_of_threads_is_exact(pool: ThreadPool, job: Job, threads: int) -> None:
    pool.set_threads(1)
    before = threads_of_process()
    pool.set_threads(threads)
    assert len(set(meet(job, threads))) == threads
    assert threads_of_process() == before + threads - 1
    assert pool.threads == threads
    assert pool.stats().workers == threads - 1
    owners = np.zeros(50_000, np.int64)
    job("trace_once", owners, len(owners))
    assert len(set(owners.tolist())) <= threads


def test_one_thread_is_the_caller(pool: ThreadPool, job: Job) -> None:
    pool.set_threads(1)
    generation = pool.stats().generation
    assert meet(job, 1) == [threading.get_native_id()]
    owners = np.zeros(100, np.int64)
    job("trace_once", owners, len(owners))
    assert set(owners.tolist()) == {threading.get_native_id()}
    assert pool.stats().generation == generation


def test_no_thread_starts_before_the_first_loop(pool: ThreadPool, job: Job) -> None:
    pool.set_threads(1)
    before = threads_of_process()
    pool.set_threads(4)
    assert (threads_of_process(), pool.stats().workers) == (before, 0)
    meet(job, 4)
    assert threads_of_process() == before + 3
    pool.set_threads(2)
    assert (threads_of_process(), pool.stats().workers) == (before, 0)


def is_asleep(thread: int) -> bool:
    stat = Path(f"/proc/self/task/{thread}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "S"


def times_scheduled(thread: int) -> int:
    """How often the thread has left a processor; one that sleeps on does not."""
    status = Path(f"/proc/self/task/{thread}/status").read_text()
    return sum(int(n) for n in re.findall(r"ctxt_switches:\s+(\d+)", status))


def test_workers_of_an_idle_pool_sleep_on(pool: ThreadPool, job: Job) -> None:
    pool.set_threads(4)
    workers = meet(job, 4)[1:]
    deadline = time.monotonic() + HANGS_SECONDS
    while not (pool.stats().sleeping == 3 and all(map(is_asleep, workers))):
        assert time.monotonic() < deadline, "the workers go on spinning"
        time.sleep(0.001)
    before = [times_scheduled(worker) for worker in workers]
    time.sleep(0.1)
    assert [times_scheduled(worker) for worker in workers] == before


def test_sleeping_workers_wake_up(pool: ThreadPool, job: Job) -> None:
    pool.set_threads(3)
    pool.set_spin(0)
    try:
        for _ in range(200):
            assert len(set(meet(job, 3))) == 3
    finally:
        pool.set_spin(50)


def test_workers_spin_as_asked_and_then_sleep(pool: ThreadPool, job: Job) -> None:
    pool.set_threads(2)
    pool.set_spin(1_000_000)
    try:
        assert sleeping_soon_after(pool, lambda: meet(job, 2)) == 0
        deadline = time.monotonic() + HANGS_SECONDS
        while not pool.stats().sleeping:
            assert time.monotonic() < deadline, "the worker goes on spinning"
            time.sleep(0.005)
    finally:
        pool.set_spin(50)


def sleeping_soon_after(pool: ThreadPool, work: Callable[[], object]) -> int:
    """How many workers sleep after the work, looked at long before they are to.

    Where the machine kept this thread waiting, what it saw says nothing, and it works once more.
    """
    while True:
        work()
        ended = time.monotonic()
        time.sleep(0.002)
        found = pool.stats().sleeping
        if time.monotonic() - ended < 0.05:
            return found


@pytest.mark.parametrize("threads", [0, -1, MAX_THREADS + 1])
def test_impossible_numbers_of_threads(pool: ThreadPool, threads: int) -> None:
    with pytest.raises(UsageError, match="threads are not between 1 and") as caught:
        pool.set_threads(threads)
    assert caught.value.code == "WH1002"


def test_impossible_spins(pool: ThreadPool) -> None:
    for microseconds in (-1.0, 2e6, float("nan")):
        with pytest.raises(UsageError, match="is not between 0 and one second"):
            pool.set_spin(microseconds)


# ---------------------------------------------------------------------------- life of a process
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_its_own_workers(pool: ThreadPool, job: Job) -> None:
    pool.set_threads(3)
    parent = meet(job, 3)

    def works() -> bool:
        total = np.zeros(1, np.int64)
        job("sum_often", total, 5_000)
        own = set(meet(job, 3))
        exact = total[0] == sum_of_jobs(5_000) and threads_of_process() == 3
        return exact and len(own) == 3 and not own & set(parent)

    run_in_fork(works)
    assert meet(job, 3) == parent


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_job(pool: ThreadPool, job: Job) -> None:
    """The child's copy of the pool is in the hands of a thread that it does not have."""
    pool.set_threads(2)
    total = np.zeros(1, np.int64)
    caller = threading.Thread(target=job, args=("sum_often", total, 400_000))
    caller.start()
    for _ in range(5):
        run_in_fork(lambda: len(set(meet(job, 2))) == 2)
    caller.join()
    assert total[0] == sum_of_jobs(400_000)


def run_script(text: str, cache: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(text), str(cache)],
        capture_output=True, text=True, check=False, timeout=60, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


START = """
import ctypes, pathlib, sys, threading, time
import numpy as np
from tests.codegen.pool_jobs import load
pool, jobs = load(pathlib.Path(sys.argv[1]))
sums = jobs.function("sum_often", ctypes.c_void_p, ctypes.c_int64)
total = np.zeros(1, np.int64)
pool.set_threads(4)
"""


def test_a_process_with_awake_workers_ends(tmp_path: Path) -> None:
    """The workers are gone before the code that they spin in."""
    # Registered before the pool's own, so it runs after it.
    first = "import atexit; atexit.register(lambda: print(pool.stats().workers))"
    last = "pool.set_spin(1e6); sums(total.ctypes.data, 5000); print(pool.stats().workers)"
    assert run_script(first + START + last, tmp_path / "cache").split() == ["3", "0"]


def test_a_process_ends_while_a_daemon_uses_the_pool(tmp_path: Path) -> None:
    script = START + textwrap.dedent("""
        work = lambda: sums(total.ctypes.data, 100_000_000)
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.05)
        print("end")
        """)
    assert run_script(script, tmp_path / "cache") == "end"


# --------------------------------------------------------------------------------------- code
@pytest.mark.parametrize("threads", [1, 3])
def test_a_parallel_loop_of_a_program(pool: ThreadPool, threads: int) -> None:
    n = 1000
    x, y, i = Buffer("x", (n,), f32), Buffer("y", (n,), f32), Var("i")
    body = Loop(i, as_expr(n), (Store(y, (i,), x[i] * 3.0),), "parallel")
    module = Module()
    emit_program(Program("triple", (x,), (y,), (body,)), module)
    library = Library([emit_object(module.text(), *host_cpu())], pool.symbols)
    pool.set_threads(threads)
    given, found = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    table = np.array([given.ctypes.data, found.ctypes.data], np.uint64)
    library.function("triple", ctypes.c_void_p)(table.ctypes.data)
    np.testing.assert_array_equal(found, given * 3)


def test_there_is_one_pool(pool: ThreadPool, tmp_path: Path) -> None:
    assert process_pool(FileCache(CacheConfig(dir=tmp_path))) is pool


def test_the_code_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FileCache(CacheConfig(dir=tmp_path / "cache"))
    made = pool_object(cache)

    def compile_again(*args: str) -> bytes:
        raise AssertionError("the object is in the cache")

    monkeypatch.setattr("whet.codegen.llvm.poolcode.emit_object", compile_again)
    assert pool_object(cache) == made


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_code_for_each_architecture(architecture: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = f"{architecture}-unknown-linux-gnu"
    module = llvm.parse_assembly(pool_ir(architecture))
    module.triple = triple
    module.verify()
    functions = {f.name: f.is_declaration for f in module.functions}
    imports = {n for n, declared in functions.items() if declared and not n.startswith("llvm.")}
    assert imports == {"pthread_create", "pthread_join", "sched_yield", "syscall"}
    assert {name for name in FUNCTIONS if not functions[name]} == set(FUNCTIONS)
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=2, reloc="pic")
    assembly = machine.emit_assembly(module)
    assert {"x86_64": "pause", "aarch64": "isb"}[architecture] in assembly
    assert {"x86_64": "cmpxchg", "aarch64": "ldaxr"}[architecture] in assembly


def test_threads_do_not_share_the_lines_that_they_write() -> None:
    """Whole lines for every variable, so that no neighbour of any object lies in one of them."""
    module = llvm.parse_assembly(pool_ir("x86_64"))
    layout = llvm.Target.from_default_triple().create_target_machine().target_data
    sizes = {}
    for variable in module.global_variables:
        assert f"align {LINE_BYTES}" in str(variable)
        sizes[variable.name] = layout.get_abi_size(variable.global_value_type)
    assert all(size % LINE_BYTES == 0 for size in sizes.values())
    assert sizes["homes"] == MAX_THREADS * LINE_BYTES
    lines: dict[str, list[str]] = {}
    for word, line in re.findall(r"@(\w+) = internal alias .*ptr @([\w.]+)", str(module)):
        lines.setdefault(line, []).append(word)
    assert all(sizes[line] == LINE_BYTES for line in lines)
    # What workers write, and what they look at while they spin.
    for word in ("job", "done", "busy", "sleepers"):
        assert lines[f"{word}.line"] == [word]
    assert sorted(sizes) == sorted([*lines, "homes", "handles"])


def test_unknown_architectures_are_refused() -> None:
    with pytest.raises(UsageError, match="no thread pool for processors of type 'z80'"):
        pool_ir("z80")
