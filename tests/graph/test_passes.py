"""Passes keep the meaning of a graph and do what their docstrings show."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import whet
from tests.graph.meaning import assert_same_meaning, f, graph_of, operators
from tests.ops.test_empty import emptied
from whet.core.dtypes import bool_, f32, f64, i64
from whet.core.errors import WhetError
from whet.core.types import TensorType, type_of
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value, apply, make_constant, make_input
from whet.graph.interpret import interpret
from whet.graph.passes import (
    PASSES,
    expand_composites,
    fold_constants,
    fold_empty,
    optimize,
    simplify,
)
from whet.graph.passes.rules import RULES
from whet.graph.rewrite import everywhere, rebuild
from whet.graph.text import print_graph
from whet.ops import REGISTRY
from whet.ops.base import Sample
from whet.ops.scan import Scan
from whet.ops.shared.control import Control

SAMPLES = [
    pytest.param(sample, id=f"{name}-{n}")
    for name, cls in sorted(REGISTRY.items())
    for n, sample in enumerate(cls.samples())
]


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
    if not sample.op.folds:
        assert folded.outputs == graph.outputs
        return
    assert operators(folded) == []
    for a, b in zip(interpret(graph, []), interpret(folded, []), strict=True):
        assert a.tobytes() == b.tobytes()


def test_values_without_elements_are_known() -> None:
    before = graph_of("relu(matmul(x, w))", x=f(0, 8), w=f(8, 32))
    after = fold_empty(before)
    assert operators(after) == []
    assert_same_meaning(before, after)
    summed = graph_of("add(reduce_sum(x, axes=[0]), y)", x=f(0, 8), y=f(1, 8))
    assert operators(fold_empty(summed)) == ["add"]
    assert_same_meaning(summed, fold_empty(summed))
    whole = graph_of("relu(matmul(x, w))", x=f(2, 8), w=f(8, 32))
    assert fold_empty(whole) is whole


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_folding_what_is_empty_keeps_the_meaning(name: str) -> None:
    rng = np.random.default_rng(3)
    for sample in REGISTRY[name].samples():
        if not sample.op.deterministic:
            continue
        for arrays in emptied(sample, sample.arrays(rng)):
            try:
                sample.op.infer_types(tuple(map(type_of, arrays)))
                wanted = sample.op.run_reference(arrays)
            except WhetError:
                continue  # other types are refused, and indices into nothing
            inputs = tuple(make_input(f"x{n}", type_of(a)) for n, a in enumerate(arrays))
            results = apply(sample.op, *inputs)
            graph = Graph(inputs, results, tuple(f"y{n}" for n in range(len(results))))
            got = interpret(fold_empty(graph), arrays)
            assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in wanted]
            for g, w in zip(got, wanted):
                np.testing.assert_array_equal(g, w)


# ----------------------------------------------------------------------------------- expansion
@pytest.mark.parametrize("sample", SAMPLES)
def test_expansion_keeps_the_meaning(sample: Sample) -> None:
    inputs = tuple(make_input(f"x{n}", t) for n, t in enumerate(sample.types))
    outputs = apply(sample.op, *inputs)
    before = Graph(inputs, outputs, tuple(f"y{n}" for n in range(len(outputs))))
    after = expand_composites(before)
    left = [n.op for n in after.nodes if n.op.expand is not None]
    assert all(isinstance(op, Control) for op in left)
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
    # A root is another number than a power at -inf.
    for exponent, name in ((0.5, "pow"), (-1.0, "reciprocal"), (2.0, "mul"), (3.0, "pow")):
        results = apply(REGISTRY["pow"](), x, make_constant(np.asarray(exponent, np.float32)))
        graph = Graph((x,), results, ("y",))
        assert operators(simplify(graph)) == operators(simplify(graph, "exact")) == [name]


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


# --------------------------------------------------------------------------- pipeline, rewriter
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
    names = [
        "fold_constants",
        "fold_empty",
        "simplify",
        "lift_steps",
        "fold_batch_norm",
        "simplify",
    ]
    assert [name for name, _, _ in seen] == names
    assert seen[2] == ("simplify", 3, 0)


OUTSIDE = """
from whet.graph.passes import PASSES, Pass
from whet.graph.rewrite import rebuild
from whet.ops.activation import Relu

def relus(graph, numerics):
    return rebuild(graph, lambda b, node, inputs: (
        b.results(Relu(), *inputs) if node.op.name == "abs" else None))

PASSES.append(Pass("relus", relus, "real"))
"""


def test_a_pass_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.graph.passes.PASSES", PASSES.copy())
    (tmp_path / "mine.py").write_text(OUTSIDE)
    runpy.run_path(str(tmp_path / "mine.py"))
    graph = graph_of("neg(abs(x))", x=f(2, 3))
    assert "relu(" in print_graph(optimize(graph))
    assert "relu(" not in print_graph(optimize(graph, numerics="exact"))
    (y,) = (whet.compile(graph, threads=1)(x=np.full((2, 3), -1, np.float32)),)
    np.testing.assert_array_equal(y, np.zeros((2, 3)))


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
