"""The threads of the pool."""

from __future__ import annotations

from whet.codegen.llvm.pool.state import GENERATION, function
from whet.runtime.pool import MAX_THREADS

_EVERYBODY = (1 << 31) - 1


def workers() -> str:
    """@worker, @start_workers, @stop_workers and @adjust.

    The last three are for the owner of the pool, while no job is under way.
    """
    return "\n".join([_worker(), _start(), _stop(), _adjust()])


def _worker() -> str:
    return function("internal ptr @worker(ptr %number)", f"""
        entry:
          %me = ptrtoint ptr %number to i64
          call void @pin(i64 %me)
          br label %look
        look:
          ; Read before working, so that the wait below notices a job published meanwhile.
          ; acquire: `quit` is stored before the generation that announces it.
          %generation = load atomic i32, ptr {GENERATION} acquire, align 4
          %quit = load atomic i32, ptr @quit monotonic, align 4
          %leave = icmp ne i32 %quit, 0
          br i1 %leave, label %home, label %work
        work:
          %ran = call i64 @work(i64 %me)
          %any = icmp ne i64 %ran, 0
          br i1 %any, label %report, label %wait
        report:
          ; release: the caller, which reads the count with acquire, sees what the chunks wrote.
          ; The job cannot end before, so all of these chunks belonged to one job.
          %before = atomicrmw add ptr @done, i64 %ran release
          br label %wait
        wait:
          call void @wait(i32 %generation)
          br label %look
        home:
          ret ptr null
        """)  # fmt: skip


def _start() -> str:
    return function("internal void @start_workers(i32 %threads)", f"""
        ; One worker fewer than threads; fewer still if the system refuses (jobs finish anyway).
        entry:
          %count = sub i32 %threads, 1
          br label %look
        look:
          %n = phi i32 [ 0, %entry ], [ %next, %created ]
          %more = icmp slt i32 %n, %count
          br i1 %more, label %create, label %out
        create:
          %handle = getelementptr [{MAX_THREADS} x i64], ptr @handles, i32 0, i32 %n
          ; The caller of a loop has home 0.
          %next = add i32 %n, 1
          %number = inttoptr i32 %next to ptr
          %error = call i32 @pthread_create(ptr %handle, ptr null, ptr @worker, ptr %number)
          %refused = icmp ne i32 %error, 0
          br i1 %refused, label %out, label %created
        created:
          br label %look
        out:
          store atomic i32 %n, ptr @workers monotonic, align 4
          store atomic i32 %threads, ptr @running monotonic, align 4
          ret void
        """)  # fmt: skip


def _stop() -> str:
    return function("internal void @stop_workers()", f"""
        ; Ends all workers and waits for them.
        entry:
          %count = load atomic i32, ptr @workers monotonic, align 4
          ; monotonic: @publish is the release.
          store atomic i32 1, ptr @quit monotonic, align 4
          call void @publish(i64 0, i64 1)
          call void @wake(i32 {_EVERYBODY})
          br label %look
        look:
          %n = phi i32 [ 0, %entry ], [ %next, %join ]
          %more = icmp slt i32 %n, %count
          br i1 %more, label %join, label %out
        join:
          %slot = getelementptr [{MAX_THREADS} x i64], ptr @handles, i32 0, i32 %n
          %handle = load i64, ptr %slot, align 8
          %error = call i32 @pthread_join(i64 %handle, ptr null)
          %next = add i32 %n, 1
          br label %look
        out:
          ; monotonic: threads that are created later see what their creator wrote.
          store atomic i32 0, ptr @quit monotonic, align 4
          store atomic i32 0, ptr @workers monotonic, align 4
          store atomic i32 0, ptr @pinned monotonic, align 4
          store atomic i32 0, ptr @refused monotonic, align 4
          store atomic i32 1, ptr @running monotonic, align 4
          ret void
        """)  # fmt: skip


def _adjust() -> str:
    return function("internal i32 @adjust()", """
        ; The number of threads, after replacing the workers if another one is wanted.
        entry:
          %wanted = load atomic i32, ptr @wanted monotonic, align 4
          %running = load atomic i32, ptr @running monotonic, align 4
          %same = icmp eq i32 %wanted, %running
          br i1 %same, label %out, label %replace
        replace:
          call void @stop_workers()
          call void @start_workers(i32 %wanted)
          br label %out
        out:
          ret i32 %wanted
        """)  # fmt: skip
