"""Waiting until this process leaves the processors to the one that measures.

NumPy's matrix products and the learned cost model have threads of their own, which look out for
more work for 0.1 s after each call.  On two cores, kernels of two threads that are timed meanwhile
seem to take twice as long: half of the first measurements of ResNet-50's layers did.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

LOOK_SECONDS = 0.002
LONGEST_SECONDS = 0.3
"""Then the process has other work, and measurements are as good as they can be beside it."""
_THREADS = Path("/proc/self/task")


def wait_until_resting() -> bool:
    """Whether no other thread of this process computes any more, or after LONGEST_SECONDS still.

    Where the system does not list threads and what they do, none does.
    """
    end = time.perf_counter() + LONGEST_SECONDS
    while _others_compute():
        if time.perf_counter() >= end:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _others_compute() -> bool:
    own = str(threading.get_native_id())
    return any(_state(path) == "R" for path in _THREADS.glob("*/stat") if path.parent.name != own)


def _state(stat: Path) -> str:
    """R for a thread that runs or wants to; nothing for one that has just ended."""
    try:
        return stat.read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""
