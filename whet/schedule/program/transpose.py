"""Copies that turn what they copy: read along one axis, written along another.

    panel[k, c] = b[c, k]      b contiguous along k, the panel along c

        tile[i, :] = b[c0 + i, k0 ...]         (vectors along k)
        transpose tile
        panel[k0 + i, c0 ...] = tile[i, :]     (vectors along c)

Lanes along c would pick b apart, element by element, from as many lines and often pages.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.ir.affine import affine, free_symbols, substitute
from whet.ir.expr import Axis, Expr, Read, Var
from whet.ir.program import Allocate, Buffer, Stmt, Store, Transpose
from whet.ir.tensor import subexpressions
from whet.schedule.program.loops import loop, start_of


def transposed_axis(value: Expr, column: Axis, depth: Sequence[Axis]) -> Axis | None:
    """The axis of the depth along which everything in the value is contiguous, if the columns
    are not."""
    reads = [e for e in subexpressions(value) if isinstance(e, Read) and column in free_symbols(e)]
    if not reads or any(len(e.indices) != 1 for e in reads):
        return None
    forms = [affine(e.indices[0]) for e in reads]
    if any(form.coefficient(column) == 1 for form in forms):
        return None
    return next((k for k in depth if all(form.coefficient(k) == 1 for form in forms)), None)


def tile_size(columns: int, depth: int, lanes: int) -> int:
    """Rows of a square tile that fits both axes; 1 when none is worth it."""
    size = lanes
    while size > 1 and (columns % size or depth < size):
        size //= 2
    return size if size >= 4 else 1


def transposed_copy(
    store: Buffer,
    at: Sequence[Expr],
    value: Expr,
    column: tuple[Axis, Expr],
    depth: tuple[Axis, Expr],
    lanes: int,
) -> Stmt | None:
    """store[at] = value for all columns and depths, or None where tiles do not fit.

    Both axes come with what stands for them in `at` and `value`.
    """
    size = tile_size(column[0].extent, depth[0].extent, lanes)
    return None if size == 1 else transposed_tiles(store, at, value, column, depth, size)


def transposed_tiles(
    store: Buffer,
    at: Sequence[Expr],
    value: Expr,
    column: tuple[Axis, Expr],
    depth: tuple[Axis, Expr],
    size: int,
) -> Stmt:
    """The same with square tiles of a size that neither axis is shorter than."""
    i, lane, ko, co = Var("ti"), Var("lane"), Var("ko"), Var("co")
    first_k = start_of(ko, size, depth[0].extent)
    first_c = start_of(co, size, column[0].extent)
    reading: dict[Expr, Expr] = {depth[1]: first_k + lane, column[1]: first_c + i}
    writing: dict[Expr, Expr] = {depth[1]: first_k + i, column[1]: first_c + lane}
    tile = Buffer("turned", (size, size), store.dtype, scope="register")
    to = tuple(substitute(x, writing) for x in at)
    body = Allocate(tile, (
        _rows(i, lane, size, Store(tile, (i, lane), substitute(value, reading))),
        Transpose(tile),
        _rows(i, lane, size, Store(store, to, tile[i, lane])),
    ))  # fmt: skip
    # Along k innermost: lines that lie behind each other are read one after the other.
    down = loop(ko, -(-depth[0].extent // size), body)
    return loop(co, -(-column[0].extent // size), down)


def _rows(i: Var, lane: Var, size: int, store: Store) -> Stmt:
    return loop(i, size, loop(lane, size, store, kind="vector"), kind="unroll")
