"""Loops whose rounds are independent become threads, and no others do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from whet.codegen.cuda.launch import launches_of, parallel_loops, plain_extent
from whet.codegen.cuda.spread import spread
from whet.core.dtypes import f32, i64
from whet.ir import interpreter
from whet.ir.expr import Const, Expr, Var, as_expr, const
from whet.ir.program import (
    Allocate,
    Buffer,
    If,
    Let,
    Loop,
    Program,
    Stmt,
    Store,
    Transpose,
    substitute_block,
    walk,
)
from whet.ops.base import REGISTRY, Sample

X, Y = Buffer("x", (4, 6), f32), Buffer("y", (4, 6), f32)
AT = Buffer("at", (4,), i64)
TOTAL = Buffer("total", (), f32)
TILE = Buffer("tile", (4, 4), f32, scope="register")
R, C = Var("i"), Var("j")
WITH_PROGRAMS = [n for n in sorted(REGISTRY) if REGISTRY[n].samples()[0].op.program is not None]


def nest(*body: Stmt) -> Stmt:
    return Loop(R, as_expr(4), (Loop(C, as_expr(6), body),))


def order(stmt: Stmt) -> list[tuple[str, str]]:
    """The loops from outside to inside, with their kinds."""
    return [(s.var.name, s.kind) for s in walk([spread(stmt)]) if isinstance(s, Loop)]


CASES: dict[str, tuple[Stmt, list[tuple[str, str]]]] = {
    "copy": (nest(Store(Y, (R, C), X[R, C])), [("i", "parallel"), ("j", "parallel")]),
    "transposed": (Loop(C, as_expr(6), (Loop(R, as_expr(4), (Store(Y, (R, C), X[R, C]),)),)),
                   [("j", "parallel"), ("i", "parallel")]),
    "in place": (nest(Store(Y, (R, C), Y[R, C] * 2.0)), [("i", "parallel"), ("j", "parallel")]),
    "rows that are named": (nest(Store(Y, (AT[(R,)], C), X[R, C])),
                            [("j", "parallel"), ("i", "serial")]),
    "running": (nest(If(as_expr(0) < C, (Store(Y, (R, C), Y[R, C - 1] + X[R, C]),))),
                [("i", "parallel"), ("j", "serial")]),
    "from below": (nest(If(R < 3, (Store(Y, (R, C), Y[R + 1, C]),))),
                   [("j", "parallel"), ("i", "serial")]),
    "one cell": (nest(Store(Y, (as_expr(0), as_expr(0)), X[R, C])),
                 [("i", "serial"), ("j", "serial")]),
    "axes that change places": (nest(If(C < 4, (Store(Y, (R, C), Y[C, R]),))),
                                [("i", "serial"), ("j", "serial")]),
    "begun anew": (Allocate(TOTAL, (nest(Store(TOTAL, (), X[R, C]),
                                         Store(Y, (R, C), TOTAL[()])),)),
                   [("i", "parallel"), ("j", "parallel")]),
    "carried on": (Allocate(TOTAL, (nest(Store(TOTAL, (), TOTAL[()] + X[R, C]),
                                         Store(Y, (R, C), TOTAL[()])),)),
                   [("i", "serial"), ("j", "serial")]),
    "begun under a condition": (
        Allocate(TOTAL, (nest(If(C < 1, (Store(TOTAL, (), const(0.0, f32)),)),
                              Store(Y, (R, C), TOTAL[()])),)),
        [("i", "serial"), ("j", "serial")],
    ),
    "something else is done": (
        Allocate(TILE, (nest(Transpose(TILE), Store(Y, (R, C), TILE[0, 0])),)),
        [("i", "serial"), ("j", "serial")],
    ),
    "something else is done there": (nest(Transpose(TILE), Store(Y, (R, C), X[R, C])),
                                     [("i", "serial"), ("j", "serial")]),
    "read first": (
        Allocate(TOTAL, (nest(Let(Var("k", f32), TOTAL[()], (Store(TOTAL, (), X[R, C]),))),)),
        [("i", "serial"), ("j", "serial")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_becomes_threads(case: str) -> None:
    stmt, wanted = CASES[case]
    assert order(stmt) == wanted


def backwards(stmt: Stmt) -> Stmt:
    """The statement with the rounds of its parallel loops in the other order."""
    found = spread(stmt)
    changed: dict[Expr, Expr] = {
        s.var: s.extent - 1 - s.var for s in parallel_loops(found) if isinstance(s.extent, Const)
    }

    def inside(loop: Stmt) -> Stmt:
        if isinstance(loop, Loop) and loop.kind == "parallel":
            first = loop.body[0]
            if len(loop.body) == 1 and isinstance(first, Loop) and first.kind == "parallel":
                return Loop(loop.var, loop.extent, (inside(first),), "parallel")
            return Loop(loop.var, loop.extent, substitute_block(loop.body, changed), "parallel")
        return loop

    return inside(found)


def samples() -> Sequence[tuple[str, Sample]]:
    rng = np.random.default_rng(4)
    return [
        (f"{name} {n}", sample)
        for name in WITH_PROGRAMS
        for n, sample in enumerate([
            *REGISTRY[name].samples(), *(REGISTRY[name].sample(rng) for _ in range(5))
        ])
        if all(t.size for t in (*sample.types, *sample.op.infer_types(sample.types)))
    ]  # fmt: skip


@pytest.mark.parametrize("sample", [s for _, s in samples()], ids=[n for n, _ in samples()])
def test_rounds_may_run_in_any_order(sample: Sample) -> None:
    program = sample.op.program(*sample.types)  # type: ignore[misc]
    arrays = sample.arrays(np.random.default_rng(1))
    wanted = interpreter.run(program, arrays)
    for change in (spread, backwards):
        body = tuple(map(change, program.body))
        changed = Program(program.name, program.inputs, program.outputs, body)
        for got, want in zip(interpreter.run(changed, arrays), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_large_scatters_and_rows_are_spread() -> None:
    """No thread goes over an array alone, but for the axis along which rounds depend."""
    for name, least in (("scatter_nd", 3), ("top_k", 3), ("cumsum", 3), ("roi_align", 30)):
        sample = REGISTRY[name].samples()[0]
        program = sample.op.program(*sample.types)  # type: ignore[misc]
        assert max(plain_extent(spread(stmt)) for stmt in program.body) >= least
        assert max(launch.threads for launch in launches_of(program)) >= 32
