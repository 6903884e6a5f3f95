"""Compiling candidates in several processes at once."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from whet.core.errors import fail
from whet.core.outcomes import Outcome
from whet.measure.process import START_SECONDS, Deadline, Ended, Silent, WorkerProcess

JOBS_PER_PROCESS = 500
"""LLVM gives little of its memory back; a new process costs as much as ten jobs."""
BUILD_SECONDS = 15.0


@dataclass(frozen=True)
class Built:
    """The outcome of a job: an object, or why there is none."""

    data: bytes | None
    outcome: Outcome = Outcome.OK
    message: str = ""
    ms: float = 0.0


class Builder:
    """Processes that compile.  They start when they are first needed and are used again.

    `module` has the `main` of such a process, which understands a generator's jobs.
    """

    def __init__(self, module: str, processes: int, seconds: float = BUILD_SECONDS) -> None:
        self.module, self.processes, self.seconds = module, processes, seconds
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, tuple[int, Deadline]] = {}
        self._starting: set[WorkerProcess] = set()
        """Those of the busy ones that have not said yet that they are ready."""

    def build(self, jobs: Iterable[Mapping[str, str]]) -> list[Built]:
        """The objects of all jobs, in order."""
        found = dict(self.built(jobs))
        return [found[n] for n in range(len(found))]

    def built(self, jobs: Iterable[Mapping[str, str]]) -> Iterator[tuple[int, Built]]:
        """The same with the numbers of the jobs, as they come to an end.

        A job is asked for when a process is free, so that making the next one, building the last
        ones and using what has been built go on at the same time.
        """
        waiting = enumerate(jobs)
        more = True
        try:
            while more or self._busy:
                while more and len(self._busy) < self.processes:
                    job = next(waiting, None)
                    more = job is not None
                    if job is not None:
                        self._begin(*job)
                if self._busy:
                    yield from self._collected()
        except BaseException:
            if self._busy:
                self.close()  # what is under way would answer the next call's questions
            raise

    def _begin(self, number: int, job: Mapping[str, str]) -> None:
        """Gives a job to a process, which may still be starting: many start side by side."""
        worker = self._free()
        worker.jobs += 1
        limit = START_SECONDS if worker in self._starting else self.seconds
        self._busy[worker] = (number, Deadline(limit))
        with contextlib.suppress(Ended):  # found out when its answer is looked for
            worker.send({"do": "build", "job": dict(job)})

    def _free(self) -> WorkerProcess:
        """A process that has nothing to do.  One that died while idle is no job's fault."""
        while self._idle:
            worker = self._idle.pop()
            if worker.process.poll() is None:
                return worker
            worker.close()
        worker = WorkerProcess(self.module)
        self._starting.add(worker)
        return worker

    def _collected(self) -> list[tuple[int, Built]]:
        """The jobs that have ended or have taken too long, after waiting for any process."""
        first = min(deadline.left for _, deadline in self._busy.values())
        ready, _, _ = select.select(list(self._busy), [], [], max(0.0, first))
        late = [w for w, (_, deadline) in self._busy.items() if deadline.left <= 0]
        found = []
        for worker in dict.fromkeys([*ready, *late]):
            number, _ = self._busy.pop(worker)
            if worker in self._starting:
                self._started(worker)
                self._busy[worker] = (number, Deadline(self.seconds))
            else:
                found.append((number, self._result(worker)))
        return found

    def _started(self, worker: WorkerProcess) -> None:
        """Takes note that a process is ready; `WH1004` if it is not."""
        self._starting.remove(worker)
        said_ready(worker, 0.0)

    def _result(self, worker: WorkerProcess) -> Built:
        try:
            answer, arrays = worker.receive(0.0)
        except Silent:
            worker.close()
            return Built(None, Outcome.BUILD_TIMEOUT, f"not built within {self.seconds} s")
        except Ended as ended:
            worker.close()
            return Built(None, Outcome.BUILD_ERROR, f"the compiler {ended}")
        if worker.jobs < JOBS_PER_PROCESS:
            self._idle.append(worker)
        else:
            worker.close()
        if not answer["ok"]:
            return Built(None, Outcome.BUILD_ERROR, answer["message"])
        return Built(arrays[0].tobytes(), ms=answer["ms"])

    def close(self) -> None:
        for worker in (*self._idle, *self._busy):
            worker.close()
        self._idle.clear()
        self._busy.clear()
        self._starting.clear()


def start_worker(module: str) -> WorkerProcess:
    """A process that has said that it is ready; `WH1004` if it never does."""
    worker = WorkerProcess(module)
    said_ready(worker, START_SECONDS)
    return worker


def said_ready(worker: WorkerProcess, seconds: float) -> None:
    """Waits for the first words of a process; `WH1004` if there are none."""
    try:
        worker.receive(seconds)
    except (Ended, Silent) as problem:
        worker.close()
        text = str(problem) or "does not answer"
        fail("WH1004", f"a worker process cannot be started: it {text}")
