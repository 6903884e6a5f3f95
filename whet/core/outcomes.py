"""The ways in which a trial of a kernel can end: what is measured, stored and shown."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The end of one trial.  Only `ok` has timings that count."""

    OK = "ok"
    LIMIT = "limit"
    """Refused before it was built: too much code, stack, registers or working memory."""
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    CRASH = "crash"
    """The process that ran it ended: a fault at a guard page, an illegal instruction, ..."""
    RUN_ERROR = "run_error"
    """It could not be loaded, or the clock gave times that cannot be."""
    RUN_TIMEOUT = "run_timeout"
    WRONG_ANSWER = "wrong_answer"
