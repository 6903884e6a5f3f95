"""Results are judged by what rounding can do: no more is accepted, and no less."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tools.graph_fuzz.evaluate import noisy_runs, reference_runs
from tools.graph_fuzz.judge import Expectation
from tools.graph_fuzz.rounding import Noise, is_exact
from whet.core.dtypes import DType, bf16, f16, f32, f64
from whet.core.types import Array
from whet.frontend.onnx import import_model


def expectation(
    nodes: list[tuple[str, list[str], str]], *, closely: bool = False, **inputs: Array
) -> Expectation:
    """What the outputs of a model of these nodes may be; the last node's is the output.

    `closely` adds the runs that are made before a result is called wrong.
    """
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    settings = {"Cast": {"to": TensorProto.BOOL}, "RNN": {"hidden_size": 3}}
    made = [helper.make_node(op, reads, [y], **settings.get(op, {})) for op, reads, y in nodes]
    out = helper.make_empty_tensor_value_info(nodes[-1][2])
    model = helper.make_model(helper.make_graph(made, "g", infos, [out]),
                              opset_imports=[helper.make_opsetid("", 23)])  # fmt: skip
    imported = import_model(model, inputs)
    flat = imported.flatten([inputs[p.name] for p in imported.arguments])
    runs = [*reference_runs(imported, flat), *noisy_runs(imported, flat, 3, seed=1)]
    if closely:
        runs += noisy_runs(imported, flat, 24, seed=1, amplitude=12.0, everywhere=True)
    return Expectation.of(runs)


GRID = np.array([0.5, -1.25, 2.5, 3.0, -0.5, 1.5], np.float32)
ANY = np.array([0.1, 0.7, -1.3, 2.9, 1 / 3, -0.77], np.float32)


def test_exact_arithmetic_leaves_no_room() -> None:
    allowed = expectation([("Add", ["x", "x"], "s"), ("Round", ["s"], "y")], x=GRID)
    right = np.rint(GRID + GRID)
    assert allowed.mismatch([right]) is None
    assert allowed.mismatch([np.nextafter(right, np.inf, dtype=np.float32) + 1e-6]) is not None
    assert allowed.loose() == 0


def test_rounding_is_accepted_and_more_is_not() -> None:
    allowed = expectation([("Exp", ["x"], "e"), ("ReduceSum", ["e"], "y")], x=ANY)
    right = np.exp(ANY.astype(np.float64)).sum(keepdims=True)
    for factor, fine in ((1 + 1e-7, True), (1 - 2e-7, True), (1 + 2e-5, False)):
        got = (right * factor).astype(np.float32)
        assert (allowed.mismatch([got]) is None) == fine


def test_what_cancels_may_be_off_by_more() -> None:
    """(x + 1000) - 1000 keeps three digits less than x."""
    big = np.full(6, 1000, np.float32)
    allowed = expectation([("Add", ["x", "b"], "s"), ("Sub", ["s", "b"], "y")], x=ANY, b=big)
    assert allowed.mismatch([(ANY + big) - big]) is None
    assert allowed.mismatch([ANY + np.float32(5e-5)]) is None
    assert allowed.mismatch([ANY + np.float32(5e-3)]) is not None


@pytest.mark.parametrize("node", [
    ("LayerNormalization", ["x", "scale", "bias"], "n"),
    ("InstanceNormalization", ["x", "scale", "bias"], "n"),
])  # fmt: skip
def test_a_mean_is_off_for_a_whole_row(node: tuple[str, list[str], str]) -> None:
    """Of numbers near 1000 by a few units of 1000, and so is the sum of what is left."""
    x = (1000 + np.random.default_rng(0).uniform(-1, 1, (1, 2, 8))).astype(np.float32)
    size = 8 if node[0] == "LayerNormalization" else 2
    ones, none = np.ones(size, np.float32), np.zeros(size, np.float32)
    sums = [node, ("ReduceMean", ["n", "axis"], "y")]
    allowed = expectation(sums, x=x, scale=ones, bias=none, axis=np.array([2]))
    assert allowed.mismatch([np.full((1, 2, 1), 5e-5, np.float32)]) is None
    assert allowed.mismatch([np.full((1, 2, 1), 5e-3, np.float32)]) is not None


def test_a_tie_that_rounding_decides_may_go_either_way() -> None:
    x = np.array([[0.1, 0.7, 0.2]], np.float32)
    y = np.array([[0.7, 0.1, 0.2]], np.float32)
    thirds = [("Div", ["x", "t"], "a"), ("Mul", ["a", "t"], "b"), ("Equal", ["b", "x"], "y")]
    allowed = expectation(thirds, x=x, t=np.full((1, 3), 3, np.float32))
    assert allowed.mismatch([np.array([[True, False, True]])]) is None
    clear = expectation([("Greater", ["x", "y"], "z")], x=x, y=y)
    assert clear.mismatch([np.array([[False, True, False]])]) is None
    assert clear.mismatch([np.array([[True, True, False]])]) is not None


def test_what_is_smaller_than_its_error_may_be_zero() -> None:
    """x / 2 * (1 + erf(x / sqrt(2))) is -0 in f32 where 1 + erf(...) is rounded to nothing."""
    x = np.array([-5.75, -2], np.float32)
    allowed = expectation([("Gelu", ["x"], "g"), ("Cast", ["g"], "y")], x=x)
    for first, second in ((True, True), (False, True)):
        assert allowed.mismatch([np.array([first, second])]) is None
    assert allowed.mismatch([np.array([True, False])]) is not None


def test_the_bend_of_a_line_is_where_rounding_puts_it() -> None:
    """-3 / 6 + 0.5 need not be zero where 1 / 6 is rounded."""
    allowed = expectation([("HardSwish", ["x"], "y")], x=np.array([-3.0, 0.0]))
    assert allowed.mismatch([np.array([-8e-17, 0.0])]) is None
    assert allowed.mismatch([np.array([-8e-14, 0.0])]) is not None
    assert allowed.mismatch([np.array([0.0, 8e-17])]) is not None


def test_nan_and_infinities_must_be_where_they_are_expected() -> None:
    x = np.array([1.0, np.nan, np.inf, -np.inf], np.float32)
    allowed = expectation([("Relu", ["x"], "y")], x=x)
    assert allowed.mismatch([np.array([1, np.nan, np.inf, 0], np.float32)]) is None
    for place in range(4):
        wrong = np.array([1, np.nan, np.inf, 0], np.float32)
        wrong[place] = 7
        assert allowed.mismatch([wrong]) is not None


def test_sums_of_huge_numbers_are_open_only_where_they_may_overflow() -> None:
    """Also those of means, which are formed before they are divided."""
    x = np.array([[3.4e38, 3.4e38, -np.inf, 1], [1, 2, -np.inf, 3]], np.float32)
    allowed = expectation([("ReduceMean", ["x", "axis"], "y")], x=x, axis=np.array([1]))
    for first in (np.nan, -np.inf):
        assert allowed.mismatch([np.array([[first], [-np.inf]], np.float32)]) is None
    assert allowed.mismatch([np.array([[-np.inf], [np.nan]], np.float32)]) is not None


def test_spectra_of_huge_numbers_are_open() -> None:
    nodes = [("DFT", ["x", "", "axis"], "y")]
    nothing = np.full((1, 8, 2), -np.inf, np.float32)
    for size, is_open in ((3.4e38, True), (1e30, False)):
        x = np.array([0, 0, 0, size, size, 0, 0, size], np.float32).reshape(1, 8, 1)
        allowed = expectation(nodes, x=x, axis=np.array(1))
        assert (allowed.mismatch([nothing]) is None) == is_open


def test_attention_is_open_where_its_scores_overflow() -> None:
    ones = np.ones((1, 1, 2, 4), np.float32)
    for size, is_open in ((1e20, True), (1e10, False)):
        nodes = [("Attention", ["q", "k", "v"], "y")]
        allowed = expectation(nodes, q=ones * np.float32(size), k=ones * np.float32(size), v=ones)
        assert (allowed.mismatch([ones * np.float32(np.nan)]) is None) == is_open


def test_determinants_of_huge_numbers_are_open() -> None:
    for size, is_open in ((1e20, True), (1e10, False)):
        allowed = expectation([("Det", ["x"], "y")], x=np.diag([size, 1e-3]).astype(np.float32))
        assert (allowed.mismatch([np.array(np.inf, np.float32)]) is None) == is_open


def test_functions_may_reach_their_limit_somewhat_early() -> None:
    """A hyperbolic tangent of 1 - 2e-7 may be 1, whose arc cosine is 0."""
    nodes = [("Tanh", ["x"], "t"), ("Acos", ["t"], "a"), ("Cast", ["a"], "y")]
    allowed = expectation(nodes, closely=True, x=np.array([8.1, 4.0], np.float32))
    for first in (True, False):
        assert allowed.mismatch([np.array([first, True])]) is None
    assert allowed.mismatch([np.array([True, False])]) is not None


def test_batch_norm_is_open_only_where_its_factor_overflows() -> None:
    x = np.zeros((1, 2), np.float32)
    parameters = {
        "scale": np.array([3.4e38, 2], np.float32),
        "bias": np.array([1, 1], np.float32),
        "mean": np.array([0, 0], np.float32),
        "var": np.array([0, 1], np.float32),
    }
    node = ("BatchNormalization", ["x", *parameters], "y")
    allowed = expectation([node], x=x, **parameters)
    assert allowed.mismatch([np.array([[np.nan, 1]], np.float32)]) is None
    assert allowed.mismatch([np.array([[1, np.nan]], np.float32)]) is not None


def test_a_sequence_is_open_only_where_its_gates_overflow() -> None:
    x = np.array([[[2, 1], [0, 1]]], np.float32)
    w = np.full((1, 3, 2), [3e38, -1], np.float32)
    nodes = [("RNN", ["x", "w", "r"], "y")]
    allowed = expectation(nodes, x=x, w=w, r=np.zeros((1, 3, 3), np.float32))
    known = np.tanh(np.full(3, -1, np.float32))
    assert allowed.mismatch([np.array([[[[np.nan] * 3, known]]], np.float32)]) is None
    assert allowed.mismatch([np.array([[[known, [np.nan] * 3]]], np.float32)]) is not None


def test_infinite_weights_that_are_given_leave_a_transposed_convolution_open() -> None:
    x = np.ones((1, 1, 4), np.float32)
    node = ("ConvTranspose", ["x", "w"], "y")
    nothing = np.full((1, 1, 6), np.nan, np.float32)
    infinite = expectation([node], x=x, w=np.array([[[1, np.inf, 1]]], np.float32))
    assert infinite.mismatch([nothing]) is None
    finite = expectation([node], x=x, w=np.array([[[1, 2, 1]]], np.float32))
    assert finite.mismatch([nothing]) is not None


def test_shapes_types_and_counts_are_compared() -> None:
    allowed = expectation([("Neg", ["x"], "y")], x=GRID)
    assert "shape" in str(allowed.mismatch([-GRID[:3]]))
    assert "element type" in str(allowed.mismatch([(-GRID).astype(np.float64)]))
    assert "2 outputs" in str(allowed.mismatch([-GRID, -GRID]))


@pytest.mark.parametrize("dtype", [f64, f32, f16, bf16], ids=str)
def test_noise_is_a_few_units_of_rounding(dtype: DType) -> None:
    numbers = np.random.default_rng(0).uniform(1, 2, 1000).astype(dtype.numpy).astype(np.float64)
    moved = Noise(np.random.default_rng(1), amplitude=2.0).moved(numbers, dtype)
    bits = {f64: 53, f32: 24, f16: 11, bf16: 8}[dtype]
    off = np.abs(moved / numbers - 1) * 2.0**bits
    assert 1.5 < off.max() <= (4 if dtype == f64 else 2.01)  # which is rounded to f64 itself
    eighths = np.arange(-40, 40) / 8
    assert is_exact(eighths, dtype).all()
    assert not is_exact(np.array([1 / 3]), dtype).any()
