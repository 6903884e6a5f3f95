"""Tasks and programs in the words of TVM's auto-scheduler."""

from __future__ import annotations

from collections.abc import Callable

from tests.schedule.small_tasks import make_task
from whet.core.dtypes import f32
from whet.ir.expr import Axis, Var, call
from whet.ir.program import Allocate, Buffer, If, Program, Store, Transpose
from whet.ir.tensor import Compute, placeholder, reduce_axis, sum_
from whet.schedule.program.loops import loop
from whet.schedule.program.primitives import (
    decompose,
    inline,
    naive_program,
    parallel,
    tile,
    unroll,
    vectorize,
)
from whet.schedule.program.show import show_program, show_task
from whet.tasks.task import Task


def axes(names: str, *extents: int) -> tuple[Axis, ...]:
    return tuple(Axis(n, e) for n, e in zip(names.split(), extents, strict=True))


def convolution_bias_relu(channels: int, filters: int, size: int) -> Task:
    """A layer of ResNet with a kernel of one pixel; in TVM's log all inputs are `placeholder`."""
    x = placeholder((1, channels, size, size), f32, "placeholder")
    weight = placeholder((filters, channels, 1, 1), f32, "placeholder")
    bias = placeholder((1, filters, 1, 1), f32, "placeholder")
    rc, ry, rx = reduce_axis(channels, "rc"), reduce_axis(1, "ry"), reduce_axis(1, "rx")
    i = axes("i0 i1 i2 i3", 1, channels, size, size)
    pad = Compute("pad_temp", i, x[i])
    nn, ff, yy, xx = axes("nn ff yy xx", 1, filters, size, size)
    terms = pad[nn, rc, yy + ry, xx + rx] * weight[ff, rc, ry, rx]
    product = Compute("compute", (nn, ff, yy, xx), sum_(terms, rc, ry, rx))
    a = axes("ax0 ax1 ax2 ax3", 1, filters, size, size)
    shifted = Compute("T_add", a, product[a] + bias[a[0], a[1], 0, 0])
    return make_task(Compute("T_relu", a, call("max", shifted[a], 0.0)))


def test_a_task_is_its_dag() -> None:
    assert show_task(convolution_bias_relu(2048, 512, 7)).splitlines() == [
        "placeholder = PLACEHOLDER [1, 2048, 7, 7]",
        "pad_temp(i0, i1, i2, i3) = placeholder[i0, i1, i2, i3]",
        "placeholder = PLACEHOLDER [512, 2048, 1, 1]",
        "compute(nn, ff, yy, xx) += "
        "(pad_temp[nn, rc, (yy + ry), (xx + rx)]*placeholder[ff, rc, ry, rx])",
        "placeholder = PLACEHOLDER [1, 512, 1, 1]",
        "T_add(ax0, ax1, ax2, ax3) = (compute[ax0, ax1, ax2, ax3] + placeholder[ax0, ax1, 0, 0])",
        "T_relu(ax0, ax1, ax2, ax3) = max(T_add[ax0, ax1, ax2, ax3], 0f)",
    ]


def test_a_program_is_its_loops(golden: Callable[[str], None]) -> None:
    program = naive_program(convolution_bias_relu(32, 16, 8))
    for stage in ("pad_temp", "T_add"):
        program = inline(program, stage)
    program = decompose(program, ("ff", "yy", "xx"))
    program = tile(
        program, ("ff_1", "yy_1", "xx_1", "rc"), ((4,), (4,), (8,), (4,)),
        ("ff_1.0", "yy_1.0", "xx_1.0", "rc.0", "rc.1", "ff_1.1", "yy_1.1", "xx_1.1"),
    )  # fmt: skip
    program = unroll(vectorize(parallel(program, "ff_1.0"), "xx_1.1"), "yy_1.1")
    golden(show_program(program))


def test_what_is_no_loop() -> None:
    """Scratch memory has no line of its own, conditions and transposed tiles have."""
    x, y = Buffer("x", (4, 4), f32), Buffer("y", (4, 4), f32)
    tile_, i, j = Buffer("tile", (4, 4), f32, scope="register"), Var("i"), Var("j")
    body = If(i < 3, (Store(tile_, (i, j), x[i, j]),), (Store(y, (i, j), x[j, i]),))
    inner = Allocate(tile_, (loop(j, 4, body, kind="vector"), Transpose(tile_)))
    program = Program("p", (x,), (y,), (loop(i, 4, inner, kind="unroll"),))
    assert show_program(program).splitlines() == [
        "Placeholder: x",
        "unroll i (0,4)",
        "  vectorize j (0,4)",
        "    if i < 3",
        "      tile = ...",
        "    else",
        "      y = ...",
        "  transpose tile",
    ]
