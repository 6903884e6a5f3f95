"""Targets and this machine: does code for a target run here, and is the target this machine?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from whet.core.cpu import PRESETS, CpuTarget, detect, held_back
from whet.core.errors import UsageError, fail
from whet.core.target import Target


def missing_here(target: CpuTarget) -> tuple[str, ...]:
    """Features that code for the target needs and this machine lacks; none if it runs here."""
    try:
        return target.missing_on(detect())
    except UsageError:  # a processor that whet does not know
        return (target.architecture,)


def refuse_foreign(target: Target, missing: Sequence[str]) -> NoReturn:
    fail("WH1305", f"code for {target.name} cannot run on this machine, which has no "
         f"{', '.join(missing)}", hint="run it elsewhere, or build it for the target cpu",
         kind=UsageError)  # fmt: skip


def is_this_machine(target: CpuTarget) -> bool:
    """Whether the target is this machine, as it is or held back to a level."""
    machine = detect()
    levels = [level for level in PRESETS.values() if not level.missing_on(machine)]
    return target.key in {machine.key, *(held_back(machine, level).key for level in levels)}
