"""What became of a graph: how much of it is native code, and what is not, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BuildReport:
    """`reference` says which operators run outside native code, and why; `host`, which of them
    run on the host of a device, and what is copied for them."""

    segments: int
    kernels: int
    """Different kernels; a model may call one of them many times."""
    calls: int
    arena_bytes: int
    constant_bytes: int
    reference: tuple[str, ...]
    host: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The report as text."""
        first = (
            f"{self.kernels} kernels, {self.calls} calls, {self.segments} native segments, "
            f"{self.arena_bytes} bytes of working memory, {self.constant_bytes} of constants"
        )
        refused = (f"not native: {line}" for line in self.reference)
        return [first, *refused, *(f"on the host: {line}" for line in self.host)]
