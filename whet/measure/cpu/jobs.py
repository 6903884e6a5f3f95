"""Jobs for the process that runs kernels: a kernel's parameters as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from whet.measure.parameters import Parameter, parameter_from_message


@dataclass(frozen=True)
class KernelJob:
    """A kernel to run: `table` says which parameter each of its arguments is."""

    symbol: str
    threads: int
    exact: bool
    """Whether results must have the very bits of the expected ones."""
    parameters: tuple[Parameter, ...]
    table: tuple[int, ...]
    cache_bytes: int
    """The last-level cache of the machine: constants are read from copies beyond it."""

    @property
    def nbytes(self) -> int:
        return sum(p.nbytes for p in self.parameters)

    def to_message(self) -> dict[str, Any]:
        return asdict(self)


def job_from_message(fields: Mapping[str, Any]) -> KernelJob:
    """The job that `to_message` described."""
    parameters = tuple(parameter_from_message(p) for p in fields["parameters"])
    return KernelJob(**{**fields, "parameters": parameters, "table": tuple(fields["table"])})
