"""Measuring candidates of a task: lowered here, built and run elsewhere.

    with Measurer() as measurer:
        for m in measurer.measure(task, [Candidate("contraction", {...}), ...], 2, target):
            m.outcome, m.seconds

Whatever a candidate does is an outcome; nothing that it does reaches the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from whet.core.closing import Closing
from whet.core.containers import usable_processors
from whet.core.cpu import CpuTarget
from whet.core.outcomes import Outcome
from whet.measure.builder import BUILD_SECONDS, Builder, Built
from whet.measure.cpu.prepare import Bench, Lowered, kernel_job, lower
from whet.measure.kernel_process import KernelProcess, Loadable, Ran
from whet.measure.resting import wait_until_resting
from whet.measure.results import Candidate, Comparison, Measured
from whet.measure.runner import COMPARE_SECONDS
from whet.measure.trials import BestTimes, comparison_of, first_line, trial_end, undecided
from whet.tasks.examples import Example, make_example
from whet.tasks.task import Task

_COMPILER = "whet.measure.cpu.build_worker"
MOST_CODE_BYTES = 1 << 20
FIRST_LIMIT_SECONDS = 10.0
"""How long a call may take while nothing is known about the task."""
LIMIT_BY_BEST = 5.0


class Measurer(Closing):
    """Builds in several processes at once, then runs one kernel after the other.

    `examples` gives the arrays that kernels of a task are tried on, and the expected results.
    """

    def __init__(
        self,
        examples: Callable[[Task], Example] = make_example,
        *,
        build_processes: int = 0,
        first_limit: float = FIRST_LIMIT_SECONDS,
    ) -> None:
        self.examples = examples
        count = build_processes or usable_processors()
        self.builder, self.runner = Builder(_COMPILER, count, BUILD_SECONDS), KernelProcess()
        self.times = BestTimes(first_limit, LIMIT_BY_BEST)
        self._bench: Bench | None = None
        self._rests = True
        """Whether this process's other threads have always come to rest so far."""

    def measure(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: CpuTarget
    ) -> list[Measured]:
        """The ends of all candidates' trials, in order."""
        return list(self.trials(task, candidates, threads, target))

    def trials(
        self, task: Task, candidates: Sequence[Candidate], threads: int, target: CpuTarget
    ) -> Iterator[Measured]:
        """The same one after the other, so that each can be kept before the next one runs."""
        try:
            bench = self._bench_for(task, threads, target)
        except Exception as error:  # without expected results nothing is measured
            text = f"no example of the task: {first_line(error)}"
            yield from (Measured(c, Outcome.RUN_ERROR, (), text) for c in candidates)
            return
        found: dict[int, Measured] = {}
        lowered: dict[int, Lowered] = {}

        def sources() -> Iterator[Mapping[str, str]]:
            for number, candidate in enumerate(candidates):
                result = lower(candidate, bench)
                if isinstance(result, Measured):
                    found[number] = result
                else:
                    lowered[number] = result
                    yield result.job

        # Building ends before running begins: on a busy machine times mean nothing.
        objects = self.builder.build(sources())
        built = dict(zip(lowered, objects))
        for number in range(len(candidates)):
            yield (
                found[number]
                if number in found
                else self._trial(lowered[number], built[number], bench)
            )

    def _trial(self, made: Lowered, built: Built, bench: Bench) -> Measured:
        """The end of a candidate that was lowered: too large, or as on any machine."""
        if built.data is not None and len(built.data) > MOST_CODE_BYTES:
            message = f"{len(built.data)} bytes of code"
            return Measured(made.candidate, Outcome.LIMIT, (), message, built.ms)
        place = _place(bench)

        def run(loadable: Loadable) -> Ran:
            self._rest()
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
        target: CpuTarget,
        seconds: float = COMPARE_SECONDS,
    ) -> Comparison:
        """Lets two candidates take turns, to find out whether the first is really faster."""
        try:
            bench = self._bench_for(task, threads, target)
        except Exception as error:  # as above
            return undecided(Outcome.RUN_ERROR, first_line(error))
        pair: list[Loadable] = []
        for one in (candidate, incumbent):
            made = lower(one, bench)
            if isinstance(made, Measured):
                return undecided(made.outcome, made.message)
            (object_,) = self.builder.build([made.job])
            if object_.data is None:
                return undecided(object_.outcome, object_.message)
            pair.append(_loadable(made, object_.data, bench))
        self._rest()
        limit = self.times.limit(_place(bench))
        return comparison_of(self.runner.compare(pair[0], pair[1], seconds, limit))

    def close(self) -> None:
        """Ends all processes; they start anew when they are needed."""
        self.builder.close()
        self.runner.close()

    def _bench_for(self, task: Task, threads: int, target: CpuTarget) -> Bench:
        """The arrays of a task; those of the last one are kept, its constants packed."""
        last = self._bench
        if last is None or last.task.key != task.key:
            self._bench = Bench(task, self.examples(task), target, threads, {}, {})
        elif (last.threads, last.target.key) != (threads, target.key):
            self._bench = Bench(last.task, last.example, target, threads, last.packed, last.forms)
        assert self._bench is not None
        return self._bench

    def _rest(self) -> None:
        """Leaves the processors to the kernel; other work of the process is waited for once."""
        self._rests = self._rests and wait_until_resting()


def _loadable(made: Lowered, code: bytes, bench: Bench) -> Loadable:
    job, arrays = kernel_job(made, bench)
    return Loadable(job, code, arrays)


def _place(bench: Bench) -> tuple[str, ...]:
    return bench.task.key, bench.target.key, str(bench.threads)
