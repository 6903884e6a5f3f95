"""Operands: factors over rows and depth, where they lie or packed when the kernel is built."""

from __future__ import annotations

from dataclasses import dataclass

from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, Read, all_of, call, elements, select
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, Tensor
from whet.schedule.families.gpu_contraction.match import GpuContraction, Span, Tiling
from whet.schedule.program.loops import split_index


@dataclass(frozen=True, eq=False)
class Operand:
    """A factor over the axes of its rows and of the depth; outer axes are those of the task."""

    value: Expr
    rows: tuple[Axis, ...]
    depth: tuple[Axis, ...]
    packed: tuple[Buffer, Tensor] | None = None
    """The parameter that it is read from and the expression that it holds, if that is constant."""

    @property
    def is_constant(self) -> bool:
        return self.packed is not None


def left_operand(form: GpuContraction, t: Tiling) -> Operand:
    """The first factor: rows of it are rows of the product."""
    rows = form.contraction.m_axes
    if not form.a_is_constant:
        return Operand(form.a, rows, form.k_axes)
    return _packed("packed_a", form, t, form.a, rows, form.rows(t), depth_last=True)


def right_operand(form: GpuContraction, t: Tiling) -> Operand:
    """The second factor: rows of it are columns of the product."""
    rows = (form.contraction.vector,)
    if not form.b_is_constant:
        return Operand(form.b, rows, form.k_axes)
    span, last = form.columns(t), form.leaf.is_matrix
    return _packed("packed_b", form, t, form.b, rows, span, depth_last=last)


def _packed(
    name: str, form: GpuContraction, t: Tiling, value: Expr, rows: tuple[Axis, ...], span: Span,
    *, depth_last: bool,
) -> Operand:  # fmt: skip
    """A constant factor as [outer..., rows, depth] or [outer..., depth, rows], with zeros behind
    both so that tiles are whole."""
    count = span.tiles * span.size if span.overruns else span.extent
    row = Axis("row", count)
    k = Axis("k", form.steps(t) * t.splits * t.bk)
    outer = tuple(Axis(f"p{n}", x.extent) for n, x in enumerate(form.contraction.outer))
    env: dict[Expr, Expr] = {
        **dict(zip(form.contraction.outer, outer)),
        **split_index(row, rows),
        **split_index(k, form.k_axes),
    }
    inside = []
    if k.extent > form.depth:
        inside.append(k < form.depth)
    if row.extent > elements(rows):
        inside.append(row < elements(rows))
    value = substitute(value, env)
    if form.leaf.rounds:
        value = call("tf32", value)
    if inside:
        value = select(all_of(inside), value, 0)
    last = (row, k) if depth_last else (k, row)
    tensor = Compute(name, (*outer, *last), value)
    store = Buffer(name, tensor.shape, tensor.dtype)
    read = Read(store, (*form.contraction.outer, *last))
    return Operand(read, (row,), (k,), (store, tensor))
