"""Loops and branches that depend on data: against ONNX Runtime, interpreted and native."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from tests.build.comparing import native
from tests.frontend.small_models import BOOL, F32, I64, call, graph, model, node, tensor
from whet.core.errors import ModelError, UnsupportedError
from whet.frontend.onnx import ImportedModel, import_model
from whet.frontend.onnx.staging import run_stages

X = np.array([1.5, 2.0, 0.5], np.float32)
ROUND = [tensor("n", [], I64), tensor("cond", [], BOOL), tensor("v", [3])]
NUMBERS = {"one": np.float32(1), "hundred": np.float32(100)}


def same_as_onnxruntime(made: Any, **inputs: Any) -> ImportedModel:
    """The model imported without examples, after its results were compared."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    expected = session.run(None, inputs)
    imported = import_model(made)
    flat = imported.flatten([inputs[port.name] for port in imported.arguments])
    compiled = run_stages(imported, flat, lambda g, arrays: native(g)(arrays))
    for results in (call(imported, **inputs), compiled):
        for got, want in zip(results, expected, strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, rtol=1e-5)
    return imported


def operators(imported: ImportedModel) -> list[str]:
    return [n.op.name for n in imported.graph.nodes]


def growing(*items: Any, onward: str = "goes", outputs: tuple[str, ...] = ()) -> Any:
    """v <- v * x + 1, until its sum is 100 or more."""
    return graph(
        [
            node("Mul", "v x", "scaled"),
            node("Add", "scaled one", "next"),
            node("ReduceSum", "next", "sum", keepdims=0),
            node("Less", "sum hundred", "goes"),
            *items,
        ],
        ROUND,
        [tensor(onward, [], BOOL), tensor("next"), *map(tensor, outputs)],
        NUMBERS,
    )


# ---------------------------------------------------------------------------------------- Loop
def test_a_condition_from_data_ends_the_loop():
    made = model([node("Loop", "_ _ x", "y", body=growing())], [tensor("x", [3])], [tensor("y")])
    for scale in (1, 3, 60):
        imported = same_as_onnxruntime(made, x=X * np.float32(scale))
    assert operators(imported) == ["while_loop"]
    assert not imported.guards


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("most", [0, 1, 2, 30])
def test_a_number_of_rounds_and_a_condition_from_data(most, starts):
    made = model(
        [node("Loop", "most starts x", "y", body=growing())],
        [tensor("x", [3]), tensor("most", [], I64), tensor("starts", [], BOOL)],
        [tensor("y")],
    )
    inputs = {"x": X, "most": np.array(most), "starts": np.array(starts)}
    assert "while_loop" in operators(same_as_onnxruntime(made, **inputs))


@pytest.mark.parametrize("count", [0, 1, 6])
def test_a_number_of_rounds_from_data(count):
    body = graph(
        [
            node("Cast", "n", "number", to=F32),
            node("Add", "v number", "next"),
            node("Identity", "cond", "goes"),
        ],
        ROUND,
        [tensor("goes", [], BOOL), tensor("next")],
    )
    made = model(
        [node("ReduceSum", "k", "count", keepdims=0), node("Loop", "count _ x", "y", body=body)],
        [tensor("x", [3]), tensor("k", [2], I64)],
        [tensor("y")],
    )
    imported = same_as_onnxruntime(made, x=X, k=np.array([count, 0]))
    assert not imported.guards


def test_items_of_a_loop_from_data_have_a_shape_from_data():
    body = growing(
        node("Cast", "n", "number", to=F32), node("Add", "next number", "item"), outputs=("item",)
    )
    made = model(
        [
            node("Loop", "_ _ x", "y all", body=body),
            node("ReduceSum", "all axes", "total", keepdims=0),
            node("Shape", "all", "shape"),
        ],
        [tensor("x", [3])],
        [tensor("all"), tensor("total"), tensor("shape", [2], I64), tensor("y")],
        {"axes": np.array([0])},
    )
    for scale in (1, 3, 60):
        imported = same_as_onnxruntime(made, x=X * np.float32(scale))
    assert operators(imported) == ["collecting_loop"]


def test_a_long_loop_is_a_scan():
    body = graph(
        [
            node("Mul", "v x", "next"),
            node("Cast", "n", "number", to=F32),
            node("Add", "next number", "item"),
            node("Identity", "cond", "goes"),
        ],
        ROUND,
        [tensor("goes", [], BOOL), tensor("next"), tensor("item")],
    )
    made = model(
        [node("Loop", "count _ x", "last all", body=body)],
        [tensor("x", [3])],
        [tensor("last"), tensor("all")],
        {"count": np.array(40)},
    )
    imported = same_as_onnxruntime(made, x=np.array([1.01, 0.9, 1.0], np.float32))
    assert operators(imported) == ["scan"]


def test_a_long_loop_whose_state_grows_is_unrolled():
    body = graph(
        [node("Concat", "v x", "next", axis=0), node("Identity", "cond", "goes")],
        [*ROUND[:2], tensor("v")],
        [tensor("goes", [], BOOL), tensor("next")],
    )
    made = model(
        [node("Loop", "count _ x", "y", body=body)],
        [tensor("x", [3])],
        [tensor("y")],
        {"count": np.array(20)},
    )
    (y,) = call(import_model(made), x=X)
    np.testing.assert_array_equal(y, np.tile(X, 21))


def test_nested_loops_and_branches():
    """while n < 20: v <- loop(v + x) if sum(v + x) < 30, else softmax((v + x) @ mat)."""
    inner = graph(
        [
            node("Mul", "w x", "wider"),
            node("ReduceMax", "wider", "largest", keepdims=0),
            node("Less", "largest hundred", "goes2"),
        ],
        [tensor("n2", [], I64), tensor("cond2", [], BOOL), tensor("w", [3])],
        [tensor("goes2", [], BOOL), tensor("wider")],
    )
    then = graph([node("Loop", "_ _ sum", "t", body=inner)], [], [tensor("t")])
    other = graph(
        [node("MatMul", "sum mat", "turned"), node("Softmax", "turned", "o", axis=-1)],
        [],
        [tensor("o")],
    )
    body = graph(
        [
            node("Add", "v x", "sum"),
            node("ReduceSum", "sum", "total", keepdims=0),
            node("Less", "total thirty", "small"),
            node("If", "small", "next", then_branch=then, else_branch=other),
            node("Less", "n last", "goes"),
        ],
        ROUND,
        [tensor("goes", [], BOOL), tensor("next")],
        {"thirty": np.float32(30), "last": np.array(19)},
    )
    made = model(
        [node("Loop", "_ starts x", "y", body=body)],
        [tensor("x", [3]), tensor("starts", [], BOOL), tensor("mat", [3, 3])],
        [tensor("y")],
        NUMBERS,
    )
    mat = np.eye(3, dtype=np.float32)[::-1].copy()
    imported = same_as_onnxruntime(made, x=X, starts=np.array(True), mat=mat)
    assert operators(imported) == ["while_loop"]


@pytest.mark.parametrize(
    ("nodes", "state", "reason"),
    [
        (
            [node("Concat", "v x", "next", axis=0)],
            tensor("v"),
            r"state 0 changes from f32\[3\] to f32\[6\], and the number of rounds depends on data",
        ),
        (
            [
                node("Unsqueeze", "n first", "size"),
                node("Expand", "one size", "wide"),
                node("ReduceSum", "wide", "ones", keepdims=0),
                node("Add", "v ones", "next"),
            ],
            tensor("v"),
            "a shape in its body depends on values that change from round to round",
        ),
    ],
)
def test_what_is_missing_is_said_truthfully(nodes, state, reason):
    body = graph(
        [*nodes, node("ReduceSum", "next", "sum", keepdims=0), node("Less", "sum hundred", "goes")],
        [*ROUND[:2], state],
        [tensor("goes", [], BOOL), tensor("next")],
        {"first": np.array([0]), **NUMBERS},
    )
    made = model([node("Loop", "_ c x", "y", body=body)],
                 [tensor("x", [3]), tensor("c", [], BOOL)], [tensor("y")])  # fmt: skip
    with pytest.raises(UnsupportedError) as raised:
        import_model(made, {"c": np.array(True)})
    assert not raised.value.hint
    assert re.search(reason, raised.value.details[0])


def test_a_growing_state_and_a_number_of_rounds_from_data_are_stages():
    body = graph(
        [node("Concat", "v x", "next", axis=0), node("Identity", "cond", "goes")],
        [*ROUND[:2], tensor("v")],
        [tensor("goes", [], BOOL), tensor("next")],
    )
    made = model(
        [node("ArgMax", "x", "count", keepdims=0), node("Loop", "count _ x", "y", body=body)],
        [tensor("x", [3])],
        [tensor("y")],
    )
    same_as_onnxruntime(made, x=X)


def test_a_loop_that_never_ends_is_refused():
    body = graph(
        [node("Mul", "v x", "next"), node("Identity", "cond", "goes")],
        ROUND,
        [tensor("goes", [], BOOL), tensor("next")],
    )
    made = model([node("Loop", "_ _ x", "y", body=body)], [tensor("x", [3])], [tensor("y")])
    with pytest.raises(UnsupportedError) as raised:
        import_model(made)
    assert "a loop that never ends" in raised.value.details[0]


def test_loops_of_constants_do_not_run_while_a_model_is_imported():
    """v <- v + 0 while its sum is below 100: nobody should wait for that."""
    body = graph(
        [
            node("Add", "v zero", "next"),
            node("ReduceSum", "next", "sum", keepdims=0),
            node("Less", "sum hundred", "goes"),
        ],
        ROUND,
        [tensor("goes", [], BOOL), tensor("next")],
        {"zero": np.float32(0), **NUMBERS},
    )
    made = model([node("Loop", "_ _ start", "last", body=body), node("Add", "last x", "y")],
                 [tensor("x", [3])], [tensor("y")], {"start": X})  # fmt: skip
    assert operators(import_model(made)) == ["while_loop", "add"]


# ------------------------------------------------------------------------------------------ If
def choosing(then: list[Any], other: list[Any], condition: str = "c", **kinds: Any) -> Any:
    return node(
        "If",
        condition,
        "y",
        then_branch=graph(then, [], [tensor("t")]),
        else_branch=graph(other, [], [tensor("e")]),
        **kinds,
    )


@pytest.mark.parametrize("condition", [True, False])
def test_one_of_two_branches_runs(condition):
    made = model(
        [
            choosing(
                [node("Gather", "x i", "row", axis=0), node("MatMul", "row w", "t")],
                [node("MatMul", "x w", "all"), node("ReduceMax", "all axes", "e", keepdims=0)],
            ),
            node("Neg", "y", "z"),
        ],
        [tensor("x", [4, 3]), tensor("w", [3, 3]), tensor("i", [], I64), tensor("c", [], BOOL)],
        [tensor("z")],
        {"axes": np.array([0])},
    )
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((4, 3), (3, 3)))
    # An index outside its tensor does not matter where nobody reads it.
    index = np.array(2 if condition else 1000)
    imported = same_as_onnxruntime(made, x=x, w=w, i=index, c=np.array(condition))
    assert operators(imported) == ["branch", "neg"]


def test_cheap_branches_are_computed_both():
    made = model([choosing([node("Neg", "x", "t")], [node("Identity", "x", "e")])],
                 [tensor("x", [3]), tensor("c", [1], BOOL)], [tensor("y")])  # fmt: skip
    imported = same_as_onnxruntime(made, x=X, c=np.array([True]))
    assert "branch" not in operators(imported)
    assert "where" in operators(imported)


def test_a_branch_that_needs_to_know_a_value_sees_it_outside():
    made = model(
        [
            choosing(
                [node("Expand", "x shape", "wide"), node("ReduceMax", "wide axes", "t",
                                                         keepdims=0)],
                [node("Softmax", "x", "e", axis=0)],
            )
        ],
        [tensor("x", [3]), tensor("shape", [2], I64), tensor("c", [], BOOL)],
        [tensor("y")],
        {"axes": np.array([0])},
    )  # fmt: skip
    imported = import_model(made, {"shape": np.array([4, 3])})
    assert list(imported.guards) == ["shape"]
    (y,) = call(imported, x=X, shape=np.array([4, 3]), c=np.array(True))
    np.testing.assert_array_equal(y, X)


# -------------------------------------------------------------------- shapes from data inside
NONZERO = [
    node("NonZero", "x", "places"),
    node("Transpose", "places", "rows", perm=[1, 0]),
    node("GatherND", "x rows", "t"),
]
WITH_ZEROS = np.array([1, 0, 3], np.float32)


@pytest.mark.parametrize("condition", [True, False])
def test_a_branch_with_a_shape_from_data(condition):
    made = model(
        [
            node("ReduceSum", "x", "sum", keepdims=0),
            node("Less", "zero sum", "positive"),
            choosing(NONZERO, [node("Concat", "x x", "e", axis=0)], "positive"),
            node("Neg", "y", "z"),
        ],
        [tensor("x", [3])],
        [tensor("z")],
        {"zero": np.float32(0)},
    )
    same_as_onnxruntime(made, x=WITH_ZEROS * np.float32(1 if condition else -1))


def test_a_known_branch_with_a_shape_from_data():
    made = model([choosing(NONZERO, [node("Neg", "x", "e")], "yes"), node("Neg", "y", "z")],
                 [tensor("x", [3])], [tensor("z")], {"yes": np.array(True)})  # fmt: skip
    same_as_onnxruntime(made, x=WITH_ZEROS)


def test_a_function_with_a_shape_from_data():
    inner = [*NONZERO[:2], node("GatherND", "x rows", "picked"),
             node("LeakyRelu", "picked", "out")]  # fmt: skip
    slope = inner[-1].attribute.add()
    slope.name, slope.ref_attr_name, slope.type = "alpha", "slope", onnx.AttributeProto.FLOAT
    function = helper.make_function(
        "mine", "Picked", ["x"], ["out"], inner, [helper.make_opsetid("", 18)], ["slope"]
    )
    made = model(
        [node("Picked", "x", "a", domain="mine", slope=0.5),
         node("Picked", "b", "c", domain="mine", slope=2.0), node("Concat", "a c", "y", axis=0)],
        [tensor("x", [3]), tensor("b", [3])], [tensor("y")], functions=[function],
        domains={"mine": 1},
    )  # fmt: skip
    b = np.array([0, -4, 0], np.float32)
    (y,) = call(import_model(made), x=WITH_ZEROS, b=b)
    np.testing.assert_array_equal(y, [1, 3, -8])


def test_the_rounds_of_a_loop_with_a_shape_from_data():
    """In every round the elements above the round's number are kept, and their sum collected."""
    body = graph(
        [
            node("Cast", "n", "number", to=F32),
            node("Less", "number v", "above"),
            node("Compress", "v above", "kept"),
            node("ReduceSum", "kept", "item", keepdims=0),
            node("Identity", "cond", "goes"),
        ],
        [*ROUND[:2], tensor("v")],
        [tensor("goes", [], BOOL), tensor("kept"), tensor("item")],
    )
    made = model([node("Loop", "count _ x", "last sums", body=body)], [tensor("x", [6])],
                 [tensor("last"), tensor("sums")], {"count": np.array(3)})  # fmt: skip
    same_as_onnxruntime(made, x=np.array([0, 5, 1, 2, 3, 0.5], np.float32))


def test_rounds_and_shapes_from_data_together_are_refused():
    body = graph(
        [
            node("Less", "one v", "above"),
            node("Compress", "v above", "kept"),
            node("ReduceSum", "kept", "sum", keepdims=0),
            node("Less", "sum hundred", "goes"),
        ],
        [*ROUND[:2], tensor("v")],
        [tensor("goes", [], BOOL), tensor("kept")],
        NUMBERS,
    )
    made = model([node("Loop", "_ _ x", "y", body=body)], [tensor("x", [3])], [tensor("y")])
    with pytest.raises(UnsupportedError) as raised:
        import_model(made)
    assert "the number of rounds and a shape inside the loop depend on data" in str(raised.value)


# ------------------------------------------------------------------------------------ messages
@pytest.mark.parametrize("known", [True, False])
def test_a_shape_that_a_branch_computes(known):
    """The stages are cut inside the branch."""
    largest = [
        node("ArgMax", "x", "place", axis=0, keepdims=1),
        node("Expand", "one place", "t"),
    ]
    condition = {"c": np.array(True)} if known else {}
    made = model(
        [choosing(largest, [node("Neg", "x", "e")])],
        [tensor("x", [100]), *([] if known else [tensor("c", [], BOOL)])],
        [tensor("y")],
        {"one": np.ones(1, np.float32), **condition},
    )
    x = np.zeros(100, np.float32)
    x[7] = 1
    inputs = {"x": x} if known else {"x": x, "c": np.array(True)}
    imported = import_model(made, {} if known else {"c": np.array(True)})
    (y,) = call(imported, **inputs)
    np.testing.assert_array_equal(y, np.ones(7))


def test_a_shape_in_a_scan_that_changes_from_step_to_step_is_refused():
    """It depends on a slice, which is no input of the model: no example of one is asked for."""
    body = graph(
        [node("ArgMax", "piece", "place", axis=0, keepdims=1), node("Expand", "one place", "o")],
        [tensor("piece", [4])],
        [tensor("o")],
        {"one": np.ones(1, np.float32)},
    )
    made = model([node("Scan", "x", "y", body=body, num_scan_inputs=1)], [tensor("x", [3, 4])],
                 [tensor("y")])  # fmt: skip
    with pytest.raises(UnsupportedError) as raised:
        import_model(made)
    assert "values that change from round to round" in raised.value.details[0]


def test_a_shape_from_many_numbers_is_refused_without_a_wrong_hint():
    """No example of x helps: so many numbers are data, and no size."""
    made = model([node("Expand", "one x", "y")], [tensor("x", [5000], I64)], [tensor("y")],
                 {"one": np.ones(1, np.float32)})  # fmt: skip
    with pytest.raises(ModelError, match=r"the value of 'x' \(i64\[5000\]\)") as raised:
        import_model(made, {"x": np.ones(5000, np.int64)})
    assert raised.value.hint is None


def test_a_condition_without_an_example_names_the_input():
    made = model(
        [choosing([node("Concat", "x x", "t", axis=0)], [node("Neg", "x", "e")])],
        [tensor("x", [3]), tensor("c", [], BOOL)],
        [tensor("y")],
    )
    with pytest.raises(ModelError, match="depends on the value of 'c'") as raised:
        import_model(made)
    assert raised.value.hint == "give an example array for 'c'"
