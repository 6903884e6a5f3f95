"""Importing: inputs and their types, notes, specialised values, what is refused and how."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontend.small_models import BOOL, I64, call, graph, model, node, run, tensor
from whet.core.errors import ModelError, UnsupportedError, UsageError
from whet.frontend.onnx import import_model

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def adder(*dims: object) -> onnx.ModelProto:
    return model([node("Add", "x x", "y")], [tensor("x", dims)], [tensor("y")])


# ------------------------------------------------------------------------------------- loading
def test_a_model_is_a_path_bytes_or_a_proto(tmp_path):
    made = adder(2, 3)
    path = tmp_path / "adder.onnx"
    path.write_bytes(made.SerializeToString())
    for source in (made, made.SerializeToString(), path, str(path)):
        (y,) = run(source, x=X)
        np.testing.assert_array_equal(y, X + X)


@pytest.mark.parametrize(
    "content", [b"", b"not a model", b"\x08\x07", adder(2).SerializeToString()[:40]]
)
def test_a_file_that_is_no_model(tmp_path, content):
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError) as raised:
        import_model(path)
    assert raised.value.code == "WH2001"
    assert "broken.onnx" in raised.value.message


def test_paths_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "missing.onnx", tmp_path, "null\0character"):
        with pytest.raises(ModelError) as raised:
            import_model(path)
        assert raised.value.code == "WH2001"


def test_something_else_is_no_model():
    with pytest.raises(UsageError, match="not int"):
        import_model(3)


# -------------------------------------------------------------------------------------- inputs
def test_open_dimensions_become_one_with_a_note():
    notes: list[str] = []
    imported = import_model(adder("batch", 3, None), note=notes.append)
    assert imported.inputs[0].type.shape == (1, 3, 1)
    assert notes == list(imported.notes)
    assert notes == [
        "dimension 'batch' of input 'x' is not given and set to 1",
        "dimension 2 of input 'x' is not given and set to 1",
    ]


def test_a_symbol_has_one_value():
    made = model(
        [node("MatMul", "a b", "y")],
        [tensor("a", ["n", "k"]), tensor("b", ["k", "m"])],
        [tensor("y")],
    )
    imported = import_model(made, {"a": (2, 5)})
    assert [i.type.shape for i in imported.inputs] == [(2, 5), (5, 1)]
    assert imported.notes == ("dimension 'm' of input 'b' is not given and set to 1",)
    with pytest.raises(UsageError, match="dimension 'k' is 5 in 'a' and 4 in 'b'"):
        import_model(made, {"a": (2, 5), "b": (4, 3)})


def test_a_question_mark_is_no_symbol():
    assert import_model(adder("?", "?"), {"x": (2, 3)}).inputs[0].type.shape == (2, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"z": (1,)}, "no input 'z'"),
        ({"x": (2, 4)}, r"input 'x' is f32\[n, 3\], the given shape is \[2, 4\]"),
        ({"x": (3,)}, r"the given shape is \[3\]"),
        ({"x": np.zeros((2, 3))}, "elements of type f32, the example is float64"),
        ({"x": "2x3"}, "was given as str"),
    ],
)
def test_inputs_that_do_not_fit(given, message):
    with pytest.raises(UsageError, match=message) as raised:
        import_model(adder("n", 3), given)
    assert raised.value.code == "WH2007"


def test_an_input_of_unknown_rank_needs_a_shape():
    made = model([node("Neg", "x", "y")], [tensor("x")], [tensor("y")])
    with pytest.raises(UsageError, match="how many dimensions the input 'x' has"):
        import_model(made)
    assert import_model(made, {"x": (4,)}).inputs[0].type.shape == (4,)


def test_an_initializer_that_is_listed_as_an_input_is_a_constant():
    made = model(
        [node("Add", "x w", "y")],
        [tensor("x", [2]), tensor("w", [2])],
        [tensor("y")],
        {"w": np.float32([1, 2])},
    )
    assert [i.name for i in import_model(made).inputs] == ["x"]
    (y,) = run(made, x=np.float32([1, 1]), w=np.float32([5, 6]))
    np.testing.assert_array_equal(y, [6, 7])


# ------------------------------------------------------------------ shapes that depend on values
def reshaper() -> onnx.ModelProto:
    return model(
        [node("Reshape", "x shape", "y")],
        [tensor("x", [6]), tensor("shape", ["rank"], I64)],
        [tensor("y")],
    )


def test_an_input_that_determines_a_shape_is_specialised_and_guarded():
    x = np.arange(6, dtype=np.float32)
    imported = import_model(reshaper(), {"shape": np.array([2, 3])})
    assert [(i.name, i.specialised) for i in imported.inputs] == [("x", False), ("shape", True)]
    assert [v.name for v in imported.graph.inputs] == ["x"]
    np.testing.assert_array_equal(imported.guards["shape"], [2, 3])
    (y,) = call(imported, x=x, shape=np.array([2, 3]))
    np.testing.assert_array_equal(y, x.reshape(2, 3))
    assert imported.guards_hold([x, np.array([2, 3])])
    assert not imported.guards_hold([x, np.array([3, 2])])


def test_without_an_example_the_error_names_the_input():
    with pytest.raises(ModelError) as raised:
        import_model(reshaper(), {"shape": (2,)})
    assert raised.value.code == "WH2005"
    assert "'shape'" in raised.value.message
    assert raised.value.hint == "give an example array for 'shape'"


def test_scales_of_a_resize_are_specialised():
    made = model(
        [node("Resize", "x _ scales", "y", mode="nearest")],
        [tensor("x", [1, 1, 2, 2]), tensor("scales", [4])],
        [tensor("y")],
    )
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    (y,) = run(made, x=x, scales=np.float32([1, 1, 2, 2]))
    assert y.shape == (1, 1, 4, 4)


# -------------------------------------------------------------------------------- what is refused
def test_all_unsupported_parts_are_reported_at_once():
    made = model(
        [
            node("StringNormalizer", "text", "t"),
            node("Mystery", "x", "a", domain="some.where"),
            node("Mystery", "a", "b", domain="some.where"),
            node("ImageDecoder", "bytes", "image"),
            node("Relu", "b", "y"),
        ],
        [tensor("x", [2]), tensor("text", [1], onnx.TensorProto.STRING), tensor("bytes", [9], 2)],
        [tensor("y")],
        opset=20,
        domains={"some.where": 1},
    )
    with pytest.raises(UnsupportedError) as raised:
        import_model(made)
    assert raised.value.exit_code == 3
    assert str(raised.value).splitlines() == [
        "WH2002 the model has 4 nodes that whet does not support",
        "  1x StringNormalizer(?): the operator is not supported (node 'StringNormalizer_t')",
        "  1x some.where.Mystery(f32): the operator is not supported (node 'Mystery_a')",
        "  1x some.where.Mystery(?): the operator is not supported (node 'Mystery_b')",
        "  1x ImageDecoder(u8): the operator is not supported (node 'ImageDecoder_image')",
    ]


def test_an_output_of_a_type_that_whet_does_not_have():
    text = tensor("x", [1], onnx.TensorProto.STRING)
    made = model([node("Identity", "x", "y")], [text], [tensor("y", [1], onnx.TensorProto.STRING)])
    with pytest.raises(UnsupportedError, match=r"'y': values of type string\[1\]"):
        import_model(made)


def test_element_types_behind_an_unsupported_node_are_known_where_the_operator_says_them():
    made = model(
        [
            node("Imputer", "x", "a", domain="ai.onnx.ml"),
            node("Mystery", "a", "b", domain="some.where"),
        ],
        [tensor("x", [1, 2])],
        [tensor("b")],
        domains={"some.where": 1, "ai.onnx.ml": 1},
    )
    with pytest.raises(UnsupportedError) as raised:
        import_model(made)
    assert [line.split(":")[0] for line in raised.value.details] == [
        "1x ai.onnx.ml.Imputer(f32)",
        "1x some.where.Mystery(f32)",
    ]


def declaring(output: onnx.ValueInfoProto, *values: onnx.ValueInfoProto) -> onnx.ModelProto:
    """y = abs(h), h = -x with x: f32[2, 3], and what is declared of y and of h."""
    return model(
        [node("Neg", "x", "h"), node("Abs", "h", "y")],
        [tensor("x", [2, 3])],
        [output],
        values=values,
    )


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (declaring(tensor("y", [2, 3], I64)), r"'y' as i64\[2, 3\], but it is f32\[2, 3\]"),
        (declaring(tensor("y"), tensor("h", [9], I64)), r"'h' as i64\[9\], but it is f32\[2, 3\]"),
    ],
)
def test_declared_element_types_that_contradict_the_inferred_ones(made, message):
    with pytest.raises(ModelError, match=message) as raised:
        import_model(made)
    assert raised.value.code == "WH2003"


@pytest.mark.parametrize(
    ("made", "notes"),
    [
        (declaring(tensor("y", [2])), ["'y' as f32[2], but it is f32[2, 3]"]),
        (declaring(tensor("y", [2, 4])), ["'y' as f32[2, 4], but it is f32[2, 3]"]),
        (declaring(tensor("y"), tensor("h", [9, 3])), ["'h' as f32[9, 3], but it is f32[2, 3]"]),
        (
            declaring(tensor("y", [1, "seqlen"]), tensor("h", [1])),
            [
                "'y' as f32[1, seqlen], but it is f32[2, 3]",
                "'h' as f32[1], but it is f32[2, 3]",
            ],
        ),
    ],
)
def test_declared_shapes_that_contradict_the_inferred_ones_are_noted(made, notes):
    heard: list[str] = []
    imported = import_model(made, note=heard.append)
    assert heard == [f"the model declares {text}" for text in notes]
    assert imported.notes == tuple(heard)
    (y,) = call(imported, x=np.full((2, 3), -2, np.float32))
    np.testing.assert_array_equal(y, np.full((2, 3), 2, np.float32))


def test_many_stale_shapes_inside_a_model_are_one_note():
    nodes = [node("Neg", f"h{n}", f"h{n + 1}") for n in range(5)]
    stale = [tensor(f"h{n}", [7]) for n in range(1, 5)]
    made = model(nodes, [tensor("h0", [2])], [tensor("h5")], values=stale)
    assert import_model(made).notes == (
        "the model declares 'h1' as f32[7], but it is f32[2]; likewise 3 other values inside it",
    )


def test_inputs_that_contradict_their_declaration_are_refused():
    with pytest.raises(UsageError, match=r"input 'x' is f32\[2, 3\], the given shape is \[2, 4\]"):
        import_model(declaring(tensor("y")), {"x": (2, 4)})


def test_declared_symbols_are_no_contradiction():
    made = model([node("Neg", "x", "y")], [tensor("x", ["a", "b"])], [tensor("y", ["c", None])])
    assert import_model(made, {"x": (2, 3)}).graph.outputs[0].type.shape == (2, 3)


def broken(*nodes: onnx.NodeProto, output: str = "y") -> onnx.ModelProto:
    return model(list(nodes), [tensor("x", [2])], [tensor(output)])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (broken(node("Add", "x b", "a"), node("Neg", "a", "b"), output="b"), "a cycle or"),
        (broken(node("Neg", "nowhere", "y")), "reads 'nowhere', which nothing produces"),
        (broken(node("Neg", "x", "y"), node("Abs", "x", "y")), "'y' a second time"),
        (broken(node("Neg", "x", "z")), "nothing produces the output 'y'"),
        (broken(node("Add", "x", "y")), "has 1 inputs, its operator 2 to 2"),
        (broken(node("Add", "x _", "y")), "leaves out an input"),
        (broken(node("Neg", "x", "y", axis=1)), "unknown attribute 'axis'"),
        (broken(node("Concat", "x x", "y", axis="one")), "'axis' of Concat node .* wrong type"),
        (broken(node("Concat", "x x", "y")), "lacks the attribute 'axis'"),
        (broken(node("Mystery", "x", "y", domain="far.away")), "no operator set 'far.away'"),
    ],
)
def test_models_that_are_inconsistent(made, message):
    with pytest.raises(ModelError) as raised:
        import_model(made)
    assert raised.value.code == "WH2003"
    assert re.search(message, str(raised.value))


def test_names_must_be_text():
    data = bytearray(broken(node("Neg", "x", "y")).SerializeToString())
    data[data.index(b"Neg_y")] = 0xFF
    with pytest.raises(ModelError, match="not text"):
        import_model(bytes(data))


def test_an_opset_from_the_future():
    newest = onnx.defs.onnx_opset_version()
    made = model([node("Neg", "x", "y")], [tensor("x", [1])], [tensor("y")], opset=newest)
    made.opset_import[0].version = newest + 1
    with pytest.raises(UnsupportedError, match=f"opset {newest + 1}"):
        import_model(made)


def test_an_older_opset_is_read_where_it_means_the_same():
    def made(op: str, inputs: str) -> onnx.ModelProto:
        return model([node(op, inputs, "y")], [tensor("x", [2])], [tensor("y")], opset=6)

    run(made("Relu", "x"), x=np.float32([1, -1]))
    with pytest.raises(UnsupportedError, match="opset 6 defines it unlike opset 7"):
        import_model(made("Add", "x x"))


def test_operator_errors_name_the_node():
    made = model(
        [node("Add", "x w", "y")], [tensor("x", [2])], [tensor("y")], {"w": np.ones(3, np.float32)}
    )
    with pytest.raises(ModelError, match=r"Add node 'Add_y': shapes \[2\] and \[3\]"):
        import_model(made)


def test_a_small_file_cannot_describe_an_endless_model(monkeypatch):
    """Functions that call each other twice: 2^n nodes after inlining."""
    monkeypatch.setattr("whet.frontend.onnx.convert.MAX_CONVERTED", 5000)
    functions = [
        helper.make_function(
            "f",
            f"f{n}",
            ["x"],
            ["y"],
            [node(f"f{n + 1}", "x", "t", domain="f"), node(f"f{n + 1}", "t", "y", domain="f")],
            [helper.make_opsetid("f", 1)],
        )
        for n in range(20)
    ]
    functions.append(
        helper.make_function(
            "f", "f20", ["x"], ["y"], [node("Neg", "x", "y")], [helper.make_opsetid("", 18)]
        )
    )
    made = model(
        [node("f0", "x", "y", domain="f")],
        [tensor("x", [1])],
        [tensor("y")],
        functions=functions,
        domains={"f": 1},
    )
    with pytest.raises(ModelError, match="after unrolling and inlining"):
        import_model(made)


def test_nesting_has_a_limit():
    inner = graph([node("Identity", "x", "y0")], [], [tensor("y0")])
    for n in range(1, 30):
        then = node("If", "c", f"y{n}", then_branch=inner, else_branch=graph([], [], [tensor("x")]))
        inner = graph([then], [], [tensor(f"y{n}")])
    made = model(list(inner.node), [tensor("x", [1]), tensor("c", [], BOOL)], [tensor("y29")])
    with pytest.raises(ModelError, match="nested too deeply"):
        import_model(made)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            model([node("SplitToSequence", "x", "s")], [tensor("x", [])], [tensor("s")]),
            "a scalar cannot be split",
        ),
        (
            model(
                [node("GRU", "x w r", "y", hidden_size=2)],
                [tensor("x", [3, 2])],
                [tensor("y")],
                {"w": np.zeros((1, 6, 2), np.float32), "r": np.zeros((1, 6, 2), np.float32)},
            ),
            r"the input is f32\[3, 2\]",
        ),
        (
            model(
                [
                    node("Scan", "x", "y", num_scan_inputs=1,
                         body=graph([node("Neg", "a", "b")], [tensor("a")], [tensor("b")])),
                ],
                [tensor("x", [])],
                [tensor("y")],
            ),
            "a scalar has no steps",
        ),
        (
            model(
                [node("Resize", "x _ scales", "y")],
                [tensor("x", [1, 2])],
                [tensor("y")],
                {"scales": np.float32([1, np.nan])},
            ),
            "2 finite numbers",
        ),
    ],
)  # fmt: skip
def test_shapes_and_numbers_that_an_operator_cannot_have(made, message):
    with pytest.raises((ModelError, UnsupportedError)) as raised:
        import_model(made)
    assert re.search(message, str(raised.value))


def test_shape_arithmetic_of_exporters_folds_away():
    """x.view(x.size(0), -1, heads, x.size(-1) // heads).transpose(1, 2), as it is exported."""
    steps = [
        node("Shape", "x", "shape"),
        node("Gather", "shape first", "batch", axis=0),
        node("Shape", "x", "again"),
        node("Gather", "again last", "width", axis=0),
        node("Constant", "", "heads", value_int=2),
        node("Div", "width heads", "size"),
        node("Cast", "size", "cast", to=I64),
        *(node("Unsqueeze", f"{name} zero", f"{name}1") for name in ("batch", "heads", "cast")),
        node("Concat", "batch1 rest heads1 cast1", "target", axis=0),
        node("Reshape", "x target", "split"),
        node("Transpose", "split", "y", perm=[0, 2, 1, 3]),
    ]
    constants = {
        "first": np.array(0),
        "last": np.array(-1),
        "zero": np.array([0]),
        "rest": np.array([-1]),
    }
    made = model(steps, [tensor("x", ["batch", "length", 6])], [tensor("y")], constants)
    imported = import_model(made, {"x": (2, 5, 6)})
    assert [n.op.name for n in imported.graph.nodes] == ["reshape", "transpose"]
    x = np.arange(60, dtype=np.float32).reshape(2, 5, 6)
    (y,) = call(imported, x=x)
    np.testing.assert_array_equal(y, x.reshape(2, 5, 2, 3).swapaxes(1, 2))
