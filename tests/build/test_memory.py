"""The arena: what is alive together lies apart, and zero borders are zero when they are read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.build.comparing import native
from whet.build.borders import Geometry, clearing_program
from whet.build.memory import ENOUGH, plan_arena
from whet.core.dtypes import f32
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.ir.expr import const
from whet.ir.interpreter import run
from whet.ir.program import Loop, Stmt, Store
from whet.ops.conv import Conv
from whet.tasks.layout import strides_of
from whet.tasks.places import Storage


def storage(size: int, border: int = 0) -> Storage:
    b = GraphBuilder()
    value = b.input("x", TensorType((size,), f32))
    if not border:
        return Storage("arena", size, f32, value)
    geometry = Geometry((size,), None, ((border, border),), f32)
    return Storage("arena", size + 2 * border, f32, value, geometry)


lives = st.tuples(st.integers(1, 500), st.integers(0, 3), st.integers(0, 12), st.integers(0, 4))


@given(st.lists(lives, max_size=20))
def test_what_is_alive_together_lies_apart(found: list[tuple[int, int, int, int]]) -> None:
    uses: list[list[Storage]] = [[] for _ in range(20)]
    life: dict[Storage, tuple[int, int]] = {}
    for size, border, first, length in found:
        s = storage(size, border)
        uses[first].append(s)
        uses[first + length].append(s)
        life[s] = (first, first + length)
    arena = plan_arena(uses)
    for a, (first_a, last_a) in life.items():
        low, high = arena.offsets[a], arena.offsets[a] + a.nbytes
        assert low >= 0
        assert high <= arena.nbytes
        for b, (first_b, last_b) in life.items():
            overlap = low < arena.offsets[b] + b.nbytes and arena.offsets[b] < high
            together = first_a <= last_b and first_b <= last_a
            assert a is b or not (overlap and together)
            # Zeros that are written once stay only where nothing but their like lies.
            kept = a.geometry is not None and a not in arena.cleared
            assert a is b or not (overlap and kept) or a.geometry == b.geometry


def test_borders_keep_their_memory_only_while_there_is_enough() -> None:
    small = [storage(1000, 1), storage(9000, 0)]
    assert not plan_arena([small, small]).cleared  # alive together: nothing to save
    large = [storage(1000 + n, 1) for n in range(8)]
    arena = plan_arena([[s] for s in large])
    assert arena.cleared
    assert arena.nbytes <= ENOUGH * (1007 + 2) * 4 + 64


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, 2)), min_size=1,
             max_size=3),
    st.integers(0, 2),
    st.sampled_from([1, 19]),
)  # fmt: skip
def test_clearing_writes_the_border_and_nothing_else(
    axes: list[tuple[int, int, int]], inner: int, wide: int
) -> None:
    shape = (*(extent for extent, _, _ in axes[:-1]), axes[-1][0] * wide)
    border = tuple((low, high) for _, low, high in axes)
    inner %= len(shape)
    strides, offset, size = strides_of(shape, inner, border)
    (memory,) = run(clearing_program(Geometry(shape, inner, border, f32)), ())
    assert memory.shape == (size,)
    written = _written(Geometry(shape, inner, border, f32))
    index = np.indices(shape).reshape(len(shape), -1)
    inside = offset + np.asarray(strides) @ index
    expected = np.ones(size, bool)
    expected[inside] = False
    np.testing.assert_array_equal(written, expected)


def _written(g: Geometry) -> Array:
    """Which elements the program stores to, found by storing ones instead of zeros."""

    def ones(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Loop):
            return Loop(stmt.var, stmt.extent, tuple(map(ones, stmt.body)), stmt.kind)
        assert isinstance(stmt, Store)
        return Store(stmt.buffer, stmt.indices, const(1, f32))

    program = clearing_program(g)
    (memory,) = run(replace(program, body=tuple(map(ones, program.body))), ())
    return memory != 0


@pytest.mark.parametrize("threads", [1, 2])
def test_shared_borders_are_zero_in_every_call(threads: int) -> None:
    """A chain of convolutions of different shapes, whose values use each other's memory."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input("x", TensorType((1, 8, 24, 24), f32))
    value, channels = x, 8
    for out, stride in ((16, 1), (24, 2), (24, 1), (40, 2), (16, 1), (32, 1)):
        w = b.constant(rng.standard_normal((out, channels, 3, 3)).astype(np.float32))
        conv = Conv(strides=(stride, stride), pads=(1, 1, 1, 1), dilations=(1, 1), groups=1)
        value, channels = b(conv, value, w), out
    graph = Graph((x,), (value,), ("y",))
    executable = native(graph, threads)
    (segment,) = executable.segments
    assert any(call.text == "zeros around a value" for call in segment.image.calls)
    for _ in range(3):
        given_x = rng.standard_normal((1, 8, 24, 24)).astype(np.float32)
        (expected,) = interpret(graph, [given_x])
        (found,) = executable([given_x])
        np.testing.assert_allclose(found, expected, atol=1e-5 * abs(expected).max())
