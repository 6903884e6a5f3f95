"""Random candidates of random tasks through the measurer:  python tools/fuzz_candidates.py

    [--candidates 10000] [--tasks 30] [--threads 2] [--seed 0] [--target cuda] [--precision tf32]

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
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.build.random_graphs import random_graph
from whet.api.engines import precision_name, target_name
from whet.build.backend import backend_of, named_target
from whet.core.precision import PRECISIONS
from whet.core.target import Target
from whet.joint.tuning import weighted_tasks
from whet.measure.results import Candidate
from whet.measure.runner import Runner
from whet.tasks.examples import make_example
from whet.tasks.task import Task
from whet.tune.space import Space, make_space

BATCH = 32
LENGTH = 5
"""Operators of a random graph."""


def runner_of(target: Target, seed: int) -> Runner[Any]:
    """What measures on this machine, with inputs of that seed."""
    made: Any = backend_of(target).runner()
    made.examples = partial(make_example, seed=seed)
    return made


def random_spaces(target: Target, threads: int, seed: int) -> Iterator[Space]:
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
    task: Task, candidates: list[Candidate], threads: int, target: Target,
    first: Runner[Any], second: Runner[Any], outcomes: Counter[str],
) -> int:  # fmt: skip
    """How many wrong results were accepted."""
    found = list(first.trials(task, candidates, threads, target))
    outcomes.update(m.outcome.value for m in found)
    for m in found:
        if not m.ok:
            print(f"{m.outcome.value}: {m.candidate}: {m.message}")
    accepted = [m.candidate for m in found if m.ok]
    again = list(second.trials(task, accepted, threads, target))
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
    parser.add_argument("--target", help="cpu or cuda, this machine's; or another that it can run")
    parser.add_argument("--precision", choices=PRECISIONS, help="of a GPU's kernels")
    given = parser.parse_args()
    target, rng = named_target(target_name(given.target)), np.random.default_rng(given.seed)
    target = backend_of(target).in_precision(target, precision_name(given.precision))
    outcomes: Counter[str] = Counter()
    sketches: Counter[str] = Counter()
    wrong, start = 0, time.monotonic()
    share = -(-given.candidates // given.tasks)
    with closing(runner_of(target, 0)) as first, closing(runner_of(target, 1)) as second:
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
