"""What became of a graph: how much of it is native code, and what is not, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BuildReport:
    """`reference` says which operators run outside native code, and why."""

    segments: int
    kernels: int
    """Different kernels; a model may call one of them many times."""
    calls: int
    arena_bytes: int
    constant_bytes: int
    reference: tuple[str, ...]

    def lines(self) -> list[str]:
        """The report as text."""
        first = (
            f"{self.kernels} kernels, {self.calls} calls, {self.segments} native segments, "
            f"{self.arena_bytes} bytes of working memory, {self.constant_bytes} of constants"
        )
        return [first, *(f"not native: {line}" for line in self.reference)]
