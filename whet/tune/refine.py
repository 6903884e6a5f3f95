"""The search inside a network: kernels are exchanged where they run, and stay if all is faster.

    conv A | conv B | conv A        ->        conv A' | conv B | conv A'

A kernel by itself follows itself.  In a network it follows another, which it may overlap with, and
finds what that left in the caches.  So the best few of every task take each other's place in the
whole network, the tasks that take most time first, until no exchange helps or time is up.  Every
comparison is stored: a search that was stopped goes on where it was.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.core.digest import digest_text
from whet.core.outcomes import Outcome
from whet.core.target import Target
from whet.db.record import NetworkTrial
from whet.db.store import Database
from whet.measure.networks import TimedNetwork
from whet.measure.records import workload_of
from whet.measure.results import Candidate, Comparison
from whet.measure.runner import Runner
from whet.ops.base import Numeric
from whet.tasks.steps import Plan, inner_steps
from whet.tasks.task import Task
from whet.tune.finalists import finalists, variants
from whet.tune.report import Refining
from whet.tune.schedule import Schedules

TRIAL_SECONDS = 0.15
"""The most that an exchange is timed for; most are decided in a tenth of it."""
CONFIRM_SECONDS, CONFIRM_SHARE = 0.5, 0.2
"""The same for the comparison with all the kernels of before, and the most of all time for it."""
TASKS_AHEAD = 8
"""Tasks whose kernels are built together: few enough that not much is built in vain."""


@dataclass(frozen=True, eq=False)
class RefineTools:
    """The tools of searches inside networks."""

    target: Target
    threads: int
    database: Database
    runner: Runner[Any]
    numerics: Numeric = "real"
    clock: Callable[[], float] = time.monotonic


class Refiner:
    """The search inside the network of one plan."""

    def __init__(self, plan: Plan, network: TimedNetwork, tools: RefineTools, name: str) -> None:
        self.plan, self.network, self.tools = plan, network, tools
        usual = Schedules(tools.target, tools.threads, tools.numerics, tools.database)
        here, tasks = usual.within(plan.key), plan.tasks
        alone = {key: usual.chosen(task) for key, task in tasks.items()}
        self.alone = {key: chosen.candidate for key, chosen in alone.items()}
        """The best candidates by themselves."""
        self.chosen = {key: here.chosen(task).candidate for key, task in tasks.items()}
        counts = Counter(step.key for s in plan.steps for step, _ in inner_steps(s))
        self.seconds = {key: counts[key] * chosen.seconds for key, chosen in alone.items()}
        """What each task takes in the network, as far as is known from kernels alone."""
        self.finalists = {
            key: finalists(task, tools.database, tools.target, tools.threads, tools.numerics)
            for key, task in tasks.items()
        }
        self.order = [
            tasks[key]
            for key in sorted(tasks, key=lambda key: -self.seconds[key])
            if self.finalists[key]
        ]
        self.state = Refining(name, changed=self._changed())
        self.watch: Callable[[Refining], None] = lambda state: None
        self.tried: set[tuple[str, ...]] = set()
        """Candidates by the kernels that they were tried beside; those that failed, without."""
        self.sound: set[tuple[str, str]] = set()
        """Candidates that were checked."""
        for key, found in self.finalists.items():
            self.sound.update((key, c.key) for c in found)
        self._resume()

    def _resume(self) -> None:
        tools = self.tools
        for t in tools.database.network_trials(self.plan.key, tools.target, tools.threads):
            self._note(t)

    def _note(self, t: NetworkTrial) -> None:
        what = (t.workload.key, Candidate(t.sketch, t.holes).key)
        if t.outcome is Outcome.OK:
            self.sound.add(what)
            self.tried.add((*what, t.beside))
        else:
            self.tried.add(what)

    def _changed(self) -> int:
        return sum(self.chosen[key] != alone for key, alone in self.alone.items())

    @property
    def _beside(self) -> str:
        """A digest of the present kernels."""
        chosen = sorted(self.chosen.items())
        return digest_text(*(f"{key} {c.key}" for key, c in chosen))

    # ------------------------------------------------------------------------------- the search
    def run(self, seconds: float, watch: Callable[[Refining], None] | None = None) -> Refining:
        """Exchanges kernels for so many seconds, or until nothing helps; what was chosen is stored
        at any moment."""
        self.watch = watch or self.watch
        kept = min(CONFIRM_SECONDS, CONFIRM_SHARE * seconds)
        until = self.tools.clock() + seconds - kept
        if not self.order or seconds <= 0:
            return self._tell(ended=True)
        first = self.network.compare(self.alone, self.alone, TRIAL_SECONDS)
        if first.outcome is not Outcome.OK:  # then no exchange would be to blame
            return self._tell(ended=True, problem=f"{first.outcome.value}: {first.message}")
        self._tell(before=statistics.median(first.incumbent))
        for every in (False, True):
            while self._sweep(until, every=every):
                pass
        return self._confirm()

    def _sweep(self, until: float, *, every: bool) -> bool:
        """Lets all candidates take the place of the present one, task by task; whether something
        was exchanged.

        The variants of those that lose are tried with `every` alone.
        """
        before = self._beside
        for start in range(0, len(self.order), TASKS_AHEAD):
            tasks = self.order[start : start + TASKS_AHEAD]
            if self.tools.clock() >= until:
                return False
            self._build_ahead(tasks, every=every)
            for task in tasks:
                for candidate in self._options(task, every=every):
                    if self.tools.clock() >= until:
                        return False
                    self._try(task, candidate)
        return self._beside != before

    def _options(self, task: Task, *, every: bool) -> Iterator[Candidate]:
        """Candidates that may take the place of a task's present one, all of them checked."""
        yield from (c for c in self.finalists[task.key] if self._is_open(task, c))
        # By now, one of them may be the present one.
        wanted = [c for c in self._variants(task, every=every) if self._is_open(task, c)]
        unchecked = [c for c in wanted if (task.key, c.key) not in self.sound]
        self._check(task, unchecked)
        yield from (c for c in wanted if self._is_open(task, c))

    def _variants(self, task: Task, *, every: bool) -> list[Candidate]:
        of = [self.chosen[task.key], *(self.finalists[task.key] if every else ())]
        found = (v for c in of for v in variants(c, self.tools.target))
        return list({v.key: v for v in found}.values())

    def _is_open(self, task: Task, candidate: Candidate) -> bool:
        """Whether it is neither the present one nor known beside the present ones."""
        what = (task.key, candidate.key)
        known = what in self.tried or (*what, self._beside) in self.tried
        return not known and candidate != self.chosen[task.key]

    def _build_ahead(self, tasks: Sequence[Task], *, every: bool) -> None:
        self.network.build_ahead(
            (task, candidate)
            for task in tasks
            for candidate in self._variants(task, every=every)
            if self._is_open(task, candidate)
        )

    def _check(self, task: Task, candidates: Sequence[Candidate]) -> None:
        """Measures candidates by themselves, because only what is right may run in the network.

        Their times are no records: what comes of letting the next kernel in early shows elsewhere.
        """
        tools = self.tools
        for end in tools.runner.trials(task, candidates, tools.threads, tools.target):
            if end.ok and end.checked:
                self.sound.add((task.key, end.candidate.key))
            else:
                self._store(task, end.candidate, end.outcome)

    def _try(self, task: Task, candidate: Candidate) -> None:
        """Exchanges one kernel, and keeps it if the network is faster beyond doubt."""
        assert (task.key, candidate.key) in self.sound
        new = {**self.chosen, task.key: candidate}
        result = self.network.compare(new, self.chosen, TRIAL_SECONDS)
        ok = result.outcome is Outcome.OK
        self._store(task, candidate, result.outcome, result.ratio if ok else None, result.better)
        if ok and result.better:
            self.chosen = new
        present = result.candidate if result.better else result.incumbent
        self._tell(
            tried=self.state.tried + 1, changed=self._changed(),
            seconds=statistics.median(present) if ok else self.state.seconds,
        )  # fmt: skip

    def _confirm(self) -> Refining:
        """Compares with the kernels that are best by themselves; all of these come back if the
        others are not faster together."""
        if not self._changed():
            return self._tell(seconds=self.state.before, ended=True)
        result = self.network.compare(self.chosen, self.alone, CONFIRM_SECONDS)
        if result.outcome is not Outcome.OK or result.ratio >= 1.0:
            self._withdraw(result)
            return self._tell(changed=0, seconds=self.state.before, ended=True)
        before, after = statistics.median(result.incumbent), statistics.median(result.candidate)
        return self._tell(before=before, seconds=after, ended=True)

    def _withdraw(self, result: Comparison) -> None:
        ratio = 1.0 / result.ratio if result.outcome is Outcome.OK else 1.0
        trials = [
            self._trial(self.plan.tasks[key], alone, Outcome.OK, ratio, kept=True)
            for key, alone in self.alone.items()
            if self.chosen[key] != alone
        ]
        self.tools.database.add_network_trials(trials)
        self.chosen = dict(self.alone)

    # ---------------------------------------------------------------------------------- records
    def _store(
        self,
        task: Task,
        candidate: Candidate,
        outcome: Outcome,
        ratio: float | None = None,
        kept: bool = False,
    ) -> None:
        trial = self._trial(task, candidate, outcome, ratio, kept=kept)
        self.tools.database.add_network_trials([trial])
        self._note(trial)

    def _trial(
        self, task: Task, c: Candidate, outcome: Outcome, ratio: float | None, *, kept: bool
    ) -> NetworkTrial:
        tools = self.tools
        return NetworkTrial(
            self.plan.key, self._beside, workload_of(task), tools.target, tools.threads, c.sketch,
            c.holes, outcome, ratio, kept, time.time(),
        )  # fmt: skip

    def _tell(self, **changes: Any) -> Refining:
        self.state = replace(self.state, **changes)
        self.watch(self.state)
        return self.state
