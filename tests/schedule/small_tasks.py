"""Small tasks of every structure, and kernels of them run by definition and natively."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tests.build.guard_pages import GuardedMemory
from tests.schedule.windows import native
from whet.core.cpu import CpuTarget
from whet.core.dtypes import DType, f32, i64
from whet.core.types import Array
from whet.ir.evaluate import evaluate
from whet.ir.expr import Axis, Expr, call, const
from whet.ir.interpreter import run
from whet.ir.program import Buffer, Program
from whet.ir.tensor import (
    Compute,
    Placeholder,
    Tensor,
    compute,
    guarded_read,
    max_,
    placeholder,
    reduce,
    reduce_axis,
    stages,
    sum_,
)
from whet.schedule.program.kernel import Kernel, prepare_constant
from whet.tasks.task import Task


def make_task(*outputs: Compute, constants: Sequence[Tensor] = ()) -> Task:
    """The task of the outputs, everything row-major."""
    inputs = [t for t in stages(outputs) if isinstance(t, Placeholder)]
    buffers: dict[Tensor, Buffer] = {
        t: Buffer(t.name, t.shape, t.dtype) for t in (*inputs, *outputs)
    }
    return Task(outputs, buffers, frozenset(constants), {})


def matmul(m: int = 6, n: int = 8, k: int = 5) -> Task:
    a, b, r = placeholder((m, k), f32, "a"), placeholder((k, n), f32, "b"), reduce_axis(k, "k")
    y = compute((m, n), lambda i, j: sum_(a[i, r] * b[r, j], r), "y")
    return make_task(y, constants=[b])


def matmul_relu(m: int = 6, n: int = 8, k: int = 5) -> Task:
    a, b, r = placeholder((m, k), f32, "a"), placeholder((k, n), f32, "b"), reduce_axis(k, "k")
    y = compute((m, n), lambda i, j: call("max", sum_(a[i, r] * b[r, j], r), 0.0), "y")
    return make_task(y, constants=[b])


def divided(m: int, sizes: Sequence[int], k: int, *, constant: bool = True) -> Task:
    """A product whose columns become several results: every other one after a bias and relu."""
    n = sum(sizes)
    a, b, r = placeholder((m, k), f32, "a"), placeholder((k, n), f32, "b"), reduce_axis(k, "k")
    whole = compute((m, n), lambda i, j: sum_(a[i, r] * b[r, j], r), "s")
    made = []
    for number, size in enumerate(sizes):
        start, bias = sum(sizes[:number]), placeholder((size,), f32, f"p{number}")
        if number % 2:
            body = lambda i, j, start=start: whole[i, j + start]
        else:
            body = lambda i, j, start=start, bias=bias: call(
                "max", whole[i, j + start] + bias[j], 0.0
            )
        made.append(compute((m, size), body, f"y{number}"))
    return make_task(*made, constants=[b] if constant else [])


def folded(m: int, n: int, k: int, count: int = 2) -> Task:
    """A product of which every result takes several columns: sigmoid(first) * second - third ..."""
    a, b = placeholder((m, k), f32, "a"), placeholder((k, count * n), f32, "b")
    r, p = reduce_axis(k, "k"), placeholder((n,), f32, "p")
    whole = compute((m, count * n), lambda i, j: sum_(a[i, r] * b[r, j], r), "s")

    def body(i: Axis, j: Axis) -> Expr:
        total = call("sigmoid", whole[i, j] + p[j]) * whole[i, j + n]
        for place in range(2, count):
            total = total - whole[i, j + place * n]
        return total

    return make_task(compute((m, n), body, "y"), constants=[b])


def chain(m: int = 5, n: int = 7, _: int = 0) -> Task:
    """Three stages without a reduction."""
    x = placeholder((m, n), f32, "x")
    t = compute((m, n), lambda i, j: x[i, j] * 2.0, "t")
    u = compute((m, n), lambda i, j: call("exp", t[i, j]), "u")
    y = compute((m, n), lambda i, j: u[i, j] + t[i, n - 1 - j], "y")
    return make_task(y)


def convolution(h: int = 7, c: int = 3, taps: int = 3) -> Task:
    """A padded image and a correlation along its rows."""
    x, w = placeholder((h, c), f32, "x"), placeholder((taps, c, 4), f32, "w")
    q, s = reduce_axis(taps, "q"), reduce_axis(c, "s")
    padded = compute((h + taps - 1, c), lambda i, j: guarded_read(x, (i - taps // 2, j), 0), "p")
    y = compute((h, 4), lambda i, j: sum_(padded[i + q, s] * w[q, s, j], q, s), "y")
    return make_task(y, constants=[w])


def softmax(m: int = 4, n: int = 9, _: int = 0) -> Task:
    x = placeholder((m, n), f32, "x")
    a, b = reduce_axis(n, "k"), reduce_axis(n, "k")
    top = compute((m, 1), lambda i, j: max_(x[i, a], a), "top")
    e = compute((m, n), lambda i, j: call("exp", x[i, j] - top[i, 0]), "e")
    total = compute((m, 1), lambda i, j: sum_(e[i, b], b), "total")
    y = compute((m, n), lambda i, j: e[i, j] / total[i, 0], "y")
    return make_task(y)


def two_outputs(m: int = 4, n: int = 6, _: int = 0) -> Task:
    x = placeholder((m, n), f32, "x")
    k = reduce_axis(n, "k")
    s = compute((m,), lambda i: sum_(x[i, k], k), "s")
    y = compute((m, n), lambda i, j: x[i, j] - s[i] * const(0.5, f32), "y")
    return make_task(s, y)


def argmax(m: int = 4, n: int = 9, _: int = 0) -> Task:
    x, k = placeholder((m, n), f32, "x"), reduce_axis(n, "k")
    return make_task(compute((m,), lambda i: reduce("argmax", x[i, k], k), "y"))


def gather(m: int = 5, n: int = 4, rows: int = 6) -> Task:
    x, at = placeholder((rows, n), f32, "x"), placeholder((m,), i64, "at")
    return make_task(compute((m, n), lambda i, j: x[at[i], j] + 1.0, "y"))


def largest(
    image: Sequence[int],
    kernel: tuple[int, int],
    stride: int,
    pad: tuple[int, int],
    dtype: DType = f32,
    outside: float = float("-inf"),
    *,
    channels: int,
) -> Task:
    """The largest element of every window of an image, with steps of 3 down and others across.

    `channels` is the number of the axis along which no window slides.
    """
    x = placeholder(image, dtype, "x")
    p, q = reduce_axis(kernel[0], "p"), reduce_axis(kernel[1], "q")
    down, across = (n for n in range(3) if n != channels)
    shape = list(image)
    shape[down] = (image[down] + pad[0] - kernel[0]) // 3 + 1
    shape[across] = (image[across] + pad[1] - kernel[1]) // stride + 1

    def value(*at: Axis) -> Expr:
        index: list[Expr] = list(at)
        index[down] = 3 * at[down] + p - pad[0]
        index[across] = stride * at[across] + q - pad[1]
        return max_(guarded_read(x, index, outside), p, q)

    return make_task(compute(shape, value, "y"))


TASKS: dict[str, Callable[..., Task]] = {
    f.__name__: f
    for f in (matmul, matmul_relu, chain, convolution, softmax, two_outputs, argmax, gather)
}


def sample(dtype: DType, shape: Sequence[int], rng: np.random.Generator) -> Array:
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(0, 2, shape).astype(dtype.numpy)


def arrays_for(task: Task, seed: int = 0) -> dict[Tensor, Array]:
    rng = np.random.default_rng(seed)
    return {t: sample(t.dtype, t.shape, rng) for t in task.inputs}


def expected(task: Task, arrays: Mapping[Tensor, Array]) -> tuple[Array, ...]:
    return evaluate(task.outputs, dict(arrays))


def argument(tensor: Tensor, task: Task, arrays: Mapping[Tensor, Array]) -> Array:
    """The array behind a parameter of a kernel."""
    if tensor in arrays:
        return arrays[tensor]
    assert isinstance(tensor, Compute)
    return prepare_constant(tensor, task, {t: arrays[t] for t in task.constants})


def check_program(program: Program, task: Task, arrays: Mapping[Tensor, Array]) -> None:
    """The program, run by definition, gives what the task means."""
    found = run(program, [arrays[t] for t in task.inputs])
    for got, want in zip(found, expected(task, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=str(program))


def some_rows(holes: Mapping[str, Array], seed: int, count: int) -> list[dict[str, int]]:
    """Some candidates of a population, which must not be empty."""
    size = len(next(iter(holes.values())))
    assert size
    rows = np.random.default_rng(seed).integers(0, size, count)
    return [{n: int(column[row]) for n, column in holes.items()} for row in rows]


def check_kernel(kernel: Kernel, task: Task, arrays: Mapping[Tensor, Array]) -> None:
    """The kernel of one output, run by definition over flat memory, gives what the task means."""
    flat = {t: arrays[t].reshape(-1) for t in task.inputs}
    (found,) = run(kernel.program, [flat[a] for a in kernel.arguments])
    (want,) = expected(task, arrays)
    np.testing.assert_allclose(found, want.reshape(-1), rtol=1e-4, atol=1e-5)


def check_native(
    kernel: Kernel, task: Task, arrays: Mapping[Tensor, Array], t: CpuTarget, *, at_end: bool = True
) -> None:
    """The kernel, run natively between forbidden pages, gives what the task means."""
    memory = GuardedMemory(at_end=at_end)
    table = [memory.copy(argument(a, task, arrays), a.type) for a in kernel.arguments]
    results = [memory.empty(o.type) for o in task.outputs]
    table += [*results, *(memory.empty(b.type) for b in kernel.program.workspace)]
    addresses = np.array([a.ctypes.data for a in table], np.uint64)
    library = native(kernel, t)
    library.function(kernel.program.name, ctypes.c_void_p)(addresses.ctypes.data)
    for got, want in zip(results, expected(task, arrays), strict=True):
        shown = np.asarray(got).reshape(want.shape)
        np.testing.assert_allclose(shown, want, rtol=1e-4, atol=1e-5, err_msg=str(kernel.program))
