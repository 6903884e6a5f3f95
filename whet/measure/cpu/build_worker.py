"""The process that compiles: text IR in, objects out."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from whet.codegen.llvm.compile import ObjectJob, compile_object
from whet.core.types import Array
from whet.measure.serving import Answer, restrict, serve

MEMORY_BYTES = 8 << 30
CPU_SECONDS = 60
NICENESS = 5
"""What is measured has precedence over what is built."""


def build(message: dict[str, Any], arrays: Sequence[Array], answer: Answer) -> None:
    """Compiles one module."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime + used.ru_stime)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (spent + CPU_SECONDS, hard))
    start = time.perf_counter()
    try:
        made = compile_object(ObjectJob(**message["job"]))
    except (RuntimeError, ValueError, MemoryError) as error:  # how LLVM's binding refuses
        lines = str(error).strip().splitlines() or [type(error).__name__]
        answer({"ok": False, "message": " ".join(lines[:2])})
        return
    ms = (time.perf_counter() - start) * 1e3
    answer({"ok": True, "ms": ms}, [np.frombuffer(made, np.uint8)])


def main() -> None:
    os.nice(NICENESS)
    restrict(memory_bytes=MEMORY_BYTES)
    serve(build)
