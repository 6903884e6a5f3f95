"""Exchanges of registers between the lanes of a warp."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whet.core.errors import check
from whet.core.types import Array
from whet.ir.lockstep.storage import Storage, Value
from whet.ir.threads import WARP, Exchange


def exchange(
    stmt: Exchange, target: Storage, at: Sequence[Value], source: Storage,
    start: Sequence[Value], ids: Array,
) -> None:  # fmt: skip
    """Gives every lane what another one has."""
    registers = target.buffer.scope == source.buffer.scope == "register"
    check(registers, "WH1308", f"{stmt.text}: lanes read registers of each other alone")
    check(target.buffer.dtype == source.buffer.dtype, "WH1308",
          f"{stmt.text}: the element types differ")  # fmt: skip
    check(0 < stmt.mask < WARP, "WH1308", f"{stmt.text}: there is no such lane")
    source.team.require_together("warp", ids, lambda: stmt.text)
    # All lanes of every warp are here, in order: a partner is as far away in the array.
    partners = np.arange(len(ids)) ^ stmt.mask
    target.write(at, ids, source.read(start, ids)[partners])
