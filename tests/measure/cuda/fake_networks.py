"""A GPU on which kernels are slow behind themselves, and networks for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.measure.cuda.fake_gpu import FIRST, NAMES, SIZE, FakeDriver
from whet.codegen.cuda.driver import Handle, Ready, Recording
from whet.codegen.cuda.launch import Launch
from whet.core.types import Array
from whet.measure.cuda.network_jobs import NetworkCall, NetworkJob, Piece
from whet.measure.cuda.run_worker import RunWorker
from whet.measure.kernel_process import Loadable
from whet.measure.serving import serve

AGAIN_MS = 5e-3
"""What a kernel takes more behind itself."""
X = Piece("array 0", 4 * SIZE, "f32")
WEIGHTS = Piece("weights", 4000, "f32")
ROOM = Piece("", 2 * 512, "u8")


class NeighbourDriver(FakeDriver):
    """What a kernel takes depends on the one that was launched before it."""

    before: Handle = None

    def play(self, recording: Recording, stream: int) -> None:
        self.before = None
        super().play(recording, stream)

    def _run(self, kernel: Ready, addresses: Sequence[int]) -> None:
        super()._run(kernel, addresses)
        self.clock += AGAIN_MS * (kernel.function == self.before)
        self.before = kernel.function


def cubin(fault: str) -> bytes:
    return str(FIRST + NAMES.index(fault)).encode()


def job(*faults: str, weights: Piece = WEIGHTS) -> NetworkJob:
    """Kernels one behind the other, between two places of their working memory."""
    calls = []
    for number, fault in enumerate(faults):
        source = (1, 0) if not number else (0, 512 * (number % 2))
        launch = Launch(f"k{number}_0", 4, 1, 32, 0, awaits=True)
        places = (source, (0, 512 * ((number + 1) % 2)), (2, 0))
        calls.append(NetworkCall(launch, f"cubin.{fault}", places))
    return NetworkJob((ROOM, X, weights), tuple(calls), early=True)


def code(*faults: str) -> dict[str, Array]:
    return {f"cubin.{fault}": np.frombuffer(cubin(fault), np.uint8) for fault in faults}


def network(*faults: str) -> Loadable:
    return Loadable(job(*faults), b"", code(*faults))


def main() -> None:
    """The process that owns the GPU."""
    serve(RunWorker(NeighbourDriver()).handle)
