"""Addresses that instructions take: a start in a register, and a number.

    ring + step * 64 + i * 8  ->  start(address(ring) + step * 128) + i * 16

What differs between the rounds of an unrolled loop is a number inside the access, if it is added to
one sum, and in shared memory to one of 32 bits.  Not every release of the compiler finds that: some
gave each access of a round an address of its own, a quarter of all instructions of a product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from whet.ir.affine import Affine, combine
from whet.ir.expr import Expr
from whet.ir.program import Buffer

if TYPE_CHECKING:
    from whet.codegen.cuda.values import Values


def memory_address(values: Values, buffer: Buffer, at: Sequence[Expr]) -> str:
    """The address of an element in memory."""
    varying, number = _split(values, values.places.address(buffer, at))
    start = plus(values.places.bases[buffer], varying)
    return plus(f"{values.lines.call('start_of')}({start})", number)


def shared_address(values: Values, buffer: Buffer, at: Sequence[Expr], behind: str = "0") -> str:
    """The address of an element in shared memory, or so many bytes behind it."""
    return plus(*_shared_start(values, buffer, at, behind))


def address_elsewhere(values: Values, buffer: Buffer, at: Sequence[Expr]) -> str:
    """The address of an element in another block's shared memory."""
    start, number = _shared_start(values, buffer, at, "0")
    return plus(f"{values.lines.call('in_rank')}({start}, {values.text_of(at[0])})", number)


def _shared_start(
    values: Values, buffer: Buffer, at: Sequence[Expr], behind: str
) -> tuple[str, str]:
    in_bytes = combine([(values.places.address(buffer, at), buffer.dtype.itemsize)])
    varying, number = _split(values, in_bytes)
    base = f"{values.lines.call('shared_address')}({values.places.bases[buffer]})"
    return f"{values.lines.call('start')}({plus(base, varying, behind)})", number


def _split(values: Values, form: Affine) -> tuple[str, str]:
    varying, number = values.indices.split(form)
    return values.text_of(varying.expr()), values.text_of(number.expr())


def plus(*parts: str) -> str:
    """The sum of what is not zero."""
    return " + ".join(p for p in parts if p != "0")
