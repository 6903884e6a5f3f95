"""If, Loop, sequences and optionals: resolved at import, as far as constants tell."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.frontend.small_models import BOOL, F32, I64, call, graph, model, node, run, tensor
from whet.core.errors import UnsupportedError
from whet.frontend.onnx import import_model
from whet.graph.graph import Graph

X = np.array([1.0, -2.0, 3.0], np.float32)


def operators(made: Graph) -> list[str]:
    return [n.op.name for n in made.nodes]


# ------------------------------------------------------------------------------------------ If
def branching(then: object, other: object) -> object:
    return model(
        [
            node(
                "If",
                "c",
                "y",
                then_branch=graph([then], [], [tensor("t")]),
                else_branch=graph([other], [], [tensor("e")]),
            )
        ],
        [tensor("x", [3]), tensor("c", [], BOOL)],
        [tensor("y")],
    )


def test_a_known_condition_takes_the_branch():
    made = branching(node("Neg", "x", "t"), node("Mystery", "x", "e"))
    made.graph.node[0].input[0] = "always"
    made.graph.initializer.append(helper.make_tensor("always", BOOL, [], [True]))
    del made.graph.input[1]
    imported = import_model(made)
    assert operators(imported.graph) == ["neg"]


def test_an_unknown_condition_computes_both_branches_and_selects():
    made = branching(node("Neg", "x", "t"), node("Abs", "x", "e"))
    imported = import_model(made)
    assert sorted(operators(imported.graph)) == ["abs", "neg", "where"]
    assert not imported.guards
    np.testing.assert_array_equal(call(imported, x=X, c=np.array(True))[0], -X)
    np.testing.assert_array_equal(call(imported, x=X, c=np.array(False))[0], abs(X))


def test_branches_of_different_shape_are_decided_by_the_example():
    made = branching(node("Concat", "x x", "t", axis=0), node("Abs", "x", "e"))
    imported = import_model(made, {"c": np.array(True)})
    assert list(imported.guards) == ["c"]
    np.testing.assert_array_equal(call(imported, x=X, c=np.array(True))[0], np.concatenate([X, X]))


# ---------------------------------------------------------------------------------------- Loop
def power_loop(count: object, keep_going: str = "cond") -> object:
    """v <- v * x, `count` times; collects v."""
    body = graph(
        [
            node("Mul", "v x", "next"),
            node("Identity", "next", "item"),
            node("Less", "n limit", "go_on"),
            node("Identity", keep_going, "out"),
        ],
        [tensor("n", [], I64), tensor("cond", [], BOOL), tensor("v", [3])],
        [tensor("out", [], BOOL), tensor("next"), tensor("item")],
        {"limit": np.array(2)},
    )
    return model(
        [node("Loop", "count _ x", "last all", body=body)],
        [tensor("x", [3])],
        [tensor("last"), tensor("all")],
        {"count": np.array(count)},
    )


def test_a_loop_with_a_known_count_is_unrolled():
    last, collected = run(power_loop(3), x=X)
    np.testing.assert_allclose(last, X**4)
    np.testing.assert_allclose(collected, np.stack([X**2, X**3, X**4]))


def test_a_loop_ends_when_its_condition_folds_to_false():
    last, collected = run(power_loop(100, keep_going="go_on"), x=X)
    assert collected.shape == (3, 3)
    np.testing.assert_allclose(last, X**4)


def test_a_loop_of_no_rounds():
    last, collected = run(power_loop(0), x=X)
    np.testing.assert_array_equal(last, X)
    assert collected.shape == (0, 3)


def test_an_endless_loop_is_refused():
    with pytest.raises(UnsupportedError, match="1 node") as raised:
        import_model(power_loop(1 << 40))
    assert "more than 16777216 rounds" in raised.value.details[0]


# ----------------------------------------------------------------------------------- sequences
def test_sequences_leave_only_tensors():
    made = model(
        [
            node("SplitToSequence", "x", "s", axis=0, keepdims=0),
            node("SequenceAt", "s minus", "last"),
            node("SequenceErase", "s zero", "rest"),
            node("SequenceInsert", "rest last zero", "turned"),
            node("SequenceLength", "turned", "n"),
            node("ConcatFromSequence", "turned", "y", axis=0, new_axis=1),
        ],
        [tensor("x", [3, 2])],
        [tensor("y"), tensor("n", [], I64)],
        {"minus": np.array(-1), "zero": np.array(0)},
    )
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    y, n = run(made, x=x)
    np.testing.assert_array_equal(y, x[[2, 1, 2]])
    assert n == 3


@pytest.mark.parametrize("split", [np.array(2), np.array([1, 4])])
def test_split_to_sequence(split):
    made = model(
        [node("SplitToSequence", "x split", "s")],
        [tensor("x", [5])],
        [helper.make_tensor_sequence_value_info("s", F32, None)],
        {"split": split},
    )
    x = np.arange(5, dtype=np.float32)
    (parts,) = run(made, x=x)
    expected = np.split(x, [2, 4] if split.ndim == 0 else [1])
    assert len(parts) == len(expected)
    for got, wanted in zip(parts, expected):
        np.testing.assert_array_equal(got, wanted)


def test_sequences_go_in_and_out():
    body = graph([node("Neg", "item", "negative")], [tensor("item")], [tensor("negative")])
    made = model(
        [node("SequenceMap", "s", "y", body=body)],
        [helper.make_tensor_sequence_value_info("s", F32, None)],
        [helper.make_tensor_sequence_value_info("y", F32, None)],
    )
    s = [X, np.ones((2, 2), np.float32)]
    imported = import_model(made, {"s": s})
    assert [i.name for i in imported.inputs] == ["s[0]", "s[1]"]
    (y,) = call(imported, s=s)
    np.testing.assert_array_equal(y[0], -X)
    np.testing.assert_array_equal(y[1], -np.ones((2, 2)))


def test_a_position_outside_a_sequence_is_refused():
    made = model(
        [node("SequenceConstruct", "x x", "s"), node("SequenceAt", "s two", "y")],
        [tensor("x", [3])],
        [tensor("y")],
        {"two": np.array(2)},
    )
    with pytest.raises(UnsupportedError) as raised:
        import_model(made)
    assert "position 2 is outside a sequence of 2 items" in raised.value.details[0]


# ----------------------------------------------------------------------------------- optionals
@pytest.mark.parametrize("value", [X, None])
def test_optionals(value):
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(F32, [3]))
    made = model(
        [node("OptionalHasElement", "o", "there")],
        [helper.make_value_info("o", kind)],
        [tensor("there", [], BOOL)],
    )
    (there,) = run(made, o=value)
    assert there == (value is not None)
