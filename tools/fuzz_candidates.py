"""Random candidates of random tasks through the measurer:  python tools/fuzz_candidates.py

    [--candidates 10000] [--tasks 30] [--threads 2] [--seed 0]

Every candidate is built and checked as a search would do it.  Those that are accepted are tried
again on other inputs, which must agree too: a wrong result that was accepted, or a driver that
dies, is a failure.  Prints what failed and why, and how often each outcome and sketch was.  Small
tasks have few candidates, so there may be more tasks than asked for.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.build.random_graphs import random_graph
from whet.api.engines import target_name
from whet.core.cpu import CpuTarget, named_target
from whet.joint.tuning import weighted_tasks
from whet.measure.cpu.measurer import Measurer
from whet.measure.results import Candidate
from whet.tasks.examples import make_example
from whet.tasks.task import Task
from whet.tune.space import Space, make_space

BATCH = 32
LENGTH = 5
"""Operators of a random graph."""


def random_spaces(target: CpuTarget, threads: int, seed: int) -> Iterator[Space]:
    """Spaces of tasks that all differ."""
    known: set[str] = set()
    rng = np.random.default_rng(seed)
    while True:
        graph = random_graph(rng, LENGTH)
        for weighted in weighted_tasks([graph], target, threads, "real"):
            if weighted.task.key not in known:
                known.add(weighted.task.key)
                yield make_space(weighted.task, target, threads)


def draw(space: Space, count: int, rng: np.random.Generator) -> list[Candidate]:
    """Different candidates by chance, sketch by sketch."""
    found: dict[str, Candidate] = {}
    for number in rng.integers(len(space.tables), size=count):
        table = space.tables[int(number)]
        (row,) = table.intern(table.sample(1, rng))
        candidate = space.candidate((int(number), int(row)))
        found[str(candidate)] = candidate
    return [*found.values()]


def batched(candidates: list[Candidate], count: int) -> Iterator[list[Candidate]]:
    for start in range(0, len(candidates), count):
        yield candidates[start : start + count]


def check(
    task: Task, candidates: list[Candidate], threads: int, target: CpuTarget,
    first: Measurer, second: Measurer, outcomes: Counter[str],
) -> int:  # fmt: skip
    """How many wrong results were accepted."""
    for measurer in (first, second):  # nobody is timed closely
        measurer.best[(task.key, target.key, threads)] = 1e-9
    found = first.measure(task, candidates, threads, target)
    outcomes.update(m.outcome.value for m in found)
    for m in found:
        if not m.ok:
            print(f"{m.outcome.value}: {m.candidate}: {m.message}")
    accepted = [m.candidate for m in found if m.ok]
    again = second.measure(task, accepted, threads, target)
    wrong = [m for m in again if m.outcome.value == "wrong_answer"]
    for m in wrong:
        print(f"\nACCEPTED BUT WRONG: {m.candidate}: {m.message}\n{task.text}")
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description="Random candidates through the measurer")
    parser.add_argument("--candidates", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    target, rng = named_target(target_name(None)), np.random.default_rng(given.seed)
    outcomes: Counter[str] = Counter()
    sketches: Counter[str] = Counter()
    wrong, start = 0, time.monotonic()
    share = -(-given.candidates // given.tasks)
    with Measurer() as first, Measurer(partial(make_example, seed=1)) as second:
        spaces = random_spaces(target, given.threads, given.seed)
        tasks = 0
        while tasks < given.tasks or outcomes.total() < given.candidates:
            space, tasks = next(spaces), tasks + 1
            chosen = draw(space, share, rng)
            sketches.update(c.sketch for c in chosen)
            for few in batched(chosen, BATCH):
                wrong += check(space.task, few, given.threads, target, first, second, outcomes)
            print(f"task {tasks}: {outcomes.total()} candidates, "
                  f"{time.monotonic() - start:.0f} s", flush=True)  # fmt: skip
    print(f"{outcomes.total()} candidates of {tasks} tasks: {dict(outcomes)}")
    print(f"sketches: {dict(sketches)}")
    print(f"{wrong} wrong results accepted, {outcomes['wrong_answer']} refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
