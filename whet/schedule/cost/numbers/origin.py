"""Origins of numbers: what their annotations say besides the unit.

SPILL: Annotated[float, "bytes per byte", chosen("bench/winograd.py", "2026-11-15")] = 0.85
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ZEN_4 = "2 cores of AMD EPYC, Zen 4 with AVX-512"
ZEN_4_AVX2 = "2 cores of AMD EPYC, Zen 4, code for AVX2"
XEON = "16 virtual cores of Intel Xeon with AVX-512"
H200 = "NVIDIA H200"


@dataclass(frozen=True)
class Origin:
    """A run that gave the number, or what takes its place.

    measured   `command` gave it; `why` says what it showed
    chosen     no run of it was kept; `command` times kernels that the number decides about
    given      by definition
    """

    kind: Literal["measured", "chosen", "given"]
    command: str
    date: str
    machine: str
    why: str


def measured(command: str, date: str, showed: str, machine: str = ZEN_4) -> Origin:
    return Origin("measured", command, date, machine, showed)


def chosen(command: str, date: str, why: str = "no run was kept", machine: str = ZEN_4) -> Origin:
    return Origin("chosen", command, date, machine, why)


def given(why: str, date: str) -> Origin:
    return Origin("given", "", date, "any", why)
