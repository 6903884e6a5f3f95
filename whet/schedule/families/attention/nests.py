"""The loop nests of attention schedules: candidates are few, so each one is lowered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whet.core.cpu import CpuTarget
from whet.schedule.families.attention.lower import lower_attention
from whet.schedule.families.attention.match import Attention, AttentionTiling
from whet.schedule.space.sketch import Population
from whet.schedule.space.statements import Statement, program_nests


def attention_nests(
    f: Attention, target: CpuTarget, threads: int, holes: Population
) -> tuple[Statement, ...]:
    """The statements of all candidates."""
    found: list[Statement] = []
    for row, values in enumerate(zip(*holes.values())):
        tiling = AttentionTiling(**dict(zip(holes, map(int, values))))
        program = lower_attention(f, tiling, "attention").program
        found += [replace(s, rows=np.array([row])) for s in program_nests(program)]
    return tuple(found)
