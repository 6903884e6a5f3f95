"""The worker's side of a trial: signs of life on the way, and whatever happens is an outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from whet.core.errors import WhetError
from whet.core.outcomes import Outcome
from whet.measure.serving import Answer
from whet.measure.statistics import BadClock

BEAT_SECONDS = 0.05


class WrongAnswer(Exception):  # noqa: N818 - an outcome of a trial
    """The kernel's results are not the expected ones."""


class TooSlow(Exception):  # noqa: N818 - an outcome of a trial
    """A call took longer than it may."""


class Beat:
    """Says that the worker is alive: at once, or if it has not said so for a while."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.last = answer, 0.0

    def now(self) -> None:
        self.last = time.monotonic()
        self.answer({"beat": True})

    def __call__(self) -> None:
        if time.monotonic() - self.last > BEAT_SECONDS:
            self.now()


def require_in_time(seconds: float, limit: float) -> None:
    """`TooSlow` if a call took longer than it may."""
    if seconds > limit:
        raise TooSlow(f"a call took {seconds:.3g} s, the limit is {limit:.3g} s")


def ending(
    samples: Callable[[], list[list[float]]], failed: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """The final answer to a job: the samples of every kernel, or why there are none.

    `failed` is called after an error that is not about results or times.
    """
    try:
        taken = samples()
    except TooSlow as slow:
        return {"outcome": Outcome.RUN_TIMEOUT, "message": str(slow)}
    except WrongAnswer as wrong:
        return {"outcome": Outcome.WRONG_ANSWER, "message": str(wrong)}
    except (BadClock, WhetError, RuntimeError, MemoryError, OSError) as error:
        failed()
        text = f"{type(error).__name__}: {error}"
        return {"outcome": Outcome.RUN_ERROR, "message": text.splitlines()[0]}
    return {"outcome": Outcome.OK, "message": "", "samples": taken}
