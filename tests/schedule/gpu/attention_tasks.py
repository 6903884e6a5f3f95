"""Tasks of two products with stages along rows between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.schedule.small_tasks import make_task
from whet.core.dtypes import DType, f32
from whet.core.types import Shape
from whet.ir.expr import Axis, Expr, call, cast, const, select
from whet.ir.program import Buffer
from whet.ir.tensor import Compute, Placeholder, compute, max_, placeholder, reduce_axis, sum_
from whet.tasks.task import Task

Mask = Literal["none", "added", "causal", "of keys"]
Layout = Literal["heads", "tokens", "turned keys", "turned values"]


@dataclass(frozen=True)
class Attention:
    """softmax(scale * q k + mask) v, for every head, and perhaps something after it.

    `layout` says how factors lie in memory: head by head, or all heads of a token together, as
    parts of one array; or with keys, or values, along their length.
    """

    heads: int
    rows: int
    keys: int
    depth: int
    width: int
    dtype: DType = f32
    scale: float = 1.0
    mask: Mask = "none"
    layout: Layout = "heads"
    epilogue: bool = False
    shared_keys: bool = False
    """Whether all heads have the same keys and values."""
    constant: bool = False
    """Whether keys and values are known when the kernel is built."""

    def task(self, power: Callable[[Expr], Expr] = lambda x: call("exp", x)) -> Task:
        """The task; or another, with something else in place of the exponential."""
        h, dtype = self.heads, self.dtype
        q = placeholder((h, self.rows, self.depth), dtype, "q")
        k = placeholder((h, self.keys, self.depth), dtype, "k")
        v = placeholder((h, self.keys, self.width), dtype, "v")
        bias = placeholder((self.rows, self.keys), f32, "bias")
        known = placeholder((h, self.keys), f32, "known")
        d, m = reduce_axis(self.depth, "d"), reduce_axis(self.keys, "m")
        n, c = reduce_axis(self.keys, "n"), reduce_axis(self.keys, "c")

        def score(i: Axis, row: Axis, j: Axis) -> Expr:
            head = const(0, i.dtype) if self.shared_keys else i
            product = cast(q[i, row, d], f32) * cast(k[head, j, d], f32)
            total = sum_(product, d) * self.scale
            if self.mask == "added":
                total = total + bias[row, j]
            if self.mask == "of keys":
                total = total + known[i, j]
            if self.mask == "causal":
                total = select(j <= row, total, const(-1e9, f32))
            return cast(total, dtype)

        def weight(i: Expr, row: Expr, j: Expr) -> Expr:
            return cast(e[i, row, j] * (const(1.0, f32) / total[i, row, 0]), dtype)

        def result(i: Axis, row: Axis, j: Axis) -> Expr:
            head = const(0, i.dtype) if self.shared_keys else i
            found = sum_(cast(weight(i, row, c), f32) * cast(v[head, c, j], f32), c)
            if self.epilogue:
                found = call("max", found, 0.0) + cast(residual[i, row, j], f32)
            return cast(found, dtype)

        s = compute((h, self.rows, self.keys), score, "s")
        shape = (h, self.rows, 1)
        top = compute(shape, lambda i, row, _: max_(cast(s[i, row, m], f32), m), "top")
        e = compute(s.shape, lambda i, row, j: power(cast(s[i, row, j], f32) - top[i, row, 0]), "e")
        total = compute(shape, lambda i, row, _: sum_(e[i, row, n], n), "total")
        residual = placeholder((h, self.rows, self.width), dtype, "residual")
        y = compute((h, self.rows, self.width), result, "y")
        made = make_task(y, constants=[k, v] if self.constant else [])
        return self._placed(made, (q, k, v), y)

    def _placed(self, task: Task, factors: tuple[Placeholder, ...], y: Compute) -> Task:
        q, k, v = factors
        buffers = dict(task.buffers)
        if self.layout == "tokens":
            together = self.heads * (2 * self.depth + self.width)
            first = 0
            for t, size in ((q, self.depth), (k, self.depth), (v, self.width)):
                buffers[t] = Buffer(t.name, t.shape, t.dtype, (size, together, 1), first)
                first += self.heads * size
            buffers[y] = Buffer(y.name, y.shape, y.dtype, (self.width, self.heads * self.width, 1))
        if self.layout == "turned keys":
            buffers[k] = turned(k)
        if self.layout == "turned values":
            buffers[v] = turned(v)
        return Task(task.outputs, buffers, task.constants, task.borders)


def turned(t: Placeholder) -> Buffer:
    """Memory in which the last two axes have changed places."""
    heads, rows, columns = t.shape
    strides: Shape = (rows * columns, 1, rows)
    return Buffer(t.name, (heads, rows, columns), t.dtype, strides)
