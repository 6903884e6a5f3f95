"""The current job: who may publish one, and how its chunks are claimed."""

from __future__ import annotations

from whet.codegen.llvm.pool.state import CHUNK_BITS, CHUNK_MASK, HOME, function


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
    return function("internal void @publish(i64 %chunks, i64 %homes)", f"""
        ; The next generation, with this many chunks in so many homes, none of them claimed.
        entry:
          ; monotonic: only the owner of the pool starts generations, and nothing is left to
          ; claim.
          %old = load atomic i64, ptr @job monotonic, align 8
          %last = or i64 %old, {(1 << 32) - 1}
          %generation = add i64 %last, 1
          %share = udiv i64 %chunks, %homes
          %extra = urem i64 %chunks, %homes
          br label %look
        look:
          %n = phi i64 [ 0, %entry ], [ %n.next, %home ]
          %begin = phi i64 [ 0, %entry ], [ %end, %home ]
          %more = icmp ult i64 %n, %homes
          br i1 %more, label %home, label %announce
        home:
          ; The first ones are larger: the caller, which has the first, is never late.
          %longer = icmp ult i64 %n, %extra
          %one = zext i1 %longer to i64
          %size = add i64 %share, %one
          %end = add i64 %begin, %size
          %field = shl i64 %end, {CHUNK_BITS}
          %range = or i64 %field, %begin
          %word = or i64 %generation, %range
          %slot = getelementptr {HOME}, ptr @homes, i64 %n
          ; release: whoever claims a chunk sees the rest of the job.
          store atomic i64 %word, ptr %slot release, align 8
          %n.next = add i64 %n, 1
          br label %look
        announce:
          %job = or i64 %generation, %homes
          ; seq_cst: a release, so that whoever sees the job sees its homes, and in one order
          ; with the count of sleepers (see @wait).
          store atomic i64 %job, ptr @job seq_cst, align 8
          ret void
        """)  # fmt: skip


def _work() -> str:
    return function("internal i64 @work(i64 %me)", f"""
        ; Runs chunks of the current job, first those of home `me`, until all are claimed;
        ; returns how many it ran.
        entry:
          ; acquire: pairs with @publish, which has prepared all homes before.
          %job = load atomic i64, ptr @job acquire, align 8
          %homes = and i64 %job, {(1 << 32) - 1}
          br label %visit
        visit:
          %visited = phi i64 [ 0, %entry ], [ %visited.next, %leave ]
          %ran.before = phi i64 [ 0, %entry ], [ %ran, %leave ]
          %more = icmp ult i64 %visited, %homes
          br i1 %more, label %home, label %out
        home:
          %sum = add i64 %me, %visited
          %wrapped = sub i64 %sum, %homes
          %over = icmp uge i64 %sum, %homes
          %number = select i1 %over, i64 %wrapped, i64 %sum
          %own = icmp eq i64 %number, %me
          %slot = getelementptr {HOME}, ptr @homes, i64 %number
          br label %look
        look:
          %ran = phi i64 [ %ran.before, %home ], [ %ran.next, %run ]
          ; monotonic: only a guess, which the exchange verifies.
          %guess = load atomic i64, ptr %slot monotonic, align 8
          br label %try
        try:
          %word = phi i64 [ %guess, %look ], [ %found, %claim ]
          %next = and i64 %word, {CHUNK_MASK}
          %shifted = lshr i64 %word, {CHUNK_BITS}
          %end = and i64 %shifted, {CHUNK_MASK}
          %left = icmp ult i64 %next, %end
          ; Homes of a job that is not announced yet are left for the next look.
          %difference = xor i64 %word, %job
          %current = icmp ult i64 %difference, {1 << 32}
          %free = and i1 %left, %current
          br i1 %free, label %claim, label %leave
        claim:
          %without.first = add i64 %word, 1
          %without.last = sub i64 %word, {1 << CHUNK_BITS}
          %taken = select i1 %own, i64 %without.first, i64 %without.last
          ; acquire: pairs with @publish.  Claims between the two are read-modify-writes and
          ; carry its release on, so they need not be releases themselves.
          %pair = cmpxchg ptr %slot, i64 %word, i64 %taken acquire monotonic, align 8
          %found = extractvalue {{ i64, i1 }} %pair, 0
          %won = extractvalue {{ i64, i1 }} %pair, 1
          br i1 %won, label %run, label %try
        run:
          %last = sub i64 %end, 1
          %chunk = select i1 %own, i64 %next, i64 %last
          %body = load ptr, ptr @body, align 8
          %context = load ptr, ptr @context, align 8
          %n = load i64, ptr @n, align 8
          %chunks = load i64, ptr @chunks, align 8
          ; Longer and shorter chunks alternate, so that homes are equally long.
          %before = mul i64 %chunk, %n
          %through = add i64 %before, %n
          %first = udiv i64 %before, %chunks
          %behind = udiv i64 %through, %chunks
          call void %body(ptr %context, i64 %first, i64 %behind)
          %ran.next = add i64 %ran, 1
          br label %look
        leave:
          %visited.next = add i64 %visited, 1
          br label %visit
        out:
          ret i64 %ran.before
        """)  # fmt: skip
