"""The worker's side: limits that the system enforces, and answering until the parent is gone."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from whet.core.types import Array
from whet.runtime.frames import read_frame, write_frame

Answer = Callable[..., None]
"""Sends a message, with arrays."""
Handler = Callable[[dict[str, Any], Sequence[Array], Answer], None]

_WATCH_SECONDS = 0.5


def restrict(*, memory_bytes: int) -> None:
    """No core files, and no more memory than that."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def serve(handler: Handler) -> None:
    """Answers frames on the standard streams; the first answer says that all is ready."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anybody prints must not end up between the frames

    def answer(message: dict[str, Any], arrays: Sequence[Array] = ()) -> None:
        write_frame(answers, message, arrays)

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    answer({"ready": True})
    while True:
        try:
            message, arrays = read_frame(sys.stdin.buffer)
        except EOFError:
            return
        handler(message, arrays, answer)


def _end_with(parent: int) -> None:
    """Ends this process when its parent is gone, even while a kernel runs in an endless loop."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)
