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
    """A thread that has begun its work."""
    begun = threading.Event()
    thread = threading.Thread(target=lambda: (begun.set(), work()), daemon=True)
    thread.start()
    begun.wait()
    time.sleep(0.005)
    yield thread
    thread.join()


def test_it_waits_for_a_thread_that_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "LONGEST_SECONDS", 30.0)  # however slow a machine hashes
    wait_until_resting()
    ended: list[float] = []

    def work() -> None:
        hashlib.sha256(BLOCK).digest()
        ended.append(time.perf_counter())

    with beside(work):
        assert wait_until_resting()
        returned = time.perf_counter()
    assert returned >= ended[0] - 0.01


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_until_resting()
    monkeypatch.setattr(resting, "LONGEST_SECONDS", 0.0)
    with beside(lambda: hashlib.sha256(BLOCK * 4).digest()) as thread:
        assert not wait_until_resting()
        assert thread.is_alive()


def test_threads_that_sleep_do_not_count() -> None:
    wait_until_resting()
    with beside(lambda: time.sleep(0.05)):
        assert not resting._others_compute()
