"""Ctrl-C that is not lost.

Python drops an exception that is raised while it clears a weak reference or runs a destructor,
and interning does a lot of that.  An interrupt is therefore raised again, twice a second, until
somebody says that it was heard.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

REPEAT_SECONDS = 0.5


def _raise(number: int, frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_REAL, REPEAT_SECONDS)
    raise KeyboardInterrupt


def heard() -> None:
    """The interrupt has arrived where it is dealt with."""
    signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def insistent_interrupts() -> Iterator[None]:
    """Within, an interrupt is repeated until `heard` is called."""
    before = {n: signal.signal(n, _raise) for n in (signal.SIGINT, signal.SIGALRM)}
    try:
        yield
    finally:
        heard()
        for number, handler in before.items():
            signal.signal(number, handler)
