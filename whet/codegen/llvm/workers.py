"""Compiling many modules at once, in processes: LLVM's Python binding holds one lock.

The workers are plain child processes that load nothing but the compiler, so they never run the
caller's main module again as `multiprocessing` would.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from whet.codegen.llvm.compile import ObjectJob, compile_object

PARALLEL_FROM = 24
"""Modules from which on starting a worker pays: it takes about as long as ten of them."""

# Not `-m`, which would let a file in the working directory stand in for a library (hence -P).
_START = (
    "import sys; sys.path.append(sys.argv[1]); from whet.codegen.llvm.workers import serve; serve()"
)
_HOME = str(Path(__file__).resolve().parents[3])


def compile_objects(jobs: Sequence[ObjectJob], processes: int) -> list[bytes]:
    """The objects of all jobs, in order."""
    count = min(processes, len(jobs)) if len(jobs) >= PARALLEL_FROM else 1
    # Longest first, dealt out in turn, so that shares take about the same time.
    order = sorted(range(len(jobs)), key=lambda n: -len(jobs[n].ir))
    shares = [order[n::count] for n in range(count)]
    found: dict[int, bytes] = {}
    with ThreadPoolExecutor(max(1, count - 1)) as threads:
        # The last share is the lightest and is compiled here.
        asked = [threads.submit(_ask_worker, [jobs[n] for n in s]) for s in shares[:-1]]
        found.update({n: compile_object(jobs[n]) for n in shares[-1]})
        for share, future in zip(shares, asked):
            found.update(zip(share, future.result()))
    return [found[n] for n in range(len(jobs))]


def _ask_worker(jobs: Sequence[ObjectJob]) -> list[bytes]:
    """The objects from a process of its own; if it fails, they are made here."""
    request = json.dumps([asdict(job) for job in jobs]).encode()
    done = subprocess.run(
        [sys.executable, "-P", "-c", _START, _HOME], input=request, capture_output=True
    )
    objects = _split(done.stdout) if done.returncode == 0 else []
    if len(objects) != len(jobs):
        return [compile_object(job) for job in jobs]
    return objects


def serve() -> None:
    """The worker: jobs on standard input, objects with their lengths on standard output."""
    for fields in json.loads(sys.stdin.buffer.read()):
        data = compile_object(ObjectJob(**fields))
        sys.stdout.buffer.write(len(data).to_bytes(8, "little") + data)


def _split(stream: bytes) -> list[bytes]:
    objects = []
    while stream:
        end = 8 + int.from_bytes(stream[:8], "little")
        objects.append(stream[8:end])
        stream = stream[end:]
    return objects
