"""Work in processes that may crash or hang.

A child is forked from this process, which must have no other threads, and works through a few
items; it tells what it is doing, so that the item of a crash is known.  The next child goes on
behind it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import selectors
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Generic, TypeVar

Item = TypeVar("Item")
Stage = Callable[[str], None]
Work = Callable[[Any, Stage], dict[str, Any]]
"""(item, stage) to a result that JSON can hold; `stage` is told what comes next."""

PER_CHILD = 30
"""Items of a child: then a fresh one, so that neither memory nor damage adds up."""
LOG_TAIL = 4000


@dataclass(frozen=True)
class Died:
    """What is known of a process that did not come back."""

    hung: bool
    stage: str
    reason: str
    log: str


@dataclass
class _Child(Generic[Item]):
    """A process at work."""

    pid: int
    pipe: int
    log: IO[bytes]
    waiting: list[Item]
    """What it has not begun, in order."""
    current: Item | None = None
    stage: str = ""
    since: float = field(default_factory=time.monotonic)
    unread: bytes = b""


def run_isolated(
    work: Work, items: Iterable[Item], *, jobs: int = 1, timeout: float = 120.0,
    per_child: int = PER_CHILD,
) -> Iterator[tuple[Item, dict[str, Any] | Died]]:  # fmt: skip
    """The result of every item, or how its process died, as they come."""
    source = iter(items)
    children: dict[int, _Child[Item]] = {}
    with selectors.DefaultSelector() as selector:

        def start(given: list[Item]) -> None:
            few = given or [x for _, x in zip(range(per_child), source)]
            if few:
                child = _fork(work, few)
                children[child.pipe] = child
                selector.register(child.pipe, selectors.EVENT_READ)

        try:
            for _ in range(jobs):
                start([])
            while children:
                for key, _ in selector.select(timeout=1.0):
                    child = children[key.fd]
                    data = os.read(child.pipe, 1 << 16)
                    yield from _read(child, data)
                    if not data:
                        selector.unregister(child.pipe)
                        del children[child.pipe]
                        yield from _ended(child, hung=False)
                        start(child.waiting)
                # Whoever takes the results may have taken his time: those that wait are read first.
                answered = {key.fd for key, _ in selector.select(timeout=0)}
                for child in [c for pipe, c in children.items() if pipe not in answered]:
                    if child.current is not None and time.monotonic() - child.since > timeout:
                        os.kill(child.pid, signal.SIGKILL)
                        selector.unregister(child.pipe)
                        del children[child.pipe]
                        yield from _ended(child, hung=True)
                        start(child.waiting)
        finally:
            for child in children.values():
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                os.close(child.pipe)


def _fork(work: Work, items: list[Item]) -> _Child[Item]:
    inlet, outlet = os.pipe()
    log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
    pid = os.fork()
    if pid:
        os.close(outlet)
        return _Child(pid, inlet, log, list(items))
    status = 1
    try:
        os.close(inlet)
        for standard in (1, 2):
            os.dup2(log.fileno(), standard)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.enable()
        _work_through(work, items, outlet)
        status = 0
    finally:
        os._exit(status)


def _work_through(work: Work, items: list[Any], outlet: int) -> None:
    def say(kind: str, text: str = "") -> None:
        os.write(outlet, f"{kind}{text}\n".encode())

    for item in items:
        say("B")
        result = work(item, lambda name: say("S", name))
        say("R", json.dumps(result))


def _read(child: _Child[Item], data: bytes) -> Iterator[tuple[Item, dict[str, Any]]]:
    *lines, child.unread = (child.unread + data).split(b"\n")
    for line in lines:
        kind, text = line[:1], line[1:].decode()
        if kind == b"B":
            child.current, child.stage, child.since = child.waiting.pop(0), "", time.monotonic()
        elif kind == b"S":
            child.stage = text
        else:
            assert child.current is not None
            yield child.current, json.loads(text)
            child.current = None


def _ended(child: _Child[Item], *, hung: bool) -> Iterator[tuple[Item, Died]]:
    _, status = os.waitpid(child.pid, 0)
    os.close(child.pipe)
    if child.current is not None:
        child.log.seek(0)
        log = child.log.read().decode(errors="replace")[-LOG_TAIL:]
        reason = "no answer in time" if hung else _reason(status)
        yield child.current, Died(hung, child.stage, reason, log)
    child.log.close()


def _reason(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit status {os.WEXITSTATUS(status)}"
