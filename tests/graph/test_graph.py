"""Graphs: interning, order, and what exists by construction."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from whet.core.dtypes import f32
from whet.core.errors import GraphError
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, apply, make_constant, make_input
from whet.ops import REGISTRY

ROW = TensorType((3,), f32)


def test_equal_computations_are_one_node() -> None:
    x = make_input("x", ROW)
    (first,) = apply(REGISTRY["relu"](), x)
    (second,) = apply(REGISTRY["relu"](), x)
    assert first is second
    (total,) = apply(REGISTRY["add"](), first, second)
    assert len(Graph((x,), (total,), ("y",)).nodes) == 2


def test_what_no_output_needs_is_not_in_the_graph() -> None:
    x = make_input("x", ROW)
    (used,) = apply(REGISTRY["relu"](), x)
    apply(REGISTRY["neg"](), x)
    assert [n.op.name for n in Graph((x,), (used,), ("y",)).nodes] == ["relu"]


def test_constants_of_equal_content_are_one_value() -> None:
    big = np.random.default_rng(0).standard_normal((300, 40)).astype(np.float32)
    assert make_constant(big) is make_constant(big.copy())
    assert make_constant(big.T) is make_constant(np.ascontiguousarray(big.T))
    assert make_constant(big.astype(">f4")) is make_constant(big)
    changed = big.copy()
    changed[7, 3] += 1  # not among the sampled elements
    assert make_constant(changed) is not make_constant(big)
    assert make_constant(changed).digest != make_constant(big).digest


def test_constants_are_neither_copied_nor_hashed_early() -> None:
    array = np.random.default_rng(1).standard_normal((500, 500))
    constant = make_constant(array)
    assert np.shares_memory(constant.array, array)
    assert make_constant(constant.array[:, ::-1]).array.base is not None
    assert constant._digest is None
    assert constant.digest == constant.digest == make_constant(array.copy()).digest


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.zeros(2, np.float32), -np.zeros(2, np.float32)),
        (np.zeros(2, np.float32), np.zeros(2, np.int32)),
        (np.zeros((1, 2), np.float32), np.zeros((2, 1), np.float32)),
        (np.ones(2, np.int64), np.ones(2, np.bool_)),
    ],
)
def test_different_constants_stay_apart(left: np.ndarray, right: np.ndarray) -> None:
    a, b = make_constant(left), make_constant(right)
    assert a is not b
    assert a.digest != b.digest


def test_constants_are_read_only_and_released() -> None:
    constant = make_constant(np.arange(1000.0))
    with pytest.raises(ValueError, match="read-only"):
        constant.array[0] = 1
    gone = weakref.ref(constant)
    del constant
    gc.collect()
    assert gone() is None


def test_deep_graphs_are_fine() -> None:
    x = make_input("x", ROW)
    value = x
    for _ in range(5000):
        (value,) = apply(REGISTRY["neg"](), value)
    graph = Graph((x,), (value,), ("y",))
    assert len(graph.nodes) == 5000
    assert graph.nodes[-1].results == (value,)


def test_unknown_inputs_and_repeated_names_are_refused() -> None:
    x = make_input("x", ROW)
    with pytest.raises(GraphError, match="'x' is read but is not an input"):
        Graph((), (x,), ("y",))
    with pytest.raises(GraphError, match="names are not unique"):
        Graph((x,), (x, x), ("y", "y"))


def test_builder_folds_constants_at_once() -> None:
    b = GraphBuilder()
    three = b.one(REGISTRY["add"](), b.constant(np.float32(1)), b.constant(np.float32(2)))
    assert three is b.constant(np.float32(3))


def test_builder_does_not_fold_what_would_bloat() -> None:
    b = GraphBuilder()
    huge = b.one(REGISTRY["expand"]((1 << 15, 1 << 10)), b.constant(np.float32(1)))
    assert [n.op.name for n in Graph((), (huge,), ("y",)).nodes] == ["expand"]
