"""The worker process, which holds the runtime that its first argument names.

Answers frames on its standard input until it ends: `load` a model, `run` it once, `time` it
for some seconds.  Whatever a runtime prints goes to standard error.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

from whet.cli.peers.runtimes import RUNTIMES, Job, Run
from whet.core.errors import WhetError
from whet.core.types import Array
from whet.runtime.frames import read_frame, write_frame


def serve(runtime: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers requests until the parent closes the pipe."""
    run: Run | None = None
    arrays: Sequence[Array] = ()
    while True:
        try:
            message, given = read_frame(requests)
        except EOFError:
            return
        try:
            if message["do"] == "load":
                arrays = given
                inputs = dict(zip(message["names"], given, strict=True))
                run = RUNTIMES[runtime](Job(inputs=inputs, **message["job"]))
                write_frame(answers, {"ok": True})
                continue
            assert run is not None
            if message["do"] == "run":
                write_frame(answers, {"ok": True}, run(arrays))
            else:
                write_frame(answers, {"ok": True, "ns": timed_calls(run, arrays, message)})
        except WhetError as error:
            write_frame(answers, _failure(error.message, error.details, error.hint))
        except Exception as error:  # a runtime may raise anything; the parent reports it
            text = str(error).splitlines() or [""]
            write_frame(answers, _failure(f"{type(error).__name__}: {text[0]}", text[1:6], None))


def timed_calls(run: Run, arrays: Sequence[Array], message: dict[str, Any]) -> list[int]:
    """Durations of calls in nanoseconds, for about the given time, after one untimed call."""
    run(arrays)
    clock = time.perf_counter_ns
    end = clock() + int(message["seconds"] * 1e9)
    durations: list[int] = []
    while not durations or clock() < end:
        start = clock()
        run(arrays)
        durations.append(clock() - start)
    return durations


def _failure(message: str, details: Sequence[str], hint: str | None) -> dict[str, Any]:
    return {"ok": False, "message": message, "details": list(details), "hint": hint}


def main() -> None:
    """Serves on the standard streams."""
    # A runtime's own prints must not end up between the frames.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.stdin.buffer, answers)
