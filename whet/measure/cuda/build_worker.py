"""The process that compiles: CUDA C++ in, cubins out, kept in the cache for whoever needs them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from whet.codegen.cuda.generator import cached_cubins
from whet.core.caching import FileCache
from whet.core.config import process_config
from whet.core.errors import WhetError
from whet.core.types import Array
from whet.measure.serving import Answer, restrict, serve

MEMORY_BYTES = 16 << 30
NICENESS = 5
"""What launches kernels has precedence over what builds them."""


def build(message: dict[str, Any], arrays: Sequence[Array], answer: Answer) -> None:
    """Compiles one text."""
    job = message["job"]
    start = time.perf_counter()
    try:
        (made,) = cached_cubins(
            [job["text"]], job["architecture"], FileCache(process_config().cache)
        )
    except (WhetError, RuntimeError, MemoryError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        answer({"ok": False, "message": " ".join(lines[:2])})
        return
    ms = (time.perf_counter() - start) * 1e3
    answer({"ok": True, "ms": ms}, [np.frombuffer(made, np.uint8)])


def main() -> None:
    os.nice(NICENESS)
    restrict(memory_bytes=MEMORY_BYTES)
    serve(build)
