"""Matrices that a warp holds, and the statements that multiply them.

Factors in f32 are multiplied as tf32: tensor cores do not look at the last bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from whet.core.dtypes import f32
from whet.core.errors import check, fail
from whet.core.types import Array
from whet.ir.lockstep.copies import address
from whet.ir.lockstep.memory import Shared
from whet.ir.lockstep.storage import Storage, Value
from whet.ir.lockstep.team import SAME_WARP, Team
from whet.ir.program import Buffer
from whet.ir.threads import WARP, MatrixLoad, MatrixMultiplyAdd, Role, lane_elements

ROW_BYTES = 16
"""What a lane loads of a matrix at once, from an address that it divides."""
_TF32 = np.uint32(0xFFFFE000)


class Fragments(Storage):
    """Matrices of every warp: cells [matrix, warp, element]."""

    def __init__(self, buffer: Buffer, team: Team, role: Role) -> None:
        super().__init__(buffer, team)
        *numbers, self.rows, self.columns = buffer.shape
        self.elements = self.rows * self.columns
        shape = (math.prod(numbers), team.size // WARP, self.elements)
        self.data: Array = np.zeros(shape, buffer.dtype.numpy)
        self.written: Array = np.zeros(shape, bool)
        self.role = role
        self.holder: Array = np.empty(self.elements, np.int64)
        """The lane that holds an element."""
        held = lane_elements(role, self.rows, self.columns)
        self.holder[held] = np.arange(WARP)[:, None]

    def _cells(self, at: Sequence[Value], ids: Array) -> tuple[Value, ...]:
        position = self.position(at, ids)
        element = position % self.elements
        other = self.holder[element] != self.team.lane[ids]
        if other.any():
            which, thread = self.team.offender(ids, other)
            place = self.place(np.broadcast_to(position, ids.shape)[which])
            fail("WH1308", f"{place} is accessed by {thread}, which does not hold it")
        number = self.agreed(np.asarray(position) // self.elements, ids)
        return number, self.team.warp[ids], element

    def read(self, at: Sequence[Value], ids: Array) -> Value:
        cells = self._cells(at, ids)
        self.require_written(self.written[cells], cells[0] * self.elements + cells[2], ids)
        return self.data[cells]

    def write(self, at: Sequence[Value], ids: Array, value: Value) -> None:
        cells = self._cells(at, ids)
        self.data[cells] = value
        self.written[cells] = True

    def matrix(self, number: Sequence[Value], ids: Array) -> tuple[int, Array]:
        """The cells of one matrix of all warps that the threads belong to."""
        zero = np.int64(0)
        position = self.position((*number, zero, zero), ids)
        return self.agreed(np.asarray(position) // self.elements, ids), self.team.warp[ids[::WARP]]

    def values(self, cells: tuple[int, Array], ids: Array) -> Array:
        """A matrix of every warp: [warps, rows, columns]."""
        written = self.written[cells].all(-1)
        if not written.all():
            first = np.flatnonzero(~self.written[cells][~written][0])[0]
            self.require_written(written, cells[0] * self.elements + first, ids[::WARP])
        return self.data[cells].reshape(-1, self.rows, self.columns)


def load(
    stmt: MatrixLoad, fragments: Fragments, number: Sequence[Value],
    source: Storage, at: Sequence[Value], ids: Array,
) -> None:  # fmt: skip
    """Loads a matrix into every warp."""
    team = fragments.team
    team.require_together("warp", ids, lambda: stmt.text)
    if not isinstance(source, Shared):
        fail("WH1308", f"{stmt.text}: matrices are loaded from shared memory")
    check(source.buffer.dtype == fragments.buffer.dtype, "WH1308",
          f"{stmt.text}: the element types differ")  # fmt: skip
    at = [_of_warps(i, ids, team, lambda: stmt.text) for i in at]
    number = [_of_warps(i, ids, team, lambda: stmt.text) for i in number]
    cells = fragments.matrix(number, ids)
    leaders = ids[::WARP]
    at = [i[::WARP] if i.ndim else i for i in at]
    source.require_own(at, leaders, "loaded")
    _require_aligned_rows(stmt, source, at, leaders)
    *outer, row, column = at
    high, wide = fragments.rows, fragments.columns
    steps = source.steps[-2:]
    if stmt.turned:
        high, wide, steps = wide, high, steps[::-1]
    source.position((*outer, row + (high - 1), column + (wide - 1)), leaders)
    within = np.add.outer(
        np.arange(fragments.rows) * steps[0], np.arange(fragments.columns) * steps[1]
    )
    taken = source.cells(at, leaders)[:, None] + within.reshape(-1)
    readers = np.repeat(leaders, fragments.elements)
    values = source.read_cells(taken.reshape(-1), readers, shared_by=SAME_WARP)
    fragments.data[cells] = values.reshape(taken.shape)
    fragments.written[cells] = True


def multiply_add(
    stmt: MatrixMultiplyAdd,
    matrices: Sequence[tuple[Fragments, Sequence[Value]]],
    ids: Array,
) -> None:
    """total += left @ right.T in every warp; `matrices` are the three with their numbers."""
    (total, _), (left, _), (right, _) = matrices
    total.team.require_together("warp", ids, lambda: stmt.text)
    fits = (
        total.buffer.dtype == f32
        and left.buffer.dtype == right.buffer.dtype
        and (total.rows, total.columns) == (left.rows, right.rows)
        and left.columns == right.columns
        and left.columns * left.buffer.dtype.itemsize == 2 * ROW_BYTES
    )
    check(fits, "WH1308", f"{stmt.text}: there is no product of such matrices")
    sums, *factors = (f.matrix(number, ids) for f, number in matrices)
    a, b = (_factor(f.values(cells, ids)) for f, cells in zip((left, right), factors, strict=True))
    # A library of products may add up a row in another order where it lies elsewhere in its matrix,
    # and tiles that overlap must give the same numbers twice.
    made = total.values(sums, ids) + np.einsum("...ik,...jk->...ij", a, b, dtype=np.float64)
    total.data[sums] = made.reshape(-1, total.elements)


def _factor(values: Array) -> Array:
    """A factor as tensor cores take it, in f32."""
    if values.dtype != np.float32:
        return values.astype(np.float32)
    return (values.view(np.uint32) & _TF32).view(np.float32)


def _of_warps(index: Value, ids: Array, team: Team, what: Callable[[], str]) -> Value:
    """An index that all lanes of a warp agree on."""
    if index.ndim:
        other = index != np.repeat(index[::WARP], WARP)
        if other.any():
            _, thread = team.offender(ids, other)
            fail("WH1308", f"{what()}: {thread} gives another index than its warp")
    return index


def _require_aligned_rows(
    stmt: MatrixLoad, source: Shared, at: Sequence[Value], ids: Array
) -> None:
    strides, size = source.buffer.element_strides, source.buffer.dtype.itemsize
    wrong = address(source, at) % ROW_BYTES != 0
    if strides[-1] != 1 or strides[-2] * size % ROW_BYTES or wrong.any():
        fail("WH1308", f"{stmt.text}: rows of '{source.buffer.name}' are not aligned to "
             f"{ROW_BYTES} bytes for {source.team.member(ids)}")  # fmt: skip
