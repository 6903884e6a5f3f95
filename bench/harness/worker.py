"""The process of a peer: `worker RUNTIME THREADS`, then frames on the standard streams."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""From Linux's prctl.h."""


def main() -> None:
    """Settles on the first cores, then serves."""
    runtime, threads = sys.argv[1], int(sys.argv[2])
    _end_with_parent()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:threads])
    os.environ.update(environment(runtime, threads))

    from harness.runtimes import BENCH_RUNTIMES
    from whet.cli.peers import worker
    from whet.cli.peers.runtimes import RUNTIMES

    RUNTIMES.update(BENCH_RUNTIMES)
    worker.main()


def _end_with_parent() -> None:
    """A stopped process would not notice that nobody is left to ask it anything."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def environment(runtime: str, threads: int) -> dict[str, str]:
    """What libraries read when they are loaded."""
    count = str(threads)
    settings = {"OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count,
                "MKL_NUM_THREADS": count, "TVM_NUM_THREADS": count}  # fmt: skip
    if runtime.startswith("torch"):
        # Two OpenMP threads left on one core wait whole time slices for each other.
        settings |= {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}
    return settings
