"""Measuring candidates of a task on a GPU: lowered here, built and run elsewhere.

Kernels are built in many processes and run in one, at the same time: what a GPU takes does not
depend on what processors do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from whet.core.closing import Closing
from whet.core.containers import usable_processors
from whet.core.errors import WhetError
from whet.core.gpu import GpuTarget
from whet.core.outcomes import Outcome
from whet.measure.builder import Builder, Built
from whet.measure.cuda.examples import make_trials
from whet.measure.cuda.prepare import Bench, Lowered, gpu_job, lower
from whet.measure.kernel_process import KernelProcess, Loadable
from whet.measure.results import Candidate, Comparison, Measured
from whet.measure.runner import COMPARE_SECONDS
from whet.measure.statistics import is_better, median_interval, turn_ratios
from whet.tasks.examples import Example, make_example
from whet.tasks.task import Task

_COMPILER = "whet.measure.cuda.build_worker"
_WORKER = "whet.measure.cuda.run_worker"
BUILD_SECONDS = 30.0
FIRST_LIMIT_SECONDS = 5.0
"""How long a call may take while nothing is known about the task."""
LEAST_LIMIT_SECONDS = 0.2
LIMIT_BY_BEST = 20.0
"""Calls are short; what is launched first is much slower than what is launched again."""

Place = tuple[str, str]


class CudaRunner(Closing):
    """Builds in several processes while one process runs kernels one after the other.

    `examples` gives the whole numbers that kernels of a task are tried on, and what they must give.
    """

    def __init__(
        self,
        examples: Callable[[Task], Example] = make_example,
        *,
        build_processes: int = 0,
        worker: str = _WORKER,
        compiler: str = _COMPILER,
    ) -> None:
        self.examples = examples
        self.builder = Builder(compiler, build_processes or usable_processors(), BUILD_SECONDS)
        self.runner = KernelProcess(worker)
        self.best: dict[Place, float] = {}
        """The shortest time of every task and target so far."""
        self._bench: Bench | None = None

    def trials(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: GpuTarget
    ) -> Iterator[Measured]:
        """The ends of the candidates' trials in order, each as soon as those before it are known.

        Candidates run in the order in which they are built.
        """
        try:
            bench = self._bench_for(task, target)
        except Exception as error:  # without expected results nothing is measured
            text = f"no example of the task: {_first_line(error)}"
            yield from (Measured(c, Outcome.RUN_ERROR, (), text) for c in candidates)
            return
        found: dict[int, Measured] = {}
        lowered: list[tuple[int, Lowered]] = []

        def sources() -> Iterator[Mapping[str, str]]:
            for number, candidate in enumerate(candidates):
                result = lower(candidate, bench)
                if isinstance(result, Measured):
                    found[number] = result
                else:
                    lowered.append((number, result))
                    yield result.job

        told = 0
        for job, built in self.builder.built(sources()):
            number, made = lowered[job]
            found[number] = self._trial(made, built, bench)
            while told in found:
                yield found[told]
                told += 1
        yield from (found[n] for n in range(told, len(candidates)))

    def _trial(self, made: Lowered, built: Built, bench: Bench) -> Measured:
        """The end of a candidate that was lowered: not built, or run."""
        if built.data is None:
            return Measured(made.candidate, built.outcome, (), built.message, built.ms)
        size = len(built.data)
        try:
            loadable = _loadable(made, built.data, bench)
        except (WhetError, MemoryError, ValueError) as error:  # its constants cannot be packed
            text = _first_line(error)
            return Measured(made.candidate, Outcome.RUN_ERROR, (), text, built.ms, size)
        place = _place(bench)
        ran = self.runner.measure(loadable, self.best.get(place), self._limit(bench))
        ok = ran.outcome is Outcome.OK
        samples = ran.samples[0] if ok else ()
        if ok:
            self.best[place] = min(self.best.get(place, math.inf), statistics.median(samples))
        return Measured(
            made.candidate, ran.outcome, samples, ran.message, built.ms, size, checked=ok
        )

    def compare(
        self,
        task: Task,
        candidate: Candidate,
        incumbent: Candidate,
        threads: int,
        target: GpuTarget,
        seconds: float = COMPARE_SECONDS,
    ) -> Comparison:
        """Lets two candidates take turns, to find out whether the first is really faster."""
        try:
            bench = self._bench_for(task, target)
        except Exception as error:  # as above
            return _undecided(Outcome.RUN_ERROR, _first_line(error))
        made: list[Lowered] = []
        for one in (candidate, incumbent):
            result = lower(one, bench)
            if isinstance(result, Measured):
                return _undecided(result.outcome, result.message)
            made.append(result)
        pair: list[Loadable] = []
        for lowered, built in zip(made, self.builder.build(m.job for m in made), strict=True):
            if built.data is None:
                return _undecided(built.outcome, built.message)
            pair.append(_loadable(lowered, built.data, bench))
        ran = self.runner.compare(pair[0], pair[1], seconds, self._limit(bench))
        if ran.outcome is not Outcome.OK:
            return _undecided(ran.outcome, ran.message)
        a, b = ran.samples
        ratios = turn_ratios(a, b)
        low, high = median_interval(ratios)
        return Comparison(is_better(ratios), statistics.median(ratios), low, high, a, b)

    def close(self) -> None:
        """Ends all processes; they start anew when they are needed."""
        self.builder.close()
        self.runner.close()

    def _bench_for(self, task: Task, target: GpuTarget) -> Bench:
        """The values for a task; those of the last one are kept, its constants packed."""
        last = self._bench
        if last is None or (last.task.key, last.target.key) != (task.key, target.key):
            self._bench = last = Bench(task, make_trials(task, self.examples(task)), target)
        return last

    def _limit(self, bench: Bench) -> float:
        best = self.best.get(_place(bench))
        return (
            FIRST_LIMIT_SECONDS if best is None else max(LEAST_LIMIT_SECONDS, LIMIT_BY_BEST * best)
        )


def _loadable(made: Lowered, cubin: bytes, bench: Bench) -> Loadable:
    job, arrays = gpu_job(made, bench)
    return Loadable(job, cubin, arrays)


def _place(bench: Bench) -> Place:
    return bench.task.key, bench.target.key


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _undecided(outcome: Outcome, message: str) -> Comparison:
    return Comparison(False, math.nan, math.nan, math.nan, outcome=outcome, message=message)
