"""Contestants: runtimes in processes of their own, pinned to the first cores, one at a time."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.turns import process_cpu_seconds
from whet.cli.peers.process import TIMEOUT_SECONDS, Worker
from whet.core.closing import Closing
from whet.core.errors import WhetError
from whet.core.types import Array

_BENCH = Path(__file__).resolve().parents[1]
_START = "import sys; sys.path[:0] = sys.argv[3:]; from harness.worker import main; main()"


class Peer(Worker):
    """A runtime of `harness.runtimes` in a process that may use `threads` cores.

    `python` is its interpreter, for runtimes that cannot be installed beside the others: that one
    needs NumPy and the runtime, and finds whet here.
    """

    def __init__(
        self, runtime: str, threads: int, timeout: float = TIMEOUT_SECONDS,
        python: str = sys.executable,
    ) -> None:  # fmt: skip
        self.python = python
        super().__init__(runtime, threads, timeout)

    def command(self) -> list[str]:
        folders = [str(_BENCH), str(_BENCH.parent)]
        return [self.python, "-P", "-c", _START, self.runtime, str(self.threads), *folders]

    def _ask(
        self, message: dict[str, Any], arrays: Sequence[Array] = ()
    ) -> tuple[dict[str, Any], list[Array]]:
        """The process is stopped while it has nothing to do.

        Idle threads of some libraries spin, and would take a core from whose turn it is.
        """
        self.process.send_signal(signal.SIGCONT)
        try:
            return super()._ask(message, arrays)
        finally:
            self.process.send_signal(signal.SIGSTOP)

    def cpu_seconds(self) -> float:
        return process_cpu_seconds(self.process.pid)

    def work(self) -> float:
        """The amount of work of one call, from runtimes whose result is that number."""
        return float(self.run()[0])


class Field(Closing):
    """The peers of a benchmark; `with` ends their processes.

    Peers that cannot load something sit that out; `missing` says why, by name.
    """

    def __init__(self, entries: Mapping[str, tuple[str, int]]) -> None:
        self.entries = dict(entries)
        self.peers: dict[str, Peer] = {}
        self.missing: dict[str, str] = {}

    def load(self, name: str, model: str, inputs: Mapping[str, Array]) -> Peer | None:
        """The peer with the model loaded, or None if it cannot."""
        if name not in self.peers or self.peers[name].process.poll() is not None:
            self.peers[name] = Peer(*self.entries[name])
        try:
            self.peers[name].load(model, inputs)
        except WhetError as error:
            self.note(name, error)
            return None
        return self.peers[name]

    def load_all(
        self, names: Iterable[str], model: str, inputs: Mapping[str, Array]
    ) -> dict[str, Peer]:
        """The peers among the named ones that could load the model."""
        loaded = {name: self.load(name, model, inputs) for name in names}
        return {name: peer for name, peer in loaded.items() if peer is not None}

    def note(self, name: str, error: WhetError) -> None:
        """Remember and say why a peer has no figure."""
        self.missing[name] = error.message
        print(f"{name}: {error.message}", *error.details[:3], sep="\n  ", file=sys.stderr)

    def close(self) -> None:
        for peer in self.peers.values():
            peer.close()


def number(value: float) -> dict[str, Array]:
    """The inputs of runtimes that need only a size."""
    return {"size": np.asarray(value, np.float64)}


def error_of_range(found: Array, expected: Array) -> float:
    """The largest difference, relative to the largest expected magnitude."""
    if found.shape != expected.shape:
        return float("inf")
    difference = np.abs(found.astype(np.float64) - expected)
    return float(difference.max(initial=0.0) / (np.abs(expected).max(initial=0.0) or 1.0))
