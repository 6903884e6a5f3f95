"""Running one function over many items: in this process or in local worker processes.

An `Executor` is passed to whatever has independent work to do; which one it is changes speed
and isolation, never results.
"""

from __future__ import annotations

import functools
import multiprocessing
import signal
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Protocol, TypeVar

from whet.core.containers import usable_processors
from whet.core.errors import fail

T = TypeVar("T")
R = TypeVar("R")
H = TypeVar("H", bound=Hashable)
"""What stands for an item that runs somewhere."""

Progress = Callable[[int, int], None]
"""Called with the number of items that are done and the number of all items."""


class Cancelled(Exception):  # noqa: N818 - cancelling is not an error
    """The work was given up because its `cancel` event was set."""


class Executor(Protocol):
    """Maps functions over items."""

    def map(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        *,
        progress: Progress | None = None,
        cancel: Event | None = None,
    ) -> list[R]:
        """function(item) for every item, in the order of the items.

        The function is defined at module level and its argument and result can be sent to
        another process.  An exception that it raises is raised here, and items that have not
        begun are dropped.  Once `cancel` is set no item is begun, and `Cancelled` is raised
        when those that run have ended.
        """


@dataclass(frozen=True, slots=True)
class Serial:
    """One item after the other, in this process."""

    def map(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        *,
        progress: Progress | None = None,
        cancel: Event | None = None,
    ) -> list[R]:
        results = []
        for item in items:
            if cancel is not None and cancel.is_set():
                raise Cancelled
            results.append(function(item))
            if progress is not None:
                progress(len(results), len(items))
        return results


@dataclass(frozen=True, slots=True)
class LocalProcesses:
    """Worker processes on this machine, started afresh (spawned) for each `map`.

    Spawned workers inherit no locks and no threads, so they are safe whatever the calling
    process has running.
    """

    workers: int = 0
    """How many; 0 means one per processor that this process may use."""

    def map(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        *,
        progress: Progress | None = None,
        cancel: Event | None = None,
    ) -> list[R]:
        _require_module_level(function)
        if not items:
            return []
        count = min(self.workers or usable_processors(), len(items))
        context = multiprocessing.get_context("spawn")
        workers = ProcessPoolExecutor(count, context, _leave_interrupts)
        with workers as pool, _ended_by_interrupt():
            return hand_out(
                items,
                count,
                begin=lambda item: pool.submit(function, item),
                ended=lambda running: wait(running, return_when=FIRST_COMPLETED).done,
                result=_result,
                progress=progress,
                cancel=cancel,
            )


def hand_out(
    items: Sequence[T],
    most: int,
    *,
    begin: Callable[[T], H],
    ended: Callable[[list[H]], Iterable[H]],
    result: Callable[[H], R],
    progress: Progress | None,
    cancel: Event | None,
) -> list[R]:
    """The results of all items, of which at most so many run at once, in the items' order.

    `begin` hands an item to a worker, `ended` waits until some of those that run have ended.  No
    more items are handed out than run, so that cancelling and failing leave nothing in a queue.
    """
    results: dict[int, R] = {}
    running: dict[H, int] = {}
    position = 0
    while len(results) < len(items):
        stopped = cancel is not None and cancel.is_set()
        while not stopped and position < len(items) and len(running) < most:
            running[begin(items[position])] = position
            position += 1
        if not running:
            raise Cancelled
        for handle in ended(list(running)):
            results[running.pop(handle)] = result(handle)
            if progress is not None:
                progress(len(results), len(items))
    return [results[n] for n in range(len(items))]


def _leave_interrupts() -> None:
    """In a worker: Ctrl-C is for the process that hands out the work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _ended_by_interrupt() -> Iterator[None]:
    """An interrupt ends the processes that were started within, whatever they are doing."""
    before = set(multiprocessing.active_children())
    try:
        yield
    except KeyboardInterrupt:
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        raise


def _result(future: Future[R]) -> R:
    try:
        return future.result()
    except BrokenProcessPool:
        fail("WH1004", "a worker process ended before its work was done")


def _require_module_level(function: Callable[..., object]) -> None:
    plain = function.func if isinstance(function, functools.partial) else function
    name = getattr(plain, "__qualname__", "")
    if "<" in name:
        raise TypeError(f"{name} is not defined at module level and cannot be sent to a worker")
