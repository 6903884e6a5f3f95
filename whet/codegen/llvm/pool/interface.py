"""What kernels and Python call."""

from __future__ import annotations

from whet.codegen.llvm.pool.state import CHUNKS_PER_THREAD, GENERATION, function
from whet.runtime.pool import PARALLEL


def interface() -> str:
    """The functions of `whet.runtime.pool.FUNCTIONS`."""
    parts = (
        _finish(), _parallel(), _set_threads(), _set_places(), _set_spin(), _probe(), _forget(),
        _stats(),
    )  # fmt: skip
    return "\n".join(parts)


def _finish() -> str:
    return function("internal void @finish(i64 %others)", """
        ; Waits until workers have finished that many chunks.
        entry:
          %limit = load atomic i64, ptr @spin_limit monotonic, align 8
          br label %look
        look:
          %turn = phi i64 [ 0, %entry ], [ %next, %again ]
          ; acquire: pairs with the worker's report.
          %done = load atomic i64, ptr @done acquire, align 8
          %all = icmp eq i64 %done, %others
          br i1 %all, label %out, label %patience
        patience:
          %over = icmp uge i64 %turn, %limit
          br i1 %over, label %yield, label %spin
        spin:
          call void @pause()
          br label %again
        yield:
          ; A worker in the middle of a chunk may need this very core.
          %ignored = call i32 @sched_yield()
          br label %again
        again:
          %next = add i64 %turn, 1
          br label %look
        out:
          ret void
        """)  # fmt: skip


def _parallel() -> str:
    return function(f"void @{PARALLEL}(ptr %body, ptr %context, i64 %n)", f"""
        ; Calls body(context, begin, end) for ranges that cover 0 <= i < n exactly once.
        entry:
          %some = icmp sgt i64 %n, 0
          br i1 %some, label %begin, label %out
        begin:
          %one = icmp eq i64 %n, 1
          %wanted = load atomic i32, ptr @wanted monotonic, align 4
          %single = icmp eq i32 %wanted, 1
          %alone = or i1 %one, %single
          br i1 %alone, label %serial, label %ask
        ask:
          %mine = call i1 @acquire()
          br i1 %mine, label %divide, label %serial
        serial:
          call void %body(ptr %context, i64 0, i64 %n)
          br label %out
        divide:
          %threads = call i32 @adjust()
          %wide = zext i32 %threads to i64
          %most = mul i64 %wide, {CHUNKS_PER_THREAD}
          %chunks = call i64 @llvm.umin.i64(i64 %n, i64 %most)
          store ptr %body, ptr @body, align 8
          store ptr %context, ptr @context, align 8
          store i64 %n, ptr @n, align 8
          store i64 %chunks, ptr @chunks, align 8
          ; monotonic: nobody adds to it before claiming a chunk, which @publish allows.
          store atomic i64 0, ptr @done monotonic, align 8
          call void @publish(i64 %chunks, i64 %wide)
          %rest = sub i64 %chunks, 1
          %helpers = trunc i64 %rest to i32
          call void @wake(i32 %helpers)
          %own = call i64 @work(i64 0)
          %others = sub i64 %chunks, %own
          call void @finish(i64 %others)
          call void @release()
          br label %out
        out:
          ret void
        """)  # fmt: skip


def _set_threads() -> str:
    return function("i32 @whet_pool_set_threads(i32 %threads)", """
        ; From now on this many threads are wanted.  Workers of another setting are ended here
        ; and new ones started by the next job.  0 if a job is under way: try again.
        entry:
          store atomic i32 %threads, ptr @wanted monotonic, align 4
          ; Busy callers may have replaced the workers already.  One thread is different: loops
          ; no longer look at the pool, so its workers must be seen to be gone.
          %running = load atomic i32, ptr @running monotonic, align 4
          %same = icmp eq i32 %threads, %running
          %several = icmp ne i32 %threads, 1
          %replaced = and i1 %same, %several
          br i1 %replaced, label %settled, label %ask
        ask:
          %mine = call i1 @acquire()
          br i1 %mine, label %stop, label %later
        stop:
          call void @stop_workers()
          call void @release()
          br label %settled
        settled:
          ret i32 1
        later:
          ret i32 0
        """)  # fmt: skip


def _set_places() -> str:
    return function("void @whet_pool_set_places(ptr %table)", """
        ; For workers that start from now on.  The table must stay: they read it when they run.
        ; release: pairs with @pin.
        store atomic ptr %table, ptr @places release, align 8
        ret void
        """)  # fmt: skip


def _set_spin() -> str:
    return function("void @whet_pool_set_spin(i64 %pauses)", """
        store atomic i64 %pauses, ptr @spin_limit monotonic, align 8
        ret void
        """)  # fmt: skip


def _probe() -> str:
    return function("void @whet_pool_probe(i64 %pauses)", """
        ; Spins in vain, to find out how long a turn takes.
        %changed = call i1 @spin(ptr @still, i32 0, i64 %pauses)
        ret void
        """)  # fmt: skip


def _forget() -> str:
    return function("void @whet_pool_forget()", """
        ; For the only thread of a forked child: the workers, and a caller that had the pool,
        ; exist in the parent alone.
        store atomic i32 0, ptr @workers monotonic, align 4
        store atomic i32 0, ptr @pinned monotonic, align 4
        store atomic i32 0, ptr @refused monotonic, align 4
        store atomic i32 1, ptr @running monotonic, align 4
        store atomic i32 0, ptr @quit monotonic, align 4
        store atomic i32 0, ptr @sleepers monotonic, align 4
        call void @publish(i64 0, i64 1)
        call void @release()
        ret void
        """)  # fmt: skip


def _stats() -> str:
    sources = {
        "threads": "@wanted",
        "workers": "@workers",
        "sleepers": "@sleepers",
        "generation": GENERATION,
        "pinned": "@pinned",
        "refused": "@refused",
    }
    stores = [
        f"""
        %{name} = load atomic i32, ptr {source} monotonic, align 4
        %{name}.wide = zext i32 %{name} to i64
        %{name}.slot = getelementptr i64, ptr %out, i64 {slot}
        store i64 %{name}.wide, ptr %{name}.slot, align 8
        """
        for slot, (name, source) in enumerate(sources.items())
    ]
    text = "".join([*stores, "\n        ret void"])
    return function("void @whet_pool_stats(ptr %out)", text)
