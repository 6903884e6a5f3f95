"""Constants stored in the order in which a program reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields

from whet.core.errors import ScheduleError, check
from whet.ir.expr import Axis, Expr, call
from whet.ir.program import Buffer, Program
from whet.ir.tensor import Compute, Tensor
from whet.schedule.program.primitives.accesses import move_accesses
from whet.schedule.program.primitives.names import Names
from whet.schedule.program.primitives.replacing import tidy
from whet.schedule.program.primitives.tree import find_buffer


def rewrite_layout(
    program: Program,
    buffer: str,
    source: Tensor,
    order: Sequence[int],
    splits: Sequence[int] | None = None,
) -> tuple[Program, Buffer, Compute]:
    """The program reading a constant in another order, and that order as a tensor expression.

    rewrite (b, splits 1, 4, order 1, 0, 2):
        S(b[k, j])   ->   S(b_packed[j // 4, k, j % 4])
        b_packed[p, k, q] = b[k, min(p * 4 + q, extent - 1)]      (made when the kernel is built)

    `splits` gives a factor per axis (1: the axis stays whole); a split axis counts as two, the
    outer one first, and `order` says in which order all of them are stored.

    Requires: an input of the program that is a constant; factors of 1 or more; `order` names
    every axis once.
    Raises: WH2101, WH2102 (factors or order), WH2105 (not an input).
    """
    old = find_buffer(program, buffer)
    check(old in program.inputs, "WH2105", f"'{buffer}' is not an input", kind=ScheduleError)
    factors = tuple(splits) if splits is not None else (1,) * len(old.shape)
    check(len(factors) == len(old.shape) and min(factors, default=1) >= 1, "WH2102",
          f"{list(factors)} are not factors of the {len(old.shape)} axes of '{buffer}'",
          kind=ScheduleError)  # fmt: skip
    shape: list[int] = []
    for extent, factor in zip(old.shape, factors):
        shape += [extent] if factor == 1 else [-(-extent // factor), factor]
    check(sorted(order) == list(range(len(shape))), "WH2102",
          f"{list(order)} is no order of {len(shape)} axes", kind=ScheduleError)  # fmt: skip

    def split(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        parts: list[Expr] = []
        for index, factor in zip(indices, factors):
            parts += [index] if factor == 1 else [index // factor, index % factor]
        return tuple(parts[n] for n in order)

    packed = Buffer(
        Names(program).new(f"{buffer}_packed"), tuple(shape[n] for n in order), old.dtype
    )
    axes = tuple(Axis(f"p{n}", shape[n]) for n in range(len(shape)))
    at: list[Expr] = []
    rest = list(axes)
    for extent, factor in zip(old.shape, factors):
        if factor == 1:
            at.append(rest.pop(0))
        else:
            outer, inner = rest.pop(0), rest.pop(0)
            at.append(call("min", outer * factor + inner, extent - 1))
    expression = Compute(packed.name, tuple(axes[n] for n in order), source[tuple(at)])
    body = move_accesses(program.body, old, packed, split)
    inputs = tuple(packed if b is old else b for b in program.inputs)
    return tidy(with_fields(program, body=body, inputs=inputs)), packed, expression
