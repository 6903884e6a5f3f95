"""The parent's side of trials: models go to a process, findings come back, whatever happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whet.api.reduce.cutting import Case
from whet.api.reduce.findings import Finding, Question
from whet.core.closing import Closing
from whet.core.types import Array
from whet.graph.export import export_bytes
from whet.measure.process import START_SECONDS, Ended, Silent, WorkerProcess

DEFAULT_TIMEOUT = 120.0
"""Seconds without a sign of life after which a trial counts as hanging."""
STRICT = {"WHET_STRICT": "1"}
"""Failures of the compiler are failures, and not models that run in the interpreter."""


class Judge(Closing):
    """Asks one question about models; the process that answers is replaced when it ends."""

    def __init__(
        self, question: Question, modules: Sequence[str] = (), timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        self.question, self.modules, self.timeout = question, list(modules), timeout
        self.worker: WorkerProcess | None = None
        self.trials = 0

    def of_case(self, case: Case) -> Finding:
        """The finding about a part, tried as the file that it would be written to."""
        data = np.frombuffer(export_bytes(case.graph), np.uint8)
        return self._ask(None, case.arrays, [data])

    def of_file(self, path: str, arrays: Mapping[str, Array]) -> Finding:
        """The finding about a model file."""
        return self._ask(path, arrays, [])

    def _ask(self, path: str | None, arrays: Mapping[str, Array], model: list[Array]) -> Finding:
        self.trials += 1
        message = {"do": "judge", "question": self.question.to_json(), "path": path,
                   "names": list(arrays)}  # fmt: skip
        try:
            worker = self._ready()
            worker.send(message, [*model, *arrays.values()])
            return _finding(worker, self.timeout)
        except Ended as ended:
            self.close()
            return Finding("crash", f"the process {ended}")
        except Silent:
            self.close()
            return Finding("hang", f"no answer within {self.timeout:g} s")
        except BaseException:
            self.close()  # interrupted: an answer that is still to come is nobody's
            raise

    def _ready(self) -> WorkerProcess:
        if self.worker is None:
            self.worker = WorkerProcess("whet.api.reduce.worker", STRICT)
            self.worker.receive(START_SECONDS)
            self.worker.send({"do": "load", "modules": self.modules})
        return self.worker

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None


def _finding(worker: WorkerProcess, timeout: float) -> Finding:
    while True:
        message: dict[str, Any] = worker.receive(timeout)[0]
        if "finding" in message:
            return Finding(**message["finding"])
