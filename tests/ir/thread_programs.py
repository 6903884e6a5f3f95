"""Small programs of threads, all of them right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whet.core.dtypes import DType, bool_, f32
from whet.core.types import Array
from whet.ir.expr import Expr, Scalar, Var, as_expr, cast, const
from whet.ir.program import Allocate, Block, Buffer, If, Loop, LoopKind, Program, Stmt, Store
from whet.ir.threads import (
    WARP,
    AwaitInputs,
    Barrier,
    Commit,
    Copy,
    Exchange,
    MatrixLoad,
    MatrixMultiplyAdd,
    Wait,
)

B, R, W, L = Var("b"), Var("r"), Var("w"), Var("l")
"""Cluster of the grid, rank in the cluster, warp of the block, lane of the warp."""
ALWAYS = const(True, bool_)


# ----------------------------------------------------------------------------------- statements
def indices(*given: Scalar) -> tuple[Expr, ...]:
    return tuple(as_expr(i) for i in given)


def store(buffer: Buffer, at: Sequence[Scalar], value: Expr) -> Store:
    return Store(buffer, indices(*at), value)


def loop(var: Var, extent: Scalar, *body: Stmt, kind: LoopKind = "serial") -> Loop:
    return Loop(var, as_expr(extent), body, kind)


def copy(
    target: Buffer, at: Sequence[Scalar], source: Buffer, start: Sequence[Scalar],
    elements: int, valid: Expr = ALWAYS, *, near: bool = False,
) -> Copy:  # fmt: skip
    return Copy(target, indices(*at), source, indices(*start), elements, valid, near)


def allocate(buffers: Sequence[Buffer], body: Block) -> Block:
    for buffer in reversed(buffers):
        body = (Allocate(buffer, body),)
    return body


def threads(
    body: Block, *, grid: int, warps: int, cluster: int | None = None,
    shared: Sequence[Buffer] = (), distributed: Sequence[Buffer] = (),
) -> Loop:  # fmt: skip
    """The loops around the code of a thread, over B, R, W and L."""
    lanes = loop(W, warps, loop(L, WARP, *body, kind="lane"), kind="warp")
    inner: Block = allocate(shared, (lanes,))
    if cluster is not None:
        inner = allocate(distributed, (loop(R, cluster, *inner, kind="cluster"),))
    return loop(B, grid, *inner, kind="grid")


# ------------------------------------------------------------------------------- right programs
def elementwise(n: int = 1000, warps: int = 2) -> Program:
    """y = 2 x + 1, with threads at the end that do nothing."""
    x, y = Buffer("x", (n,), f32), Buffer("y", (n,), f32)
    block = warps * WARP
    i = B * block + W * WARP + L
    body = (AwaitInputs(), If(i < n, (store(y, [i], x[i] * 2.0 + 1.0),)))
    return Program("elementwise", (x,), (y,), (threads(body, grid=-(-n // block), warps=warps),))


def transposed(tiles: int = 2) -> Program:
    """y = x.T by way of tiles in shared memory."""
    n = tiles * 32
    x, y = Buffer("x", (n, n), f32), Buffer("y", (n, n), f32)
    tile = Buffer("tile", (32, 32), f32, (33, 1), scope="shared")
    p = Var("p")
    row, column = B // tiles * 32, B % tiles * 32
    at = W * 16 + p
    body = (
        loop(p, 16, store(tile, [at, L], x[row + at, column + L])),
        Barrier("block"),
        loop(p, 16, store(y, [column + at, row + L], tile[L, at])),
    )
    nest = threads(body, grid=tiles * tiles, warps=2, shared=[tile])
    return Program("transposed", (x,), (y,), (nest,))


def ring(k: int = 20, stages: int = 3) -> Program:
    """y = a @ b.T for matrices of 16 rows, with tiles of 8 x 8 and a ring of copies.

    A thread has one element; 16 threads copy the next 4 columns of the factors, one of which stays
    near the processor.
    """
    a, b = Buffer("a", (16, k), f32), Buffer("b", (16, k), f32)
    y = Buffer("y", (16, 16), f32)
    left = Buffer("left", (stages, 8, 4), f32, scope="shared")
    right = Buffer("right", (stages, 8, 4), f32, scope="shared")
    total = Buffer("total", (1,), f32, scope="register")
    s, t, q = Var("s"), Var("t"), Var("q")
    me = W * WARP + L
    row, column, rounds = B // 2 * 8, B % 2 * 8, k // 4

    def bring(step: Expr) -> tuple[Stmt, ...]:
        slot, from_ = step % stages, step * 4
        return (
            If(me < 8, (copy(left, [slot, me, 0], a, [row + me, from_], 4),)),
            If((me >= 8) & (me < 16),
               (copy(right, [slot, me - 8, 0], b, [column + me - 8, from_], 4, near=True),)),
        )  # fmt: skip

    slot = t % stages
    product = left[slot, me // 8, q] * right[slot, me % 8, q]
    body = (
        AwaitInputs(),
        store(total, [0], const(0.0, f32)),
        loop(s, stages - 1, If(s < rounds, bring(s)), Commit()),
        loop(t, rounds,
             Wait(stages - 2),
             Barrier("block"),
             If(t + (stages - 1) < rounds, bring(t + (stages - 1))),
             Commit(),
             loop(q, 4, store(total, [0], total[0] + product), kind="unroll")),
        store(y, [row + me // 8, column + me % 8], total[0]),
    )  # fmt: skip
    nest = threads(allocate([total], body), grid=4, warps=2, shared=[left, right])
    return Program("ring", (a, b), (y,), (nest,))


def split_sum(k: int = 40, cluster: int = 4) -> Program:
    """y[i] = sum of x[:, i]: the blocks of a cluster take a part of the rows each."""
    x, y = Buffer("x", (k, 64), f32), Buffer("y", (64,), f32)
    parts = Buffer("parts", (cluster, WARP), f32, scope="shared")
    total = Buffer("total", (1,), f32, scope="register")
    p, q = Var("p"), Var("q")
    share = WARP // cluster
    mine = R * share + L
    body = (
        AwaitInputs(),
        store(total, [0], const(0.0, f32)),
        loop(p, k // cluster,
             store(total, [0], total[0] + x[R * (k // cluster) + p, B * WARP + L])),
        store(parts, [R, L], total[0]),
        Barrier("cluster"),
        If(share > L, (
            store(total, [0], const(0.0, f32)),
            loop(q, cluster, store(total, [0], total[0] + parts[q, mine]), kind="unroll"),
            store(y, [B * WARP + mine], total[0]),
        )),
        Barrier("cluster"),
    )  # fmt: skip
    nest = threads(allocate([total], body), grid=2, warps=1, cluster=cluster, distributed=[parts])
    return Program("split_sum", (x,), (y,), (nest,))


def product(dtype: DType, rounds: int = 3) -> Program:
    """y = 2 (a @ b.T) on matrix units, each of two warps with 16 rows."""
    width = 32 // dtype.itemsize  # columns of a matrix
    run, k = 16 // dtype.itemsize, rounds * (32 // dtype.itemsize)
    a, b = Buffer("a", (32, k), dtype), Buffer("b", (16, k), dtype)
    y = Buffer("y", (32, 16), dtype)
    strides = (width + run, 1)
    left = Buffer("left", (32, width), dtype, strides, scope="shared")
    right = Buffer("right", (16, width), dtype, strides, scope="shared")
    first = Buffer("first", (1, 16, width), dtype, scope="fragment")
    second = Buffer("second", (1, 16, width), dtype, scope="fragment")
    total = Buffer("total", (1, 16, 16), f32, scope="fragment")
    double = Buffer("double", (1, 16, 16), f32, scope="fragment")
    t, e = Var("t"), Var("e")
    me, zero = W * WARP + L, indices(0)
    element = (0, e // 16, e % 16)
    body = (
        AwaitInputs(),
        loop(e, 256, store(total, element, const(0.0, f32)), kind="fragment"),
        loop(t, rounds,
             copy(left, [me // 2, me % 2 * run], a, [me // 2, t * width + me % 2 * run], run),
             If(W < 1,
                (copy(right, [L // 2, L % 2 * run], b, [L // 2, t * width + L % 2 * run], run),)),
             Commit(),
             Wait(0),
             Barrier("block"),
             MatrixLoad(first, zero, left, indices(W * 16, 0)),
             MatrixLoad(second, zero, right, indices(0, 0)),
             MatrixMultiplyAdd(total, zero, first, zero, second, zero),
             Barrier("block")),
        loop(e, 256, store(double, element, total[element] * 2.0), kind="fragment"),
        loop(e, 256, store(y, [W * 16 + e // 16, e % 16], cast(double[element], dtype)),
             kind="fragment"),
    )  # fmt: skip
    code = allocate([first, second, total, double], body)
    nest = threads(code, grid=1, warps=2, shared=[left, right])
    return Program("product", (a, b), (y,), (nest,))


def turned_product(dtype: DType, rounds: int = 3) -> Program:
    """y = a.T @ b on matrix units, each of two warps with 16 columns of a."""
    width, run = 32 // dtype.itemsize, 16 // dtype.itemsize
    a, b = Buffer("a", (rounds * width, 32), dtype), Buffer("b", (rounds * width, 16), dtype)
    y = Buffer("y", (32, 16), f32)
    left = Buffer("left", (width, 32), dtype, (32 + run, 1), scope="shared")
    right = Buffer("right", (width, 16), dtype, (16 + run, 1), scope="shared")
    first = Buffer("first", (1, 16, width), dtype, scope="fragment")
    second = Buffer("second", (1, 16, width), dtype, scope="fragment")
    total = Buffer("total", (1, 16, 16), f32, scope="fragment")
    t, e = Var("t"), Var("e")
    me, zero = W * WARP + L, indices(0)
    element = (0, e // 16, e % 16)
    long, short = 32 // run, 16 // run  # runs of a row
    row_a, at_a, row_b, at_b = me // long, me % long * run, L // short, L % short * run
    body = (
        AwaitInputs(),
        loop(e, 256, store(total, element, const(0.0, f32)), kind="fragment"),
        loop(t, rounds,
             copy(left, [row_a, at_a], a, [t * width + row_a, at_a], run),
             If(W < 1, (copy(right, [row_b, at_b], b, [t * width + row_b, at_b], run),)),
             Commit(),
             Wait(0),
             Barrier("block"),
             MatrixLoad(first, zero, left, indices(0, W * 16), turned=True),
             MatrixLoad(second, zero, right, indices(0, 0), turned=True),
             MatrixMultiplyAdd(total, zero, first, zero, second, zero),
             Barrier("block")),
        loop(e, 256, store(y, [W * 16 + e // 16, e % 16], total[element]), kind="fragment"),
    )  # fmt: skip
    nest = threads(allocate([first, second, total], body), grid=1, warps=2, shared=[left, right])
    return Program("turned_product", (a, b), (y,), (nest,))


def two_kernels(n: int = 96) -> Program:
    """y = x + 1 squared: a kernel, a plain statement and another kernel, over a workspace."""
    x, y = Buffer("x", (n,), f32), Buffer("y", (n,), f32)
    more, squared = Buffer("more", (n,), f32), Buffer("squared", (n,), f32)
    i, j = B * WARP + L, Var("j")
    body = (
        threads((store(more, [i], x[i] + 1.0),), grid=n // WARP, warps=1),
        loop(j, n, store(squared, [j], more[j] * more[j]), kind="parallel"),
        threads((AwaitInputs(), store(y, [i], squared[i])), grid=n // WARP, warps=1),
    )
    return Program("two_kernels", (x,), (y,), body, (more, squared))


def rotated(grid: int = 2) -> Program:
    """y[b, w, l] = x[b, w, l - 1] by way of a row that only the warp uses."""
    x, y = Buffer("x", (grid, 2, WARP), f32), Buffer("y", (grid, 2, WARP), f32)
    row = Buffer("row", (2, WARP), f32, scope="shared")
    body = (
        store(row, [W, L], x[B, W, L]),
        Barrier("warp"),
        store(y, [B, W, L], row[W, (L + 31) % WARP]),
    )
    return Program("rotated", (x,), (y,), (threads(body, grid=grid, warps=2, shared=[row]),))


def warp_totals(dtype: DType = f32, grid: int = 2) -> Program:
    """y[b, w, :] = the sum of x[b, w, :] in every lane, which exchange what they have."""
    shape = (grid, 2, WARP)
    x, y = Buffer("x", shape, dtype), Buffer("y", shape, dtype)
    total = Buffer("total", (1,), dtype, scope="register")
    other = Buffer("other", (2,), dtype, scope="register")
    steps = [
        step
        for mask in (16, 8, 4, 2, 1)
        for step in (
            Exchange(other, indices(1), total, indices(0), mask),
            store(total, [0], total[0] + other[1]),
        )
    ]
    body = (AwaitInputs(), store(total, [0], x[B, W, L]), *steps, store(y, [B, W, L], total[0]))
    nest = threads(allocate([total, other], body), grid=grid, warps=2)
    return Program("warp_totals", (x,), (y,), (nest,))


def overlapped(n: int = 40) -> Program:
    """y = x + 1 by tiles of 32, the last of which is moved back into the tensor."""
    x, y = Buffer("x", (n,), f32), Buffer("y", (n,), f32)
    i = B * (n - WARP) + L
    nest = threads((store(y, [i], x[i] + 1.0),), grid=2, warps=1)
    return Program("overlapped", (x,), (y,), (nest,))


def exchanged(n: int = 128) -> Program:
    """y = x reversed in blocks of 64 numbers, by way of memory that all threads have."""
    x, y, held = Buffer("x", (n,), f32), Buffer("y", (n,), f32), Buffer("held", (n,), f32)
    me = W * WARP + L
    body = (
        AwaitInputs(),
        store(held, [B * 64 + me], x[B * 64 + me]),
        Barrier("block"),
        store(y, [B * 64 + me], held[B * 64 + 63 - me]),
    )
    return Program("exchanged", (x,), (y,), (threads(body, grid=n // 64, warps=2),), (held,))


def refilled() -> Program:
    """y = x by way of a copy from memory that is written again behind it."""
    x, y = Buffer("x", (WARP, 4), f32), Buffer("y", (WARP, 4), f32)
    held = Buffer("held", (WARP, 4), f32)
    row = Buffer("row", (WARP, 4), f32, scope="shared")
    c = Var("c")
    body = (
        loop(c, 4, store(held, [L, c], x[L, c]), kind="vector"),
        copy(row, [L, 0], held, [L, 0], 4),
        Commit(),
        Wait(0),
        loop(c, 4, store(held, [L, c], const(0.0, f32)), kind="vector"),
        loop(c, 4, store(y, [L, c], row[L, c]), kind="vector"),
    )
    nest = threads(body, grid=1, warps=1, shared=[row])
    return Program("refilled", (x,), (y,), (nest,), (held,))


def scaled(n: int = 64) -> Program:
    """y = x * weight, where the weight is read before the kernels in front have ended."""
    x, weight, y = Buffer("x", (n,), f32), Buffer("weight", (n,), f32), Buffer("y", (n,), f32)
    factor = Buffer("factor", (1,), f32, scope="register")
    i = B * WARP + L
    body = (
        store(factor, [0], weight[i]),
        AwaitInputs(),
        store(y, [i], x[i] * factor[0]),
    )
    nest = threads(allocate([factor], body), grid=n // WARP, warps=1)
    return Program("scaled", (x, weight), (y,), (nest,))


def numbers(buffer: Buffer, seed: int = 0) -> Array:
    """Small whole numbers, whose sums and products are exact."""
    drawn = np.random.default_rng(seed).integers(-4, 5, buffer.shape)
    return drawn.astype(buffer.dtype.numpy)


def examples(program: Program) -> list[Array]:
    return [numbers(b, seed) for seed, b in enumerate(program.inputs)]
