"""Measuring candidates of a task on a GPU: lowered here, built and run elsewhere.

Kernels are built in many processes and run in one, at the same time: what a GPU takes does not
depend on what processors do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from whet.core.closing import Closing
from whet.core.containers import usable_processors
from whet.core.gpu import GpuTarget
from whet.core.outcomes import Outcome
from whet.measure.builder import Builder, Built
from whet.measure.cuda.examples import make_trials
from whet.measure.cuda.prepare import Bench, Lowered, gpu_job, lower
from whet.measure.kernel_process import KernelProcess, Loadable, Ran
from whet.measure.results import Candidate, Comparison, Measured
from whet.measure.runner import COMPARE_SECONDS
from whet.measure.statistics import is_better_network
from whet.measure.trials import BestTimes, comparison_of, first_line, trial_end, undecided
from whet.tasks.examples import Example, make_example
from whet.tasks.task import Task

_COMPILER = "whet.measure.cuda.build_worker"
_WORKER = "whet.measure.cuda.run_worker"
BUILD_SECONDS = 30.0
FIRST_LIMIT_SECONDS = 5.0
"""How long a call may take while nothing is known about the task."""
LIMIT_BY_BEST = 20.0
"""Calls are short; what is launched first is much slower than what is launched again."""


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
        self.times = BestTimes(FIRST_LIMIT_SECONDS, LIMIT_BY_BEST)
        self._bench: Bench | None = None
        self._ahead: dict[tuple[str, ...], Lowered | Measured] = {}
        """What was lowered for builds ahead of trials."""

    def trials(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: GpuTarget
    ) -> Iterator[Measured]:
        """The ends of the candidates' trials in order, each as soon as those before it are known.

        Candidates run in the order in which they are built.
        """
        try:
            bench = self._bench_for(task, target)
        except Exception as error:  # without expected results nothing is measured
            text = f"no example of the task: {first_line(error)}"
            yield from (Measured(c, Outcome.RUN_ERROR, (), text) for c in candidates)
            return
        found: dict[int, Measured] = {}
        lowered: list[tuple[int, Lowered]] = []

        def sources() -> Iterator[Mapping[str, str]]:
            for number, candidate in enumerate(candidates):
                ahead = self._ahead.pop((*_place(bench), candidate.key), None)
                result = ahead or lower(candidate, bench)
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
        place = _place(bench)

        def run(loadable: Loadable) -> Ran:
            best, limit = self.times.seconds.get(place), self.times.limit(place)
            return self.runner.measure(loadable, best, limit)

        end = trial_end(made.candidate, built, lambda code: _loadable(made, code, bench), run)
        if end.ok:
            self.times.note(place, end.samples)
        return end

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
            return undecided(Outcome.RUN_ERROR, first_line(error))
        made: list[Lowered] = []
        for one in (candidate, incumbent):
            result = lower(one, bench)
            if isinstance(result, Measured):
                return undecided(result.outcome, result.message)
            made.append(result)
        pair: list[Loadable] = []
        for lowered, built in zip(made, self.builder.build(m.job for m in made), strict=True):
            if built.data is None:
                return undecided(built.outcome, built.message)
            pair.append(_loadable(lowered, built.data, bench))
        limit = self.times.limit(_place(bench))
        return comparison_of(self.runner.compare(pair[0], pair[1], seconds, limit))

    def compare_networks(
        self, name: str, new: Loadable, old: Loadable, seconds: float
    ) -> Comparison:
        """Lets two variants of the network of that name take turns."""
        place = ("network", name)
        ran = self.runner.compare_networks(new, old, seconds, self.times.limit(place))
        if ran.outcome is Outcome.OK:
            self.times.note(place, ran.samples[1])
        return comparison_of(ran, is_better_network)

    def build_ahead(self, wanted: Iterable[tuple[Task, Candidate]], target: GpuTarget) -> None:
        """Builds kernels of any tasks, many at once, for the cache, where trials find them."""
        self._ahead.clear()

        def sources() -> Iterator[Mapping[str, str]]:
            for task, candidate in wanted:
                bench = Bench(task, (), target)
                made = self._ahead[(*_place(bench), candidate.key)] = lower(candidate, bench)
                if isinstance(made, Lowered):
                    yield made.job

        self.builder.build(sources())

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


def _loadable(made: Lowered, cubin: bytes, bench: Bench) -> Loadable:
    job, arrays = gpu_job(made, bench)
    return Loadable(job, cubin, arrays)


def _place(bench: Bench) -> tuple[str, ...]:
    return bench.task.key, bench.target.key
