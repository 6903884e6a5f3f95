"""Any legal sequence of primitives keeps the meaning of any task."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.schedule.random_traces import random_trace
from tests.schedule.small_tasks import TASKS, arrays_for, check_native, check_program
from tests.targets import HOST
from whet.schedule.program.primitives import naive_program
from whet.schedule.space.trace import Trace, replay, replay_kernel
from whet.tasks.task import Task

CASES = st.tuples(st.sampled_from(sorted(TASKS)), *[st.integers(2, 7)] * 3)


def task_of(case: tuple[str, int, int, int]) -> Task:
    return TASKS[case[0]](*case[1:])


@pytest.mark.parametrize("name", sorted(TASKS))
def test_naive_programs_mean_the_task(name: str) -> None:
    task = TASKS[name]()
    check_program(naive_program(task), task, arrays_for(task))


@given(CASES, st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_legal_steps_keep_the_meaning(case: tuple[str, int, int, int], seed: int) -> None:
    task = task_of(case)
    trace, program = random_trace(task, np.random.default_rng(seed))
    assert replay(Trace.from_json(trace.to_json()), task) is program
    check_program(program, task, arrays_for(task))


@given(CASES, st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_legal_steps_keep_the_meaning_natively(case: tuple[str, int, int, int], seed: int) -> None:
    task = task_of(case)
    trace, _ = random_trace(task, np.random.default_rng(seed))
    check_native(replay_kernel(trace, task), task, arrays_for(task), HOST)


def test_random_traces_use_every_kind_of_step() -> None:
    """The two tests above mean little if most proposals are refused."""
    used: set[str] = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        make = TASKS[sorted(TASKS)[seed % len(TASKS)]]
        used |= {s.kind for s in random_trace(make(), rng)[0].steps}
    assert used >= {
        "split", "fuse", "reorder", "fission", "unroll", "vectorize", "parallel", "compute_at",
        "inline", "cache_write", "cache_read", "rfactor",
    }  # fmt: skip
