"""A square tile of registers transposed in place, by a network of shuffles.

Within 128 bits, elements of two rows are interleaved, then pairs of elements, and so on; then
blocks of 128 bits change places.  Processors have one fast instruction for each of these, for
registers of any width:

    a0 a1 a2 a3 | a4 a5 a6 a7      interleaved      a0 b0 a1 b1 | a4 b4 a5 b5
    b0 b1 b2 b3 | b4 b5 b6 b7          ->           a2 b2 a3 b3 | a6 b6 a7 b7
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
    group = min(n, max(1, 16 // tile.dtype.itemsize))
    distance = 1
    while distance < n:
        if distance < group:
            picks = _interleaved(n, group, distance)
        else:
            picks = _every_second(n, group)
        for row in range(n):
            if not row & distance:
                pair = rows[row], rows[row + distance]
                rows[row], rows[row + distance] = (_picked(f, *pair, picks[k]) for k in (0, 1))
        distance *= 2
    # Each round of interleaving took a bit of the row's number from the other end.
    rows = [rows[_reversed(row, group)] for row in range(n)]
    for made, slot in zip(rows, slots):
        f.line(f"store {made}, ptr {slot}")


def _load(f: FunctionWriter, tile: Buffer, slot: str) -> Operand:
    kind = Operand("", tile.dtype, tile.shape[1]).type
    return f.emit(f"load {kind}, ptr {slot}", tile.dtype, tile.shape[1])


def _interleaved(n: int, group: int, unit: int) -> tuple[list[int], list[int]]:
    """Units of two rows in turn: those of the lower half of each group, and of the upper."""
    halves: tuple[list[int], list[int]] = ([], [])
    for start in range(0, n, unit):
        upper = start % group >= group // 2
        for row in (0, n):
            halves[upper].extend(range(row + start, row + start + unit))
    return halves


def _every_second(n: int, group: int) -> tuple[list[int], list[int]]:
    """The groups with even numbers of one row and of the other, and those with odd ones."""
    halves: tuple[list[int], list[int]] = ([], [])
    for start in range(0, 2 * n, group):
        halves[start // group % 2].extend(range(start, start + group))
    return halves


def _reversed(row: int, group: int) -> int:
    """The row's number with the bits below `group` in opposite order."""
    low, turned = row % group, 0
    for _ in range(group.bit_length() - 1):
        turned, low = turned << 1 | low & 1, low >> 1
    return row - row % group + turned


def _picked(f: FunctionWriter, a: Operand, b: Operand, picks: list[int]) -> Operand:
    mask = ", ".join(f"i32 {k}" for k in picks)
    return f.emit(f"shufflevector {a}, {b}, <{a.lanes} x i32> <{mask}>", a.dtype, a.lanes)
