"""Zero borders: the loop program that writes them."""

from __future__ import annotations

import math

from whet.ir.program import Buffer, Program
from whet.schedule.program.zeros import zeros_around
from whet.tasks.borders import Geometry


def clearing_program(g: Geometry) -> Program:
    """The program that writes the zeros around a value and leaves the value alone."""
    memory = Buffer("memory", (math.prod(map(sum, g.boxes)),), g.dtype)
    return Program("clear", (), (memory,), zeros_around(memory, g.boxes))
