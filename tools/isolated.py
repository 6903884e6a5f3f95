"""Work in processes that may crash or hang: an item that ends its process costs nothing but itself.

A process is forked with all items and goes through its share of them; when it ends early, the
item that it was at has crashed, and a new process goes on behind it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Died:
    """How the process of an item ended before it had answered: `crash` or `hang`."""

    status: str
    detail: str


@dataclass
class _Share:
    """Items for one process at a time."""

    numbers: list[int]
    pid: int = 0
    answers: int = -1
    """The file descriptor that its process writes to."""
    begun: bytes = b""
    """The beginning of a line."""
    since: float = 0.0


def each_isolated(
    work: Callable[[Any], Any], items: Sequence[Any], *, processes: int, seconds: float
) -> Iterator[tuple[int, Any]]:
    """The number of every item with work(item), which must be JSON, or with `Died`.

    They come as they are ready.  An item that takes longer than so many seconds hangs.
    """
    shares = [_Share(list(range(n, len(items), processes))) for n in range(processes)]
    with selectors.DefaultSelector() as waiting:
        for share in shares:
            _start(share, work, items, waiting)
        while waiting.get_map():
            for key, _ in waiting.select(timeout=1.0):
                share = key.data
                data = os.read(share.answers, 1 << 16)
                *lines, share.begun = (share.begun + data).split(b"\n")
                for line in lines:
                    yield share.numbers.pop(0), json.loads(line)
                    share.since = time.monotonic()
                if data:
                    continue
                died = _reap(share, waiting)
                if share.numbers:
                    yield share.numbers.pop(0), Died("crash", died)
                    _start(share, work, items, waiting)
            for key in list(waiting.get_map().values()):
                share = key.data
                if time.monotonic() - share.since > seconds:
                    os.kill(share.pid, signal.SIGKILL)
                    _reap(share, waiting)
                    yield share.numbers.pop(0), Died("hang", f"no answer within {seconds:.0f} s")
                    _start(share, work, items, waiting)


def _start(
    share: _Share,
    work: Callable[[Any], Any],
    items: Sequence[Any],
    waiting: selectors.BaseSelector,
) -> None:
    if not share.numbers:
        return
    sys.stdout.flush()
    reading, writing = os.pipe()
    share.pid, share.since = os.fork(), time.monotonic()
    if not share.pid:
        os.close(reading)
        _serve([items[n] for n in share.numbers], work, writing)
    os.close(writing)
    share.answers, share.begun = reading, b""
    waiting.register(share.answers, selectors.EVENT_READ, share)


def _serve(items: Sequence[Any], work: Callable[[Any], Any], writing: int) -> None:
    """The child: a line of JSON for every item."""
    try:
        with os.fdopen(writing, "w") as answers:
            for item in items:
                print(json.dumps(work(item)), file=answers, flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _reap(share: _Share, waiting: selectors.BaseSelector) -> str:
    """How the process ended."""
    waiting.unregister(share.answers)
    os.close(share.answers)
    _, status = os.waitpid(share.pid, 0)
    if os.WIFSIGNALED(status):
        return f"died of {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with code {os.WEXITSTATUS(status)}"
