"""What became of a graph: how much of it is native code, and what is not, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BuildReport:
    """`reference` names the operators that run outside native code, with the reason."""

    segments: int
    kernels: int
    """Different kernels; a model may call one of them many times."""
    calls: int
    arena_bytes: int
    constant_bytes: int
    reference: Mapping[str, str]

    def lines(self) -> list[str]:
        """The report as text."""
        first = (
            f"{self.kernels} kernels, {self.calls} calls, {self.segments} native segments, "
            f"{self.arena_bytes} bytes of working memory, {self.constant_bytes} of constants"
        )
        return [first, *(f"not native: {name}: {why}" for name, why in self.reference.items())]
