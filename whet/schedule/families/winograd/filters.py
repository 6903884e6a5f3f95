"""The transformed weights of a Winograd schedule, made when the kernel is built."""

from __future__ import annotations

from collections.abc import Sequence

from whet.core.dtypes import f64
from whet.ir.affine import substitute
from whet.ir.expr import Axis, Expr, as_expr, cast, const, select
from whet.ir.tensor import Compute
from whet.schedule.families.winograd.match import Winograd
from whet.schedule.program.loops import start_of


def pack_filters(w: Winograd, m: int, width: int) -> Compute:
    """The transformed weights as [point per pair..., panel, reduced..., column in the panel].

    One kernel axis after the other, in double precision: G g first, then (G g) G^T.
    """
    reduced = (*w.moving, *w.depth)
    per_group = -(-w.columns // width)
    panel, j = Axis("panel", w.groups * per_group), Axis("j", width)
    inner = (panel, *(Axis(k.name, k.extent) for k in reduced), j)
    column = start_of(panel % per_group if w.group else panel, width, w.columns) + j
    env: dict[Expr, Expr] = {w.vector: column, **dict(zip(reduced, inner[1:-1]))}
    env.update((g, panel // per_group) for g in w.group)
    kernels = [p.kernel for p in w.pairs]
    taps = tuple(Axis(k.name, k.extent) for k in kernels)
    points: tuple[Axis, ...] = ()
    stage: Compute | None = None
    for n, kernel in enumerate(kernels):
        table = w.tables(m)[n].filter
        point = Axis(f"xi{n}", len(table))
        later: dict[Expr, Expr] = dict(zip(kernels[n + 1 :], taps[n + 1 :]))
        total: Expr = const(0, f64)
        for tap in range(kernel.extent):
            if stage is None:
                value = cast(substitute(w.weight, {**env, kernel: as_expr(tap), **later}), f64)
            else:
                value = stage[(*points, *inner, as_expr(tap), *taps[n + 1 :])]
            total = total + _chosen(point, list(map(float, table[:, tap]))) * value
        points = (*points, point)
        stage = Compute(f"filters{n}", (*points, *inner, *taps[n + 1 :]), total)
    assert stage is not None
    return Compute("filters", stage.axes, cast(stage.body, w.reduce.dtype))


def _chosen(index: Expr, values: Sequence[float]) -> Expr:
    """The value with the given number."""
    result: Expr = const(values[-1], f64)
    for n, value in reversed(list(enumerate(values[:-1]))):
        result = select(index < n + 1, const(value, f64), result)
    return result
