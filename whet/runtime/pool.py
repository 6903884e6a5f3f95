"""The thread pool as Python sees it.

The pool itself is native code (`whet.codegen.llvm.pool`): compiled kernels call it, Python only
sets it up.  There is one per process.  It starts no thread before the first parallel loop, and
its threads sleep while there is nothing to do.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from whet.core.errors import UsageError, check
from whet.core.processors import pinning_order
from whet.core.types import Array
from whet.runtime.places import places_table

MAX_THREADS = 1024

PARALLEL = "whet_parallel"
"""void whet_parallel(void (*body)(ptr context, i64 begin, i64 end), ptr context, i64 n)"""

_PROTOTYPES = {
    "whet_pool_set_threads": ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32),
    "whet_pool_set_places": ctypes.CFUNCTYPE(None, ctypes.c_void_p),
    "whet_pool_set_spin": ctypes.CFUNCTYPE(None, ctypes.c_int64),
    "whet_pool_probe": ctypes.CFUNCTYPE(None, ctypes.c_int64),
    "whet_pool_stats": ctypes.CFUNCTYPE(None, ctypes.c_void_p),
    "whet_pool_forget": ctypes.CFUNCTYPE(None),
}
"""What Python calls, with the types of its result and arguments."""

FUNCTIONS = (PARALLEL, *_PROTOTYPES)
"""The names that the pool's code defines."""

DEFAULT_SPIN_MICROSECONDS = 50.0
_PROBE_PAUSES = 1000
_EXIT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class PoolStats:
    """The state of the pool at the moment."""

    threads: int
    """Threads that a parallel loop uses, its caller included."""
    workers: int
    """Threads that exist beside the callers: none before the first parallel loop."""
    sleeping: int
    """Workers that have gone to sleep."""
    generation: int
    """Grows by one with every job and whenever the workers are sent home."""
    pinned: int
    """Workers that stay on a processor of their own."""
    refused: int
    """Workers that should, but the system did not let them: they run wherever it puts them."""


class ThreadPool:
    """Handle of the process's pool, made from the addresses of its functions.

    A parallel loop that starts while another one has the pool (from inside its body, or from
    another thread) runs in its own caller alone.
    """

    def __init__(self, addresses: Mapping[str, int], *, pin: bool = False) -> None:
        self.parallel_address = addresses[PARALLEL]
        self.chosen = 1
        """What `set_threads` was last called with in this process; cheaper to ask for than
        `threads`."""
        self.pin = pin
        """Whether workers that `set_threads` asks for stay on processors of their own."""
        self._tables: dict[frozenset[int], Array] = {}
        call = {name: prototype(addresses[name]) for name, prototype in _PROTOTYPES.items()}
        self._set_threads = call["whet_pool_set_threads"]
        self._set_places = call["whet_pool_set_places"]
        self._set_spin = call["whet_pool_set_spin"]
        self._probe = call["whet_pool_probe"]
        self._stats = call["whet_pool_stats"]
        self._forget = call["whet_pool_forget"]
        self._pause_seconds = self._measure_pause()
        self.set_spin(DEFAULT_SPIN_MICROSECONDS)
        os.register_at_fork(after_in_child=self._begin_child)
        # Workers must be gone before the interpreter unloads the code that they run.
        atexit.register(self._close)

    @property
    def symbols(self) -> dict[str, int]:
        """The symbols that compiled kernels are linked with."""
        return {PARALLEL: self.parallel_address}

    @property
    def threads(self) -> int:
        return self.stats().threads

    def set_threads(self, threads: int) -> None:
        """Use exactly this many threads from the next parallel loop on, callers included.

        Workers of the previous setting have ended when this returns, so it waits for a parallel
        loop that is under way.  New ones are bound, if at all, to processors that this thread may
        use now.
        """
        check(1 <= threads <= MAX_THREADS, "WH1002",
              f"{threads} threads are not between 1 and {MAX_THREADS}",
              kind=UsageError)  # fmt: skip
        self._set_places(self._places() if self.pin else None)
        while not self._set_threads(threads):
            time.sleep(20e-6)
        self.chosen = threads

    def set_spin(self, microseconds: float) -> None:
        """The time for which a thread looks out for the next job before it sleeps or yields."""
        check(0 <= microseconds <= 1e6, "WH1002",
              f"a spin of {microseconds} microseconds is not between 0 and one second",
              kind=UsageError)  # fmt: skip
        self._set_spin(int(microseconds * 1e-6 / self._pause_seconds))

    def stats(self) -> PoolStats:
        values = np.zeros(len(fields(PoolStats)), np.int64)
        self._stats(values.ctypes.data)
        return PoolStats(*values.tolist())

    def _places(self) -> int:
        """The address of the table of processors; it lives as long as the pool."""
        allowed = frozenset(os.sched_getaffinity(0))
        table = self._tables.get(allowed)
        if table is None:
            # One of several threads that come here at once has its table kept, and all use that.
            table = self._tables.setdefault(allowed, places_table(pinning_order(allowed)))
        return table.ctypes.data

    def _measure_pause(self) -> float:
        """Seconds of one turn of the waiting loop.

        A pause is 10 cycles on one processor and 140 on the next.  The shortest of several
        runs counts, because other processes can only make it longer.
        """
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            self._probe(_PROBE_PAUSES)
            best = min(best, time.perf_counter() - start)
        return best / _PROBE_PAUSES

    def _begin_child(self) -> None:
        """Forget the workers, which a forked child does not have: it starts its own when needed.

        Children are often bound to other processors than their parent, so the next model that
        runs says anew what it wants.
        """
        self._forget()
        self.chosen = 0

    def _close(self) -> None:
        """Send the workers home; what still runs afterwards runs without them.

        A daemon thread inside a long loop must not keep the process from ending.
        """
        deadline = time.monotonic() + _EXIT_SECONDS
        while not self._set_threads(1) and time.monotonic() < deadline:
            time.sleep(20e-6)
