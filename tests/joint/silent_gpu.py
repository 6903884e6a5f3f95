"""A GPU whose kernels compute nothing, but take their time: it depends on the one before them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from tests.build.cuda.recorded_driver import RecordedDriver
from whet.codegen.cuda.driver import Handle, Ready, Recording
from whet.codegen.cuda.launch import Launch
from whet.measure.cuda.run_worker import RunWorker
from whet.measure.serving import serve

US = 1e-3
"""Milliseconds in a microsecond."""


class SilentDriver(RecordedDriver):
    def __init__(self) -> None:
        super().__init__()
        self.clock, self.before = 0.0, b""
        self.stamps: dict[Handle, float] = {}

    def function(self, module: Handle, launch: Launch) -> Handle:
        return module

    def play(self, recording: Recording, stream: int) -> None:
        self.before = b""
        super().play(recording, stream)

    def _run(self, kernel: Ready, addresses: Sequence[int]) -> None:
        for address in addresses[: kernel.parameters.addresses._length_]:
            self.check(address, 1)
        self.clock += US * (20 + zlib.crc32(self.before + kernel.function) % 10)
        self.before = kernel.function

    def record(self, event: Handle, stream: int) -> None:
        self.stamps[event] = self.clock

    def milliseconds(self, first: Handle, last: Handle) -> float:
        return self.stamps[last] - self.stamps[first]


def main() -> None:
    """The process that owns the GPU."""
    serve(RunWorker(SilentDriver()).handle)
