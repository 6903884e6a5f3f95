"""An interrupt that is lost once comes again."""

from __future__ import annotations

import os
import signal
import time
import weakref

import pytest

from whet.cli.interrupts import insistent_interrupts


class Thing:
    """Something that can be referred to weakly."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_a_callback_swallows_is_repeated() -> None:
    thing = Thing()
    reference = weakref.ref(thing, lambda r: os.kill(os.getpid(), signal.SIGINT))

    def wait() -> None:
        nonlocal thing
        del thing  # the interrupt is raised within the callback, where Python drops it
        assert reference() is None
        time.sleep(60)

    with pytest.raises(KeyboardInterrupt), insistent_interrupts():
        wait()


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with insistent_interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
