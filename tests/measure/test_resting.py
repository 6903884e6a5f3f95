"""Waiting for the threads of the measuring process."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from whet.measure import resting
from whet.measure.resting import wait_until_resting

BLOCK = bytes(1 << 26)
"""To be hashed in one go, for some 0.05 s, without the interpreter's lock."""


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """A thread that has begun its work, and sleeps after it for as long as the block lasts."""
    begun, enough = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (begun.set(), work(), enough.wait()), daemon=True)
    thread.start()
    begun.wait()
    time.sleep(0.005)  # gives it the interpreter's lock
    yield thread
    enough.set()
    thread.join()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is."""
    monkeypatch.setattr(resting, "LONGEST_SECONDS", 120.0)


@pytest.mark.usefixtures("patient")
def test_it_waits_for_a_thread_that_computes() -> None:
    wait_until_resting()
    needed: list[float] = []

    def work() -> None:
        hashlib.sha256(BLOCK).digest()
        needed.append(time.thread_time())

    with beside(work) as thread:
        assert wait_until_resting()
        assert thread.ident is not None
        used = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    assert used > 0.9 * needed[0], "the thread had not done its work"


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(resting, "_others_compute", lambda: looks.append(1) or True)
    monkeypatch.setattr(resting, "LONGEST_SECONDS", 0.01)
    assert not wait_until_resting()
    assert looks


@pytest.mark.usefixtures("patient")
def test_threads_that_sleep_do_not_count() -> None:
    with beside(lambda: None) as thread:
        assert wait_until_resting()
        assert thread.is_alive()
