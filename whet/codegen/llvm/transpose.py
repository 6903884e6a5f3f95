"""A square tile of registers transposed in place, by a network of shuffles.

Halves of rows are exchanged between rows that lie n/2 apart, then quarters between rows n/4
apart, and so on: after log2(n) rounds every element is at its place.
"""

from __future__ import annotations

from whet.codegen.llvm.function import FunctionWriter
from whet.codegen.llvm.operand import Operand
from whet.codegen.llvm.storage import Storage
from whet.core.errors import check
from whet.ir.program import Buffer


def transpose_tile(f: FunctionWriter, storage: Storage, tile: Buffer) -> None:
    """Write the shuffles that transpose the tile."""
    n = tile.shape[0]
    check(tile.shape == (n, n) and n & (n - 1) == 0 and tile.scope == "register", "WH1301",
          f"a tile of {tile.type} cannot be transposed in registers")  # fmt: skip
    slots = [storage.register(tile, row * n, n) for row in range(n)]
    rows = [_load(f, tile, slot) for slot in slots]
    distance = n // 2
    while distance:
        for row in range(n):
            if not row & distance:
                a, b = rows[row], rows[row + distance]
                rows[row] = _exchange(f, a, b, distance, upper=False)
                rows[row + distance] = _exchange(f, a, b, distance, upper=True)
        distance //= 2
    for made, slot in zip(rows, slots):
        f.line(f"store {made}, ptr {slot}")


def _load(f: FunctionWriter, tile: Buffer, slot: str) -> Operand:
    kind = Operand("", tile.dtype, tile.shape[1]).type
    return f.emit(f"load {kind}, ptr {slot}", tile.dtype, tile.shape[1])


def _exchange(f: FunctionWriter, a: Operand, b: Operand, distance: int, *, upper: bool) -> Operand:
    """The lower row keeps its even blocks and takes b's; the upper one gets the odd blocks."""
    n = a.lanes
    if upper:
        picks = [n + k if k & distance else k + distance for k in range(n)]
    else:
        picks = [n + k - distance if k & distance else k for k in range(n)]
    mask = ", ".join(f"i32 {k}" for k in picks)
    return f.emit(f"shufflevector {a}, {b}, <{n} x i32> <{mask}>", a.dtype, n)
