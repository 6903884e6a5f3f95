"""Many graphs: run, counted, and their failures kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tools.graph_fuzz.case import Case
from tools.graph_fuzz.targets import NAMES, can_run
from tools.graph_fuzz.trial import Outcome, make_case, run_case
from tools.graph_fuzz.workers import Died, Stage, run_isolated

COMPARABLE = ("grid", "ties", "uniform", "positive")
"""Values on which another implementation is asked: with others it is accuracy, or taste, in
which it differs, and not what nodes mean."""


@dataclass(frozen=True)
class Plan:
    """Which graphs to run, and how."""

    seed: int = 0
    first: int = 0
    count: int = 1000
    target: str | None = None
    """One target for all graphs; by default each graph has one of its own."""
    jobs: int = 1
    timeout: float = 120.0
    peer: bool = True

    def indices(self) -> Iterator[int]:
        """The graphs' numbers, without those of targets that this machine cannot run."""
        asked = NAMES if self.target is None else (self.target,)
        possible = {name for name in asked if can_run(name)}
        for index in range(self.first, self.first + self.count):
            if (self.target or NAMES[index % len(NAMES)]) in possible:
                yield index


def outcome_of(found: dict[str, Any] | Died, known: Outcome | None = None) -> Outcome:
    """The outcome that a process sent, or that of its end."""
    if not isinstance(found, Died):
        lists = {k: tuple(v) for k, v in found.items() if isinstance(v, list)}
        return Outcome(**{**found, **lists})
    base = known or Outcome("ok")
    if found.stage == "peer":
        return replace(base, kind="ok", peer=f"the peer ended the process: {found.reason}")
    kind = "hang" if found.hung else "crash"
    return replace(base, kind=kind, detail=f"{found.reason} at '{found.stage}' {_line(found.log)}")


def _line(log: str) -> str:
    """What a log says of the end: the last line that is no part of a list of frames."""
    lines = [x for x in log.splitlines() if x and not x.startswith(("  ", "Current", "Extension"))]
    return lines[-1][:200] if lines else ""


def run_plan(plan: Plan, cases: Callable[[int], tuple[Case, Outcome]] | None = None,
             ) -> Iterator[tuple[int, Outcome]]:  # fmt: skip
    """Every graph's number and outcome, as they come."""
    make = cases or (lambda index: make_case(plan.seed, index, plan.target))

    def work(index: int, stage: Stage) -> dict[str, Any]:
        stage("grow")
        case, known = make(index)
        full = all(a.size for a in case.inputs.values())  # opinions differ on empty tensors
        found = run_case(case, stage, peer=plan.peer and full and known.style in COMPARABLE)
        return dataclasses.asdict(replace(
            found, refusals=known.refusals, target=known.target, style=known.style,
            nodes=known.nodes, operators=known.operators,
        ))  # fmt: skip

    for index, found in run_isolated(work, plan.indices(), jobs=plan.jobs, timeout=plan.timeout):
        known = None
        if isinstance(found, Died):
            target = plan.target or NAMES[index % len(NAMES)]
            known = Outcome("ok", target=target)
        yield index, outcome_of(found, known)


def run_alone(cases: Iterable[Case], *, timeout: float = 120.0, jobs: int = 1, peer: bool = False,
              ) -> Iterator[tuple[int, Outcome]]:  # fmt: skip
    """The outcome of each case, by its position, every one in a process of its own."""
    numbered = list(enumerate(cases))

    def work(item: tuple[int, Case], stage: Stage) -> dict[str, Any]:
        return dataclasses.asdict(run_case(item[1], stage, peer=peer))

    found = run_isolated(work, numbered, timeout=timeout, jobs=jobs, per_child=1)
    for (number, case), result in found:
        outcome = outcome_of(result)
        yield number, replace(outcome, target=case.variant.target)


def looked_at_again(case: Case, outcome: Outcome, timeout: float = 120.0) -> Outcome:
    """A crash explained: a write outside of an array, or one that does not happen alone."""
    if outcome.kind not in ("crash", "hang"):
        return outcome
    margins = dataclasses.replace(case, variant=replace(case.variant, pages=False))
    again = dict(run_alone([case, margins], timeout=2 * timeout))
    if again[1].kind == "outside":
        return replace(outcome, kind="outside", detail=f"{again[1].detail} ({outcome.detail})")
    if not again[0].failed:
        return replace(outcome, detail=f"{outcome.detail}; not when run alone")
    return outcome
