"""A worker process: started without the caller's modules, killed with all that it started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whet.core.types import Array
from whet.runtime.frames import read_frame, write_frame

START_SECONDS = 60.0

# Not `-m`, which would let a file in the working directory stand in for a library (hence -P);
# not multiprocessing, which would run the caller's main module again.
_START = "import sys; sys.path.append(sys.argv[1]); from {module} import main; main()"
_HOME = str(Path(__file__).resolve().parents[2])


class Ended(Exception):  # noqa: N818 - an outcome of a trial
    """The process has ended; the text says how."""


class Silent(Exception):  # noqa: N818 - an outcome of a trial
    """The process has not answered in time."""


class WorkerProcess:
    """A module's `main` in a process of its own, which answers frames.

    It leads a process group, and its session is its own: an interrupt at the terminal reaches
    the caller alone, which then ends its workers.
    """

    def __init__(self, module: str, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are environment variables of the process, beside those of this one."""
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        # NumPy's BLAS would start a thread per core for nothing.
        quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START.format(module=module), _HOME],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=os.environ | quiet | dict(settings or {}),
            bufsize=0,
            start_new_session=True,
        )
        self.jobs = 0
        """How many it has been given."""

    def fileno(self) -> int:
        """The file that `select` waits for."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def send(self, message: dict[str, Any], arrays: Sequence[Array] = ()) -> None:
        """Hands over a message; `Ended` if nobody is there to take it."""
        assert self.process.stdin is not None
        try:
            # Written whole: a raw pipe may take only a part of what it is given.
            with os.fdopen(os.dup(self.process.stdin.fileno()), "wb") as stream:
                write_frame(stream, message, arrays)
        except BrokenPipeError:
            raise Ended(self.ending()) from None

    def receive(self, seconds: float) -> tuple[dict[str, Any], list[Array]]:
        """The next frame; `Silent` if none begins in time, `Ended` if none can come."""
        ready, _, _ = select.select([self], [], [], max(0.0, seconds))
        if not ready:
            raise Silent
        assert self.process.stdout is not None
        try:
            return read_frame(self.process.stdout)  # type: ignore[arg-type]
        except EOFError:
            raise Ended(self.ending()) from None

    def ending(self) -> str:
        """The end of the process, and the last that it said."""
        code = self._wait()
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        self.log.seek(max(self.log.seek(0, os.SEEK_END) - 4096, 0))
        said = self.log.read().decode(errors="replace").strip().splitlines()
        return f"{how}: {said[-1]}" if said else how

    def _wait(self) -> int:
        try:
            return self.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:  # it closed its end of the pipe but lives on
            self._kill()
            return self.process.wait()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the process and everything that it started."""
        if self.process.poll() is None:
            self._kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class Deadline:
    """A moment that can be moved."""

    def __init__(self, seconds: float) -> None:
        self.move(seconds)

    def move(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self.at - time.monotonic()
