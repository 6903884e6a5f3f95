"""The parent's side of a worker process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whet.core.closing import Closing
from whet.core.errors import fail
from whet.core.types import Array
from whet.runtime.frames import read_frame, write_frame

TIMEOUT_SECONDS = 600.0

# Not `-m`, which would let a file in the working directory stand in for a library (hence -P);
# the last argument is where this very whet lives, should it not be installed.
_START = "import sys; sys.path.append(sys.argv[2]); from whet.cli.peers.worker import main; main()"
_HOME = str(Path(__file__).resolve().parents[3])


class Worker(Closing):
    """A runtime in its own process; `with` ends the process."""

    def __init__(self, runtime: str, threads: int, timeout: float = TIMEOUT_SECONDS) -> None:
        self.runtime, self.threads, self.timeout = runtime, threads, timeout
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        count = str(threads)
        # NumPy's BLAS has a thread pool of its own, sized from the environment.
        environment = os.environ | {"OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}
        self.process = subprocess.Popen(
            self.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
        )

    def command(self) -> list[str]:
        """The command that starts the process, which then serves frames on its standard streams."""
        return [sys.executable, "-P", "-c", _START, self.runtime, _HOME]

    def load(
        self, model: str, inputs: Mapping[str, Array], *, budget: float = 0.0,
        numerics: str = "real", target: str | None = None, precision: str | None = None,
    ) -> None:  # fmt: skip
        """Loads the model with an array for every input, in the order of the model."""
        job = {"model": model, "threads": self.threads, "budget": budget, "numerics": numerics,
               "target": target, "precision": precision}  # fmt: skip
        self._ask({"do": "load", "names": list(inputs), "job": job}, list(inputs.values()))

    def run(self) -> list[Array]:
        """The outputs for the loaded inputs."""
        return self._ask({"do": "run"})[1]

    def time(self, seconds: float) -> list[float]:
        """Seconds of each call during a turn of about the given length."""
        message, _ = self._ask({"do": "time", "seconds": seconds})
        return [ns * 1e-9 for ns in message["ns"]]

    def _ask(
        self, message: dict[str, Any], arrays: Sequence[Array] = ()
    ) -> tuple[dict[str, Any], list[Array]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        watchdog = threading.Timer(self.timeout, self.process.kill)
        watchdog.daemon = True  # Ctrl-C right here must not wait for it at the end
        watchdog.start()
        try:
            write_frame(self.process.stdin, message, arrays)  # type: ignore[arg-type]
            answer, results = read_frame(self.process.stdout)  # type: ignore[arg-type]
        except (EOFError, BrokenPipeError):
            fail("WH3005", f"{self.runtime} {self._ending()}", *self._last_lines())
        finally:
            watchdog.cancel()
        if not answer["ok"]:
            missing = answer["message"].endswith("is not installed")
            text = answer["message"] if missing else f"{self.runtime}: {answer['message']}"
            fail("WH3005", text, *answer["details"], hint=answer["hint"])
        return answer, results

    def _ending(self) -> str:
        """The end of the process, in words."""
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return f"was killed (out of memory, or no answer within {self.timeout:.0f} s)"
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    def _last_lines(self) -> list[str]:
        self.log.seek(max(self.log.tell() - 4096, 0))
        return self.log.read().decode(errors="replace").splitlines()[-8:]

    def close(self) -> None:
        """Ends the process."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue
