"""What the pool remembers, and the shape of its text."""

from __future__ import annotations

from textwrap import dedent, indent

from whet.runtime.pool import MAX_THREADS

CHUNKS_PER_THREAD = 6
"""Enough to even out threads of different speed; a claim costs less than 0.1 microseconds."""

CHUNK_BITS = 16
CHUNK_MASK = (1 << CHUNK_BITS) - 1
assert MAX_THREADS * CHUNKS_PER_THREAD <= CHUNK_MASK

GENERATION = "getelementptr (i8, ptr @job, i64 4)"
"""The high half of the job word (both architectures are little-endian)."""

HOMES = "getelementptr (i8, ptr @job, i64 8)"
"""The words of the homes, which come along with the one that announces them."""

_LINE_BYTES = 128
"""Words that different threads write lie this far apart: processors fetch lines in pairs."""

_DEFAULT_PAUSES = 2000
"""Turns of the waiting loop until somebody calibrates them."""


def function(signature: str, text: str) -> str:
    """A function's definition from its signature and its indented instructions."""
    return f"define {signature} nounwind {{\n{indent(dedent(text).strip(), '  ')}\n}}\n"


def _hot(name: str, kind: str, size: int) -> str:
    """A variable that has its cache line for itself."""
    padded = f"{{ {kind}, [{-size % _LINE_BYTES} x i8] }}"
    return f"@{name} = internal global {padded} zeroinitializer, align {_LINE_BYTES}"


def variables() -> str:
    hot = [
        # the words of the module's docstring
        _hot("job", f"[{1 + MAX_THREADS} x i64]", 8 * (1 + MAX_THREADS)),
        _hot("done", "i64", 8),  # chunks of the current job that workers have finished
        _hot("busy", "i32", 4),  # 1 while a caller has the pool
        _hot("sleepers", "i32", 4),  # workers asleep, or about to be
    ]
    # The rest of the current job, valid for whoever has claimed one of its chunks: chunk c are the
    # iterations from c * n / chunks to (c + 1) * n / chunks.
    job = [
        "@body = internal global ptr null, align 128",
        "@context = internal global ptr null",
        "@n = internal global i64 0",
        "@chunks = internal global i64 0",
    ]
    settings = [
        "@wanted = internal global i32 1, align 128",  # threads asked for, callers included
        "@running = internal global i32 1",  # threads that the workers were started for
        "@workers = internal global i32 0",  # workers that exist
        "@quit = internal global i32 0",  # 1: workers shall end
        f"@spin_limit = internal global i64 {_DEFAULT_PAUSES}",
        "@still = internal global i32 0",  # never changes
        f"@handles = internal global [{MAX_THREADS} x i64] zeroinitializer",
    ]
    return "\n".join([*hot, *job, *settings, ""])
