"""Running kernels one at a time, in a process that is replaced when a kernel ruins it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from whet.core.outcomes import Outcome
from whet.core.types import Array
from whet.measure.builder import start_worker
from whet.measure.process import Deadline, Ended, Silent, WorkerProcess

JOBS_PER_PROCESS = 500
MOST_HELD_BYTES = 1 << 30
SLACK_SECONDS = 1.0
"""What the worker may take beside the kernel itself, between two signs of life."""
BYTES_PER_SECOND = 100e6
"""How fast it prepares and compares memory, at the very least."""
_MODULE = "whet.measure.cpu.run_worker"


class Job(Protocol):
    """A kernel's parameters as plain data; the process knows what else is in it."""

    @property
    def nbytes(self) -> int:
        """The memory of all parameters."""

    @property
    def cache_bytes(self) -> int:
        """The memory for copies of constants."""

    def to_message(self) -> dict[str, Any]: ...


@dataclass(frozen=True, eq=False)
class Loadable:
    """A compiled kernel with the arrays that its parameters name."""

    job: Job
    data: bytes
    arrays: Mapping[str, Array]


@dataclass(frozen=True)
class Ran:
    """The end of a run; samples of one kernel, or of two that took turns."""

    outcome: Outcome
    message: str = ""
    samples: tuple[tuple[float, ...], ...] = ()


class KernelProcess:
    """The one process that runs kernels; it starts when it is first needed.

    `module` has the `main` of such a process, which understands the jobs that it is given.
    """

    def __init__(self, module: str = _MODULE) -> None:
        self.module = module
        self._worker: WorkerProcess | None = None
        self._held: dict[str, int] = {}
        self.starts = 0
        """How many processes there have been."""

    def measure(self, kernel: Loadable, best: float | None, limit: float) -> Ran:
        """Checks and times a kernel, of which one call may take `limit` seconds."""
        return self._ask([kernel], {"do": "measure", "best": best, "limit": limit}, limit)

    def compare(self, a: Loadable, b: Loadable, seconds: float, limit: float) -> Ran:
        """Checks two kernels and lets them take turns for about that long."""
        message = {"do": "compare", "seconds": seconds, "limit": limit}
        return self._ask([a, b], message, 4 * limit)

    def compare_networks(self, a: Loadable, b: Loadable, seconds: float, limit: float) -> Ran:
        """Lets two networks take turns for at most about that long."""
        message = {"do": "compare_networks", "seconds": seconds, "limit": limit}
        return self._ask([a, b], message, 4 * limit)

    def _ask(self, kernels: Sequence[Loadable], message: dict[str, Any], limit: float) -> Ran:
        nbytes = sum(k.job.nbytes + k.job.cache_bytes for k in kernels)
        patience = limit + SLACK_SECONDS + nbytes / BYTES_PER_SECOND
        try:
            return self._run(kernels, message, patience)
        except Ended as ended:
            self.close()
            return Ran(Outcome.CRASH, f"the process {ended}")
        except Silent:
            self.close()
            return Ran(Outcome.RUN_TIMEOUT, f"a call took more than {limit:.3g} s")
        except BaseException:
            self.close()  # its answer would be taken for that to the next question
            raise

    def _run(self, kernels: Sequence[Loadable], message: dict[str, Any], patience: float) -> Ran:
        worker = self._ready([array for k in kernels for array in k.arrays.items()])
        worker.jobs += 1
        objects = [np.frombuffer(k.data, np.uint8) for k in kernels]
        worker.send({**message, "jobs": [k.job.to_message() for k in kernels]}, objects)
        deadline = Deadline(patience)
        while True:
            answer, _ = worker.receive(deadline.left)
            if "beat" not in answer:
                break
            deadline.move(patience)
        if worker.jobs >= JOBS_PER_PROCESS:
            self.close()
        samples = tuple(tuple(s) for s in answer.get("samples", ()))
        return Ran(Outcome(answer["outcome"]), answer["message"], samples)

    def _ready(self, arrays: Sequence[tuple[str, Array]]) -> WorkerProcess:
        """The process, holding the arrays.  One that died while idle is no kernel's fault."""
        worker = self._worker
        if worker is not None and worker.process.poll() is not None:
            self.close()
            worker = None
        if worker is None:
            worker = self._worker = start_worker(self.module)
            self.starts += 1
        missing = {key: array for key, array in arrays if key not in self._held}
        if sum(self._held.values()) + sum(a.nbytes for a in missing.values()) > MOST_HELD_BYTES:
            worker.send({"do": "forget"})
            self._held.clear()
            missing = dict(arrays)
        for key, array in missing.items():
            worker.send({"do": "hold", "key": key}, [array])
            self._held[key] = array.nbytes
        return worker

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None
        self._held.clear()
