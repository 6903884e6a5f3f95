"""Passes keep the meaning of a graph and do what their docstrings show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from whet.core.dtypes import bool_, f32, f64, i64
from whet.core.types import Array, TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value, apply, make_constant, make_input
from whet.graph.interpret import interpret
from whet.graph.passes import (
    expand_composites,
    fold_batch_norm,
    fold_constants,
    optimize,
    simplify,
)
from whet.graph.passes.rules import RULES
from whet.graph.rewrite import everywhere, rebuild
from whet.graph.terms import build_term, read_term
from whet.graph.text import print_graph
from whet.ops import REGISTRY
from whet.ops.base import Sample
from whet.ops.scan import Scan

RNG = np.random.default_rng(5)
SAMPLES = [
    pytest.param(sample, id=f"{name}-{n}")
    for name, cls in sorted(REGISTRY.items())
    for n, sample in enumerate(cls.samples())
]


def graph_of(term: str, **types: TensorType) -> Graph:
    inputs = {name: make_input(name, t) for name, t in types.items()}
    outputs = build_term(read_term(term), inputs)
    return Graph(tuple(inputs.values()), outputs, tuple(f"y{n}" for n in range(len(outputs))))


def f(*shape: int) -> TensorType:
    return TensorType(shape, f32)


def operators(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def random_arrays(graph: Graph) -> list[Array]:
    drawn = []
    for v in graph.inputs:
        values = RNG.standard_normal(v.tensor_type.shape) * 4
        drawn.append(np.asarray(values).astype(v.tensor_type.dtype.numpy))
    return drawn


def assert_same_meaning(before: Graph, after: Graph, *, exact: bool = True) -> None:
    assert [v.type for v in before.outputs] == [v.type for v in after.outputs]
    arrays = random_arrays(before)
    for a, b in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------- folding
def test_chains_of_constants_fold_from_their_start() -> None:
    x = make_input("x", f(6))
    (shape,) = apply(
        REGISTRY["add"](), make_constant(np.array([1, 2])), make_constant(np.array([1, 1]))
    )
    (more,) = apply(REGISTRY["mul"](), shape, shape)
    (cast,) = apply(REGISTRY["cast"](f32), more)
    (total,) = apply(REGISTRY["reduce_sum"]((0,)), cast)
    (y,) = apply(REGISTRY["add"](), x, total)
    before = Graph((x,), (y,), ("y",))
    after = fold_constants(before)
    assert operators(after) == ["add"]
    assert_same_meaning(before, after)


def test_graphs_made_by_the_builder_are_folded_already() -> None:
    b = GraphBuilder()
    x = b.input("x", f(2))
    two = b.one(REGISTRY["add"](), b.constant(np.float32(1)), b.constant(np.float32(1)))
    graph = Graph((x,), (b.one(REGISTRY["mul"](), x, two),), ("y",))
    assert fold_constants(graph).outputs == graph.outputs


@pytest.mark.parametrize("sample", SAMPLES)
def test_folding_any_operator_gives_what_it_computes(sample: Sample) -> None:
    arrays = sample.arrays(np.random.default_rng(1))
    results = apply(sample.op, *map(make_constant, arrays))
    graph = Graph((), results, tuple(f"y{n}" for n in range(len(results))))
    folded = fold_constants(graph)
    if not sample.op.deterministic:
        assert folded.outputs == graph.outputs
        return
    assert operators(folded) == []
    for a, b in zip(interpret(graph, []), interpret(folded, []), strict=True):
        assert a.tobytes() == b.tobytes()


# ----------------------------------------------------------------------------------- expansion
@pytest.mark.parametrize("sample", SAMPLES)
def test_expansion_keeps_the_meaning(sample: Sample) -> None:
    inputs = tuple(make_input(f"x{n}", t) for n, t in enumerate(sample.types))
    outputs = apply(sample.op, *inputs)
    before = Graph(inputs, outputs, tuple(f"y{n}" for n in range(len(outputs))))
    after = expand_composites(before)
    left = {n.op.name for n in after.nodes if n.op.expand is not None}
    assert left <= {"scan"}
    if sample.op.expand is None:
        assert after.outputs == fold_constants(before).outputs
        return
    arrays = sample.arrays(np.random.default_rng(2))
    for a, b in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        tolerance = 0.05 if a.dtype.itemsize == 2 else 1e-4
        np.testing.assert_allclose(
            a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=tolerance
        )


def test_kept_composites_stay() -> None:
    graph = graph_of("softmax(x, axis=1)", x=f(2, 3))
    assert operators(expand_composites(graph, keep=("softmax",))) == ["softmax"]
    assert "softmax" not in operators(expand_composites(graph))


# -------------------------------------------------------------------------------------- simplify
CASES = [
    ("transpose(x, perm=[0, 1])", "x"),
    ("transpose(transpose(x, perm=[1, 0]), perm=[1, 0])", "x"),
    ("transpose(reshape(x, shape=[2, 1, 3]), perm=[1, 0, 2])", "reshape(x, shape=[1, 2, 3])"),
    ("reshape(reshape(x, shape=[6]), shape=[3, 2])", "reshape(x, shape=[3, 2])"),
    ("reshape(reshape(x, shape=[6]), shape=[2, 3])", "x"),
    ("expand(expand(x, shape=[1, 2, 3]), shape=[4, 2, 3])", "expand(x, shape=[4, 2, 3])"),
    ("expand(x, shape=[2, 3])", "x"),
    ("slice(x, starts=[0, 0], stops=[2, 3], steps=[1, 1])", "x"),
    ("slice(slice(x, starts=[1, 2], stops=[2, -1], steps=[1, -1]), starts=[0, 2], "
     "stops=[1, -1], steps=[1, -2])", "slice(x, starts=[1, 0], stops=[2, 3], steps=[1, 2])"),
    ("pad(x, 1, pads=[0, 0, 0, 0])", "x"),
    ("tile(x, repeats=[1, 1])", "x"),
    ("concat(x, axis=0)", "x"),
    ("concat(concat(x, x, axis=0), x, axis=0)", "concat(x, x, x, axis=0)"),
    ("concat(split(x, axis=1, sizes=[1, 2]), axis=1)", "x"),
    ("concat(x, slice(x, starts=[0, 0], stops=[0, 3], steps=[1, 1]), axis=0)", "x"),
    ("split(x, axis=1, sizes=[3])", "x"),
    ("cast(x, to=f32)", "x"),
    ("cast(cast(x, to=f64), to=f32)", "x"),
    ("reduce_sum(reshape(x, shape=[2, 1, 3]), axes=[1])", "x"),
    ("reduce_max(x, axes=[])", "x"),
    ("add(x, 0)", "x"),
    ("add(0, x)", "x"),
    ("sub(x, 0)", "x"),
    ("mul(1, x)", "x"),
    ("div(x, 1)", "x"),
    ("pow(x, 1)", "x"),
    ("pow(x, 2)", "mul(x, x)"),
    ("maximum(x, x)", "x"),
    ("neg(neg(x))", "x"),
    ("relu(relu(x))", "relu(x)"),
    ("where(equal(0, 0), x, neg(x))", "x"),
    ("where(equal(0, 1), neg(x), x)", "x"),
    ("where(less(x, 1), x, x)", "x"),
    ("add(x, expand(slice(x, starts=[0, 0], stops=[1, 3], steps=[1, 1]), shape=[2, 3]))",
     "add(x, slice(x, starts=[0, 0], stops=[1, 3], steps=[1, 1]))"),
]  # fmt: skip
KEPT = [
    "transpose(x, perm=[1, 0])",
    "add(x, 1)",
    "mul(x, 0)",
    "sub(0, x)",
    "div(1, x)",
    "cast(cast(x, to=f16), to=f32)",
    "cast(cast(x, to=i64), to=f32)",
    "slice(x, starts=[1, 2], stops=[-1, -1], steps=[-1, -1])",
    "add(slice(x, starts=[0, 0], stops=[1, 1], steps=[1, 1]), "
    "expand(slice(x, starts=[0, 0], stops=[1, 1], steps=[1, 1]), shape=[2, 3]))",
]


@pytest.mark.parametrize(("before", "after"), CASES)
def test_simplifications(before: str, after: str) -> None:
    graph = graph_of(before, x=f(2, 3))
    result = simplify(graph)
    assert result.outputs == graph_of(after, x=f(2, 3)).outputs
    assert_same_meaning(graph, result)
    assert simplify(result).outputs == result.outputs


@pytest.mark.parametrize("term", KEPT)
def test_what_is_not_redundant_stays(term: str) -> None:
    graph = graph_of(term, x=f(2, 3))
    assert simplify(graph).outputs == graph.outputs


@pytest.mark.parametrize(
    ("index", "kept"),
    [
        (2, "reshape(slice(x, starts=[2, 0], stops=[3, 3], steps=[1, 1]), shape=[3])"),
        (-1, "reshape(slice(x, starts=[5, 0], stops=[6, 3], steps=[1, 1]), shape=[3])"),
        ([1, 3, 5], "slice(x, starts=[1, 0], stops=[6, 3], steps=[2, 1])"),
        ([-2, 2, 0], "slice(x, starts=[4, 0], stops=[-1, 3], steps=[-2, 1])"),
        ([0, 1, 2, 3, 4, 5], "x"),
        ([1, 2, 4], None),
        ([1, 1], None),
        ([[1, 2]], None),
    ],
)
def test_gathered_ranges_are_slices(index: object, kept: str | None) -> None:
    x = make_input("x", f(6, 3))
    results = apply(REGISTRY["gather"](0), x, make_constant(np.asarray(index)))
    graph = Graph((x,), results, ("y",))
    expected = graph if kept is None else graph_of(kept, x=f(6, 3))
    assert simplify(graph).outputs == expected.outputs
    assert_same_meaning(graph, simplify(graph))


def test_known_powers() -> None:
    x = make_input("x", f(2, 3))
    for exponent, name in ((0.5, "sqrt"), (-1.0, "reciprocal"), (3.0, "pow")):
        results = apply(REGISTRY["pow"](), x, make_constant(np.asarray(exponent, np.float32)))
        assert operators(simplify(Graph((x,), results, ("y",)))) == [name]


def test_parts_in_another_order_stay() -> None:
    x = make_input("x", f(2, 4))
    first, second = apply(REGISTRY["split"](1, (2, 2)), x)
    (y,) = apply(REGISTRY["concat"](1), second, first)
    graph = Graph((x,), (y,), ("y",))
    assert simplify(graph).outputs == graph.outputs


def test_neutral_elements_that_widen_stay() -> None:
    x, zeros = make_input("x", f(3)), make_constant(np.zeros((2, 3), np.float32))
    (y,) = apply(REGISTRY["add"](), x, zeros)
    assert simplify(Graph((x,), (y,), ("y",))).outputs == (y,)


def test_exact_mode_keeps_what_changes_bits() -> None:
    graph = graph_of("add(mul(x, 1), 0)", x=f(2, 3))
    assert operators(simplify(graph, "exact")) == ["add"]
    assert operators(simplify(graph)) == []


def test_every_rule_names_operators_that_exist() -> None:
    assert set(RULES) <= set(REGISTRY)
    assert all(r.rewrite.__doc__ for rules in RULES.values() for r in rules)


# ------------------------------------------------------------------------------------ batch norm
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


# --------------------------------------------------------------------------- pipeline, rewriter
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


def scan_with_waste() -> Graph:
    b = GraphBuilder()

    def step(state: Value, piece: Value) -> tuple[Value, Value]:
        total = b.one(REGISTRY["add"](), state, b.one(REGISTRY["neg"](), piece))
        return b.one(REGISTRY["neg"](), b.one(REGISTRY["neg"](), total)), total

    body = b.body((f(3), f(3)), step)
    start, rows = b.input("h", f(3)), b.input("x", f(4, 3))
    results = b.results(Scan(body, 4, 1, (0,), (0,)), start, rows)
    return Graph((start, rows), results, ("last", "all"))


def test_bodies_are_optimized_too() -> None:
    before = scan_with_waste()
    assert print_graph(before).count("neg(") == 3
    after = optimize(before)
    assert print_graph(after).count("neg(") == 1
    assert_same_meaning(before, after)
    assert everywhere(simplify)(after).outputs == after.outputs


def test_observer_sees_every_pass() -> None:
    seen: list[tuple[str, int, int]] = []
    graph = graph_of("add(reshape(reshape(x, shape=[6]), shape=[2, 3]), 0)", x=f(2, 3))
    optimize(graph, observe=lambda n, a, b: seen.append((n, len(a.nodes), len(b.nodes))))
    names = ["fold_constants", "simplify", "fold_batch_norm", "simplify"]
    assert [name for name, _, _ in seen] == names
    assert seen[1] == ("simplify", 3, 0)


def test_rebuilding_without_changes_gives_the_same_graph_and_names() -> None:
    b = GraphBuilder()
    b.current_name = "here"
    x = b.input("x", f(2))
    graph = Graph((x,), (b.one(REGISTRY["relu"](), x),), ("y",), b.names)
    again = rebuild(graph, lambda _b, _node, _inputs: None)
    assert again.outputs == graph.outputs
    assert list(again.names.values()) == ["here"]


def test_new_nodes_inherit_names() -> None:
    b = GraphBuilder()
    x = b.input("x", f(2, 3))
    b.current_name = "norm"
    graph = Graph((x,), (b.one(REGISTRY["softmax"](axis=1), x),), ("y",), b.names)
    expanded = expand_composites(graph)
    assert len(expanded.nodes) > 1
    assert set(expanded.names.values()) == {"norm"}


def test_deep_graphs_are_rebuilt_without_recursion() -> None:
    x = make_input("x", f(2))
    value: Value = x
    for n in range(4000):
        (value,) = apply(REGISTRY["exp" if n % 2 else "neg"](), value)
    graph = Graph((x,), (value,), ("y",))
    assert optimize(graph).outputs == graph.outputs


UNARY = ["relu", "neg", "abs", "floor", "sign"]
BINARY = ["add", "sub", "mul", "maximum", "minimum"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_optimizing_random_graphs_keeps_their_meaning(data: st.DataObject) -> None:
    x = make_input("x", f(2, 3))
    numbers = [make_constant(np.full(s, n, np.float32)) for n in (0, 1, 2) for s in ((), (2, 3))]
    values: list[Value] = [x, *numbers]
    for _ in range(data.draw(st.integers(1, 12))):
        kind = data.draw(st.sampled_from(["unary", "binary", "move", "where"]))
        pick = st.sampled_from(values)
        if kind == "unary":
            made = apply(REGISTRY[data.draw(st.sampled_from(UNARY))](), data.draw(pick))
        elif kind == "binary":
            name = data.draw(st.sampled_from(BINARY))
            made = apply(REGISTRY[name](), data.draw(pick), data.draw(pick))
        elif kind == "where":
            flags = make_constant(np.array(data.draw(st.sampled_from([[True], [False]]))))
            made = apply(REGISTRY["where"](), flags, data.draw(pick), data.draw(pick))
        else:
            value = data.draw(pick)
            shape = value.tensor_type.shape
            perm = data.draw(st.permutations(range(len(shape))))
            made = apply(REGISTRY["transpose"](tuple(perm)), value)
            made = apply(REGISTRY["reshape"](shape), made[0])
        values += [v for v in made if v.tensor_type.shape in ((), (1,), (3,), (2, 3))]
    graph = Graph((x,), (values[-1],), ("y",))
    assert_same_meaning(graph, optimize(graph))


def test_types_other_than_f32() -> None:
    flags = make_input("x", TensorType((2,), bool_))
    (twice,) = apply(REGISTRY["logical_not"](), *apply(REGISTRY["logical_not"](), flags))
    assert optimize(Graph((flags,), (twice,), ("y",))).outputs == (flags,)
    whole = make_input("n", TensorType((2,), i64))
    (wide,) = apply(REGISTRY["cast"](f64), whole)
    (back,) = apply(REGISTRY["cast"](i64), wide)
    assert optimize(Graph((whole,), (back,), ("y",))).outputs == (back,)
