"""The launches of a segment as recordings, for the arrays that calls are given.

    y = model(x)      results lie in two places in turn: the last one is held while the next is made

A recording knows the addresses of arrays, and changing them takes as long as half a launch.  So
there are two of them, and calls whose arrays lie where those of one of the last two calls did
change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.build.cuda.loaded import Loaded
from whet.codegen.cuda.driver import Parameters, Ready, Recording

MAX_TAKES = 2


class Take:
    """Launches on arrays at certain addresses."""

    __slots__ = ("_loaded", "addresses", "recording")

    def __init__(
        self, loaded: Loaded, tables: Sequence[Sequence[int]], addresses: list[int]
    ) -> None:
        self._loaded, self.addresses = loaded, addresses
        kernels = [
            Ready(function, call.launch, Parameters(table), early)
            for function, call, table, early in zip(
                loaded.functions, loaded.image.calls, tables, loaded.early, strict=True
            )
        ]
        for number, address in enumerate(addresses):
            for kernel, position in loaded.uses[number]:
                kernels[kernel].parameters.addresses[position] = address
        self.recording: Recording = loaded.driver.capture(kernels)

    def move(self, addresses: list[int]) -> None:
        """Makes them launches on arrays at other addresses."""
        kernels, changed = self.recording.kernels, set()
        for number, address in enumerate(addresses):
            if address != self.addresses[number]:
                for kernel, position in self._loaded.uses[number]:
                    kernels[kernel].parameters.addresses[position] = address
                    changed.add(kernel)
        self.addresses = addresses
        for kernel in changed:
            self._loaded.driver.change(self.recording, kernel)


class Takes:
    """The takes of a context, the one that was asked for last in front."""

    def __init__(self, loaded: Loaded, tables: Sequence[Sequence[int]]) -> None:
        self._loaded, self._tables = loaded, tables
        """Of `tables`: the parameters of every launch, but for the caller's arrays."""
        self.made: list[Take] = []

    def find(self, addresses: list[int]) -> Recording:
        """The launches on arrays at these addresses, inputs first."""
        made = self.made
        if made and made[0].addresses == addresses:
            return made[0].recording
        for number, take in enumerate(made):
            if take.addresses == addresses:
                made.insert(0, made.pop(number))
                return take.recording
        if len(made) < MAX_TAKES:
            made.insert(0, Take(self._loaded, self._tables, addresses))
        else:
            made[-1].move(addresses)
            made.insert(0, made.pop())
        return made[0].recording

    def discard(self) -> None:
        for take in self.made:
            self._loaded.driver.discard(take.recording)
