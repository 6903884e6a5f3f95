"""The current job: who may publish one, and how its chunks are claimed."""

from __future__ import annotations

from whet.codegen.llvm.pool.state import CHUNK_BITS, CHUNK_MASK, function


def jobs() -> str:
    """@acquire, @release, @publish and @work."""
    return "\n".join([_acquire(), _release(), _publish(), _work()])


def _acquire() -> str:
    return function("internal i1 @acquire()", """
        ; True if the pool was free and now belongs to this caller.
        entry:
          ; A look first: loops inside a job would otherwise fight for the line.
          %seen = load atomic i32, ptr @busy monotonic, align 4
          %taken = icmp ne i32 %seen, 0
          br i1 %taken, label %no, label %try
        try:
          ; acquire: the previous owner's writes to the job and the settings come first.
          %before = atomicrmw xchg ptr @busy, i32 1 acquire
          %free = icmp eq i32 %before, 0
          ret i1 %free
        no:
          ret i1 false
        """)  # fmt: skip


def _release() -> str:
    return function("internal void @release()", """
        ; release: pairs with @acquire.
        store atomic i32 0, ptr @busy release, align 4
        ret void
        """)  # fmt: skip


def _publish() -> str:
    return function("internal void @publish(i64 %chunks)", f"""
        ; The next generation, with this many chunks, none of them claimed.
        ; monotonic: only the owner of the pool starts generations, and nothing is left to claim.
        %old = load atomic i64, ptr @job monotonic, align 8
        %last = or i64 %old, {(1 << 32) - 1}
        %generation = add i64 %last, 1
        %field = shl i64 %chunks, {CHUNK_BITS}
        %word = or i64 %generation, %field
        ; seq_cst: a release, so that whoever claims a chunk sees the rest of the job, and in
        ; one order with the count of sleepers (see @wait).
        store atomic i64 %word, ptr @job seq_cst, align 8
        ret void
        """)  # fmt: skip


def _work() -> str:
    return function("internal i64 @work()", f"""
        ; Runs chunks of the current job until all are claimed; returns how many it ran.
        entry:
          br label %look
        look:
          %ran = phi i64 [ 0, %entry ], [ %ran.next, %run ]
          ; monotonic: only a guess, which the exchange verifies.
          %guess = load atomic i64, ptr @job monotonic, align 8
          br label %try
        try:
          %word = phi i64 [ %guess, %look ], [ %found, %claim ]
          %chunk = and i64 %word, {CHUNK_MASK}
          %shifted = lshr i64 %word, {CHUNK_BITS}
          %chunks = and i64 %shifted, {CHUNK_MASK}
          %left = icmp ult i64 %chunk, %chunks
          br i1 %left, label %claim, label %out
        claim:
          %taken = add i64 %word, 1
          ; acquire: pairs with @publish.  Claims between the two are read-modify-writes and
          ; carry its release on, so they need not be releases themselves.
          %pair = cmpxchg ptr @job, i64 %word, i64 %taken acquire monotonic, align 8
          %found = extractvalue {{ i64, i1 }} %pair, 0
          %won = extractvalue {{ i64, i1 }} %pair, 1
          br i1 %won, label %run, label %try
        run:
          %body = load ptr, ptr @body, align 8
          %context = load ptr, ptr @context, align 8
          %share = load i64, ptr @share, align 8
          %extra = load i64, ptr @extra, align 8
          %base = mul i64 %chunk, %share
          %longer.before = call i64 @llvm.umin.i64(i64 %chunk, i64 %extra)
          %begin = add i64 %base, %longer.before
          %longer = icmp ult i64 %chunk, %extra
          %one = zext i1 %longer to i64
          %size = add i64 %share, %one
          %end = add i64 %begin, %size
          call void %body(ptr %context, i64 %begin, i64 %end)
          %ran.next = add i64 %ran, 1
          br label %look
        out:
          ret i64 %ran
        """)  # fmt: skip
