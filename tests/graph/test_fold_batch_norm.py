"""Scales and shifts of products go into their weights."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.meaning import RNG, assert_same_meaning, f, operators
from whet.core.types import Array
from whet.graph.graph import Graph, Value, apply, make_constant, make_input
from whet.graph.interpret import interpret
from whet.graph.passes import (
    fold_batch_norm,
)
from whet.graph.terms import build_term, read_term
from whet.ops import REGISTRY


def conv_with(after: str, *, groups: int = 1, transposed: bool = False, rank: int = 2) -> Graph:
    """y = conv(x, w) followed by the term, with constant parameters s, b, m, v, p, q."""
    channels, ones = 4, (1,) * rank
    inner = channels // groups
    weights = RNG.standard_normal((4, inner, *(3,) * rank)).astype(np.float32)
    x = make_input("x", f(2, 4, *(6,) * rank))
    attributes = {"strides": ones, "pads": ones * 2, "dilations": ones, "groups": groups}
    if transposed:
        attributes["output_padding"] = (0,) * rank
    name = "conv_transpose" if transposed else "conv"
    (y,) = apply(REGISTRY[name](**attributes), x, make_constant(weights))
    values: dict[str, Value] = {"y": y, "x": x}
    for key in "sbmv":
        values[key] = make_constant(RNG.uniform(0.5, 2, channels).astype(np.float32))
    for key in "pq":
        values[key] = make_constant(RNG.uniform(0.5, 2, (channels, *ones)).astype(np.float32))
    outputs = build_term(read_term(after), values)
    return Graph((x,), outputs, tuple(f"y{n}" for n in range(len(outputs))))


FOLDED = [
    "batch_norm(y, s, b, m, v)",
    "batch_norm(add(y, p), s, b, m, v)",
    "add(mul(y, p), q)",
    "add(mul(div(sub(y, p), q), p), q)",
    "mul(p, y)",
    "add(q, mul(p, add(y, q)))",
    "batch_norm(batch_norm(y, s, b, m, v), b, s, m, v)",
    "mul(y, 2)",
]


@pytest.mark.parametrize("term", FOLDED)
@pytest.mark.parametrize(
    "shape",
    [{}, {"groups": 2}, {"transposed": True}, {"transposed": True, "groups": 2}, {"rank": 1}],
    ids=str,
)
def test_scales_and_shifts_go_into_the_weights(term: str, shape: dict[str, int]) -> None:
    before = conv_with(term, **shape)
    after = fold_batch_norm(before)
    assert set(operators(after)) <= {"conv", "conv_transpose", "add"}
    assert len(after.nodes) <= 2
    assert_same_meaning(before, after, exact=False)


@pytest.mark.parametrize(
    "term",
    [
        "add(batch_norm(y, s, b, m, v), y)",  # the product is read twice
        "relu(y)",
        "mul(y, x)",
        "div(p, y)",
        "sub(p, y)",
    ],
)
def test_what_cannot_be_folded_stays(term: str) -> None:
    before = conv_with(term)
    assert fold_batch_norm(before).outputs == before.outputs


def test_a_product_that_is_an_output_stays() -> None:
    graph = conv_with("mul(y, p)")
    product = graph.nodes[0].results[0]
    both = Graph(graph.inputs, (*graph.outputs, product), ("a", "b"))
    assert fold_batch_norm(both).outputs == both.outputs


def test_scales_along_another_axis_stay() -> None:
    x = make_input("x", f(2, 4, 6, 6))
    weights = make_constant(RNG.standard_normal((6, 4, 1, 1)).astype(np.float32))
    ones = (1, 1)
    conv = REGISTRY["conv"](strides=ones, pads=(0,) * 4, dilations=ones)
    (y,) = apply(conv, x, weights)
    (scaled,) = apply(REGISTRY["mul"](), y, make_constant(np.arange(6, dtype=np.float32)))
    assert fold_batch_norm(Graph((x,), (scaled,), ("y",))).outputs == (scaled,)


def test_scales_go_into_matrices() -> None:
    x = make_input("x", f(2, 5, 3))
    w = make_constant(RNG.standard_normal((3, 4)).astype(np.float32))
    (y,) = apply(REGISTRY["matmul"](), x, w)
    (scaled,) = apply(REGISTRY["mul"](), y, make_constant(np.arange(4, dtype=np.float32)))
    (row,) = apply(REGISTRY["mul"](), y, make_constant(np.ones((5, 1), np.float32) * 2))
    before = Graph((x,), (scaled,), ("y",))
    assert operators(fold_batch_norm(before)) == ["matmul"]
    assert_same_meaning(before, fold_batch_norm(before), exact=False)
    assert fold_batch_norm(Graph((x,), (row,), ("y",))).outputs == (row,)


def heads(*after: str, constant: Array, bias: bool = True) -> Graph:
    """A projection [2, 5, 12] whose heads are split and moved, then whatever comes after."""
    x = make_input("x", f(2, 5, 3))
    w = make_constant(RNG.standard_normal((3, 12)).astype(np.float32))
    (y,) = apply(REGISTRY["matmul"](), x, w)
    if bias:
        (y,) = apply(REGISTRY["add"](), y, make_constant(np.arange(12, dtype=np.float32)))
    (y,) = apply(REGISTRY["reshape"](shape=(2, 5, 4, 3)), y)
    (y,) = apply(REGISTRY["transpose"](perm=(0, 2, 1, 3)), y)
    for name in after:
        (y,) = apply(REGISTRY[name](), y, make_constant(constant.astype(np.float32)))
    return Graph((x,), (y,), ("y",))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "constant",
    [np.array([0.125]), np.full((1, 1, 1, 1), 3.0), np.arange(1, 5).reshape(4, 1, 1),
     np.arange(1, 13).reshape(1, 4, 1, 3)],
)  # fmt: skip
@pytest.mark.parametrize("after", [("mul",), ("div", "mul"), ("mul", "add")])
def test_scales_pass_what_only_moves(after: tuple[str, ...], constant: Array, bias: bool) -> None:
    before = heads(*after, constant=constant, bias=bias)
    folded = fold_batch_norm(before)
    moved = ["reshape", "transpose"]
    if bias:
        assert operators(folded) == ["matmul", "add", *moved]
    else:  # a shift without a bias stays where it is
        assert operators(folded) == ["matmul", *moved, *after[1:]][: 3 + ("add" in after)]
    assert_same_meaning(before, folded, exact=False)


@pytest.mark.parametrize(
    "constant", [np.arange(5).reshape(5, 1), np.ones((2, 2, 4, 5, 3)), np.ones((1, 2, 1, 1, 1))]
)
def test_what_varies_elsewhere_or_widens_does_not_pass(constant: Array) -> None:
    before = heads("mul", constant=constant)
    assert fold_batch_norm(before).outputs == before.outputs


def test_a_scaled_product_that_two_read_is_computed_once() -> None:
    x = make_input("x", f(5, 3))
    w, p = (make_constant(RNG.standard_normal(s).astype(np.float32)) for s in ((3, 4), (4,)))
    (y,) = apply(REGISTRY["matmul"](), x, w)
    (scaled,) = apply(REGISTRY["mul"](), y, p)
    (again,) = apply(REGISTRY["mul"](), scaled, p)
    (other,) = apply(REGISTRY["relu"](), scaled)
    before = Graph((x,), (again, other), ("a", "b"))
    after = fold_batch_norm(before)
    assert operators(after).count("matmul") == 1
    assert_same_meaning(before, after, exact=False)


def test_folding_survives_any_parameters() -> None:
    """Warnings are errors here: negative variances and infinite scales must not raise them."""
    x = make_input("x", f(1, 2, 3))
    (product,) = apply(
        REGISTRY["conv"]((1,), (0, 0), (1,)), x, make_constant(np.zeros((2, 2, 1), np.float32))
    )
    parameters = ([np.inf, 1], [0, np.nan], [1e38, 0], [-1, -1e38])
    constants = (make_constant(np.array(p, np.float32)) for p in parameters)
    (y,) = apply(REGISTRY["batch_norm"](), product, *constants)
    folded = fold_batch_norm(Graph((x,), (y,), ("y",)))
    assert operators(folded) == ["conv", "add"]
    assert np.isnan(interpret(folded, [np.ones((1, 2, 3), np.float32)])[0]).all()
