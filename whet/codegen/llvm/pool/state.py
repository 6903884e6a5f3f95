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

LINE_BYTES = 128
"""Words that different threads write lie this far apart: processors fetch lines in pairs."""

HOME = f"{{ i64, [{LINE_BYTES - 8} x i8] }}"
"""A home: its word, which its own thread writes most of the time, and the rest of the line."""

_DEFAULT_PAUSES = 2000
"""Turns of the waiting loop until somebody calibrates them."""

_SIZES = {"i32": 4, "i64": 8, "ptr": 8}


def function(signature: str, text: str) -> str:
    """A function's definition from its signature and its indented instructions."""
    return f"define {signature} nounwind {{\n{indent(dedent(text).strip(), '  ')}\n}}\n"


def _line(**words: str) -> str:
    """Variables that share a line, and share it with nothing else, not even of another object.

    Each is given as its type and initial value:   done="i64 0"   ->   @done, alone in its line
    """
    name = f"{next(iter(words))}.line"
    aliases = []
    offset = 0
    for word, value in words.items():
        kind, _ = value.split()
        assert offset % _SIZES[kind] == 0, f"{word} is not aligned"
        aliases.append(
            f"@{word} = internal alias {kind}, getelementptr (i8, ptr @{name}, i64 {offset})"
        )
        offset += _SIZES[kind]
    kinds = [*(value.split()[0] for value in words.values()), f"[{-offset % LINE_BYTES} x i8]"]
    values = [*words.values(), f"{kinds[-1]} zeroinitializer"]
    line = f"{{ {', '.join(kinds)} }} {{ {', '.join(values)} }}, align {LINE_BYTES}"
    return "\n".join([f"@{name} = internal global {line}", *aliases])


def _table(name: str, kind: str) -> str:
    """An array with an element per thread, in lines of its own."""
    return f"@{name} = internal global [{MAX_THREADS} x {kind}] zeroinitializer, align {LINE_BYTES}"


def variables() -> str:
    return "\n".join([
        # the words of the module's docstring
        _line(job="i64 0"),
        _table("homes", HOME),
        _line(done="i64 0"),  # chunks of the current job that workers have finished
        _line(busy="i32 0"),  # 1 while a caller has the pool
        _line(sleepers="i32 0"),  # workers asleep, or about to be
        # The rest of the current job, valid for whoever has claimed one of its chunks: chunk c are
        # the iterations from c * n / chunks to (c + 1) * n / chunks.
        _line(body="ptr null", context="ptr null", n="i64 0", chunks="i64 0"),
        # What seldom changes.
        _line(
            spin_limit=f"i64 {_DEFAULT_PAUSES}",
            places="ptr null",  # the table of `whet.runtime.places`; null: workers are not bound
            wanted="i32 1",  # threads asked for, callers included
            running="i32 1",  # threads that the workers were started for
            workers="i32 0",  # workers that exist
            pinned="i32 0",  # workers that are bound to a processor
            refused="i32 0",  # workers that should be, but the system did not let them
            quit="i32 0",  # 1: workers shall end
            still="i32 0",  # never changes
        ),
        _table("handles", "i64"),
        "",
    ])  # fmt: skip
