"""Workers that stay on processors of their own, where the user asks for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.codegen.pool_jobs import Job, meet, run_in_fork, sum_of_jobs
from whet.build.cpu.threads import Threads
from whet.core.caching import FileCache
from whet.core.config import CacheConfig, Config
from whet.core.processors import pinning_order
from whet.runtime.places import places_table
from whet.runtime.pool import ThreadPool

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = os.sched_getaffinity(0)


@pytest.fixture
def pinned(pool: ThreadPool) -> Iterator[ThreadPool]:
    pool.set_threads(1)
    pool.pin = True
    yield pool
    pool.pin = False


@pytest.fixture
def bound() -> Iterator[int]:
    """The only processor that this thread may use for the time being."""
    processor = max(ALLOWED)
    os.sched_setaffinity(0, {processor})
    yield processor
    os.sched_setaffinity(0, ALLOWED)


def places(threads: list[int]) -> list[set[int]]:
    """The processors that each of these threads of the process may use, as the system says."""
    found = []
    for thread in threads:
        status = Path(f"/proc/self/task/{thread}/status").read_text()
        match = re.search(r"^Cpus_allowed_list:\t(.*)$", status, re.MULTILINE)
        assert match is not None
        bounds = [list(map(int, part.split("-"))) for part in match[1].split(",")]
        found.append({n for first, *last in bounds for n in range(first, [first, *last][-1] + 1)})
    return found


def test_workers_run_anywhere_unless_asked_for(pool: ThreadPool, job: Job) -> None:
    assert not Config().pin
    assert not pool.pin
    pool.set_threads(3)
    assert places(meet(job, 3)) == [ALLOWED] * 3
    assert (pool.stats().pinned, pool.stats().refused) == (0, 0)


@pytest.mark.parametrize("threads", [2, 3, len(ALLOWED) + 3])
def test_every_worker_has_its_place(pinned: ThreadPool, job: Job, threads: int) -> None:
    """More threads than processors begin from the front; the caller goes where it likes."""
    pinned.set_threads(threads)
    order = pinning_order(ALLOWED)
    expected = [{order[n % len(order)]} for n in range(1, threads)]
    assert places(meet(job, threads)) == [ALLOWED, *expected]
    assert (pinned.stats().pinned, pinned.stats().refused) == (threads - 1, 0)


def test_other_numbers_of_threads_have_their_places(pinned: ThreadPool, job: Job) -> None:
    order = pinning_order(ALLOWED)
    for threads in (4, 2, 3):
        pinned.set_threads(threads)
        assert places(meet(job, threads))[1] == {order[1 % len(order)]}
        assert pinned.stats().pinned == threads - 1
    pinned.set_threads(1)
    assert (pinned.stats().pinned, pinned.stats().refused) == (0, 0)


def test_workers_stay_within_the_affinity(pinned: ThreadPool, job: Job, bound: int) -> None:
    pinned.set_threads(3)
    assert places(meet(job, 3)) == [{bound}] * 3
    assert pinned.stats().pinned == 2


def test_workers_that_are_not_pinned_inherit_the_affinity(
    pool: ThreadPool, job: Job, bound: int
) -> None:
    """It may change after the pool was made, until the first parallel loop."""
    pool.set_threads(3)
    assert places(meet(job, 3)) == [{bound}] * 3


def test_places_that_the_system_refuses_are_reported(
    pinned: ThreadPool, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = 60_000  # more than any system is built for
    monkeypatch.setattr("whet.runtime.pool.pinning_order", lambda allowed: (absent,))
    monkeypatch.setattr(pinned, "_tables", {})
    pinned.set_threads(3)
    total = np.zeros(1, np.int64)
    job("sum_often", total, 5_000)
    assert total[0] == sum_of_jobs(5_000)
    assert places(meet(job, 3)) == [ALLOWED] * 3
    assert (pinned.stats().pinned, pinned.stats().refused) == (0, 2)
    pinned.set_threads(1)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_may_bind_itself_elsewhere(
    pinned: ThreadPool, job: Job, tmp_path: Path
) -> None:
    threads = Threads(3, FileCache(CacheConfig(dir=tmp_path)))
    threads.apply()
    before = places(meet(job, 3))

    def works() -> bool:
        clean = (pinned.stats().pinned, pinned.stats().workers) == (0, 0)
        os.sched_setaffinity(0, {max(ALLOWED)})
        threads.apply()
        return clean and places(meet(job, 3)) == [{max(ALLOWED)}] * 3

    run_in_fork(works)
    assert places(meet(job, 3)) == before
    assert pinned.stats().pinned == 2


def test_several_threads_set_the_pool_up_at_once(pinned: ThreadPool, job: Job) -> None:
    """Tables live on: a worker may still be about to read an older one."""
    totals = [np.zeros(1, np.int64) for _ in range(3)]

    def work(total: np.ndarray[tuple[int], np.dtype[np.int64]], count: int) -> None:
        for n in range(20):
            pinned.set_threads(1 + (n + count) % 4)
            job("sum_often", total, 500)

    callers = [threading.Thread(target=work, args=(t, n)) for n, t in enumerate(totals)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [int(t[0]) for t in totals] == [20 * sum_of_jobs(500)] * 3


def test_the_setting_reaches_the_pool(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys; from tests.codegen.pool_jobs import load; "
        "print(load(pathlib.Path(sys.argv[1]))[0].pin)"
    )
    for value, expected in (("1", "True"), ("0", "False")):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "cache")], cwd=ROOT, timeout=60,
            env=os.environ | {"WHET_PIN": value}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.strip() == expected


def test_masks_have_the_bit_of_their_processor() -> None:
    assert places_table((0, 2)).tolist() == [2, 8, 0b001, 0b100]
    assert places_table((63, 64)).tolist() == [2, 16, 1 << 63, 0, 0, 1]
