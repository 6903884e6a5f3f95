"""Jobs for the process that runs kernels on a GPU: a kernel's launches and memory as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from whet.codegen.cuda.launch import Launch
from whet.measure.cuda.judging import Allowance
from whet.measure.parameters import Parameter, parameter_from_message

MOST_COPIES = 24
MOST_COPY_BYTES = 100 << 20
"""Constants are read from copies of theirs, which together are more than the second cache holds:
in a model they were last used one run of the whole model ago."""


@dataclass(frozen=True)
class Check:
    """Values that a kernel is tried on: of the parameters' arrays those with its name."""

    name: str
    allowed: Allowance

    def key(self, array: str) -> str:
        """The name that the values of an array are held under."""
        return f"{array}.{self.name}"


@dataclass(frozen=True)
class GpuJob:
    """A kernel to run: `table` says which parameter each of its arguments is."""

    launches: tuple[Launch, ...]
    early: bool
    """Whether kernels that await their inputs may be launched before others have ended."""
    parameters: tuple[Parameter, ...]
    table: tuple[int, ...]
    checks: tuple[Check, ...]

    cache_bytes: ClassVar[int] = MOST_COPY_BYTES

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self.parameters)

    def to_message(self) -> dict[str, Any]:
        return asdict(self)


def job_from_message(fields: Mapping[str, Any]) -> GpuJob:
    """The job that `to_message` described."""
    return GpuJob(
        tuple(Launch(**launch) for launch in fields["launches"]),
        fields["early"],
        tuple(parameter_from_message(p) for p in fields["parameters"]),
        tuple(fields["table"]),
        tuple(Check(**check) for check in fields["checks"]),
    )
