"""Matrix products, einsum and convolutions against ONNX Runtime and against plain loops."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from whet.core.dtypes import f16, f32
from whet.core.errors import OperatorError, UnsupportedError
from whet.core.types import Array, TensorType
from whet.frontend.onnx.nodes.contraction import explicit_terms
from whet.ops import conv as conv_module
from whet.ops.conv import Conv, ConvTranspose
from whet.ops.einsum import Einsum
from whet.ops.matmul import MatMul, matrix_product
from whet.ops.patch import DeformConv

Compare = Callable[..., None]


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


# ------------------------------------------------------------------------------------ products
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((3,), (2, 3, 4)),
        ((5, 2, 3), (3,)),
        ((2, 1, 4, 3), (5, 3, 2)),
        ((0, 3), (3, 2)),
    ],
)
def test_matmul_shapes(a: Any, b: Any, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(0)
    same_as_onnxruntime("MatMul", [normal(rng, *a), normal(rng, *b)], opset=13)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize("high", [100, 2**30])
def test_integer_products_wrap(dtype: Any, high: int) -> None:
    """Large values must not take the way through floating point."""
    rng = np.random.default_rng(high)
    a, b = (rng.integers(high // 2, high, s).astype(dtype) for s in ((4, 64), (64, 3)))
    expected = [[sum(int(x) * int(y) for x, y in zip(r, c)) for c in b.T] for r in a]
    modulus = 1 << (8 * np.dtype(dtype).itemsize)
    got = matrix_product(a, b)
    assert got.dtype == dtype
    assert [[int(v) % modulus for v in row] for row in got] == [
        [v % modulus for v in row] for row in expected
    ]


def test_half_precision_sums_in_f32() -> None:
    """2048 + 1 is not representable in f16, so a sum in f16 would stay at 2048."""
    ones = np.ones((1, 4096), np.float16)
    (result,) = MatMul().run_reference((ones, ones.T))
    assert result.dtype == np.float16
    assert result[0, 0] == 4096


@pytest.mark.parametrize("bias", [None, (3, 4), (1, 4), (4,), (), (3, 1)])
@pytest.mark.parametrize("opset", [11, 13])
def test_gemm(bias: Any, opset: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(1)
    for trans_a, trans_b in product((0, 1), repeat=2):
        a = normal(rng, *((5, 3) if trans_a else (3, 5)))
        b = normal(rng, *((4, 5) if trans_b else (5, 4)))
        inputs = [a, b] if bias is None else [a, b, normal(rng, *bias)]
        same_as_onnxruntime("Gemm", inputs, opset=opset, transA=trans_a, transB=trans_b,
                            alpha=0.5, beta=-2.0)  # fmt: skip


# -------------------------------------------------------------------------------------- einsum
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ba", [(2, 3)]),
        (" i j , k j -> k i ", [(2, 3), (4, 3)]),
        ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
        ("...ij,...jk", [(2, 1, 2, 3), (5, 3, 4)]),
        ("i...j->...", [(2, 3, 4)]),
        ("...ii->...i", [(2, 3, 3)]),
        ("bhqd,bhkd,bhke->bhqe", [(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)]),
        ("i,j,k->", [(2,), (3,), (4,)]),
        (",ij->ji", [(), (2, 3)]),
    ],
)
def test_einsum(equation: str, shapes: Any, whet_node: Callable[..., list[Array]]) -> None:
    rng = np.random.default_rng(2)
    arrays = [normal(rng, *s) for s in shapes]
    (got,) = whet_node("Einsum", arrays, opset=12, equation=equation)
    expected = np.einsum(equation, *(a.astype(np.float64) for a in arrays))
    np.testing.assert_allclose(got, expected, atol=1e-5, rtol=1e-5)


def test_einsum_terms_align_ellipses_at_the_right() -> None:
    operands, result = explicit_terms(None, "...ij,...jk", [4, 3])  # type: ignore[arg-type]
    assert operands[0][1:2] == operands[1][:1]
    assert result == operands[0][:2] + "ik"


@pytest.mark.parametrize("equation", ["ij,jk", "ij->ii", "ij->ik", "i.->i"])
def test_einsum_refuses_what_is_not_explicit(equation: str) -> None:
    with pytest.raises(OperatorError, match="is not explicit") as caught:
        Einsum(equation).infer_types((TensorType((2, 2), f32),) * (1 + equation.count(",")))
    assert caught.value.code == "WH1104"


# -------------------------------------------------------------------------------- convolutions
def plain_conv(x: Array, w: Array, op: Conv) -> Array:
    """Convolution one output element at a time, in float64."""
    out_type = op.infer(TensorType(x.shape, f32), TensorType(w.shape, f32))
    out = np.zeros(out_type.shape)
    per_group_out, per_group_in = w.shape[0] // op.groups, w.shape[1]
    for n, m, *o in np.ndindex(*out.shape):
        first = m // per_group_out * per_group_in
        for c, *k in np.ndindex(*w.shape[1:]):
            at = [
                i * s + j * d - p for i, s, j, d, p in zip(o, op.strides, k, op.dilations, op.pads)
            ]
            if all(0 <= a < extent for a, extent in zip(at, x.shape[2:])):
                out[(n, m, *o)] += float(x[(n, first + c, *at)]) * float(w[(m, c, *k)])
    return out


def test_convolution_against_loops() -> None:
    rng = np.random.default_rng(3)
    for _ in range(15):
        sample = Conv.sample(rng)
        x, w = (rng.standard_normal(t.shape).astype(np.float32) for t in sample.types)
        assert isinstance(sample.op, Conv)
        (got,) = sample.op.run_reference((x, w))
        np.testing.assert_allclose(got, plain_conv(x, w, sample.op), atol=1e-4)


def test_transposed_convolution_is_the_adjoint() -> None:
    """<conv(x, w), y> = <x, conv_transpose(y, w)>: the filters mean the same in both."""
    rng = np.random.default_rng(4)
    for _ in range(15):
        sample = Conv.sample(rng)
        forward = sample.op
        assert isinstance(forward, Conv)
        x, w = (rng.standard_normal(t.shape) for t in sample.types)
        y = rng.standard_normal(forward.run_reference((x, w))[0].shape)
        window = forward.window(w.shape)
        reached = [
            s * (o - 1) + span - b - e
            for s, o, span, b, e in zip(
                forward.strides, y.shape[2:], window.spans, window.begins, window.ends
            )
        ]
        rest = tuple(i - r for i, r in zip(x.shape[2:], reached))
        back = ConvTranspose(forward.strides, forward.pads, forward.dilations, rest, forward.groups)
        (image,) = back.run_reference((y, w))
        assert image.shape == x.shape
        assert np.isclose((forward.run_reference((x, w))[0] * y).sum(), (x * image).sum())


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv_random(rank: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(rank)
    for _ in range(12):
        groups, per_in, per_out = (int(v) for v in rng.integers(1, 4, 3))
        kernel, strides = ([int(v) for v in rng.integers(1, 4, rank)] for _ in range(2))
        dilations = [int(v) for v in rng.integers(1, 3, rank)]
        pads = [int(v) for v in rng.integers(0, 3, 2 * rank)]
        spatial = [(k - 1) * d + 1 + int(rng.integers(0, 5)) for k, d in zip(kernel, dilations)]
        x = normal(rng, 2, groups * per_in, *spatial)
        w = normal(rng, groups * per_out, per_in, *kernel)
        inputs = [x, w, normal(rng, len(w))][: int(rng.integers(2, 4))]
        same_as_onnxruntime("Conv", inputs, opset=11, group=groups, strides=strides, pads=pads,
                            dilations=dilations, kernel_shape=kernel)  # fmt: skip


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_conv_auto_pad(auto_pad: str, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(5)
    for kernel, stride, extent in product((1, 2, 3), (1, 2, 3), (5, 6)):
        x, w = normal(rng, 1, 2, extent, extent + 1), normal(rng, 3, 2, kernel, 3)
        same_as_onnxruntime("Conv", [x, w], opset=11, auto_pad=auto_pad, strides=[stride, 1])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv_transpose_random(rank: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(10 + rank)
    for _ in range(12):
        groups, per_in, per_out = (int(v) for v in rng.integers(1, 4, 3))
        kernel, strides = ([int(v) for v in rng.integers(1, 4, rank)] for _ in range(2))
        dilations = [int(v) for v in rng.integers(1, 3, rank)]
        reach = [(k - 1) * d // 2 for k, d in zip(kernel, dilations)]
        pads = [int(rng.integers(0, r + 1)) for r in reach * 2]
        extra = [int(rng.integers(0, s)) for s in strides]
        spatial = [int(v) for v in rng.integers(2, 5, rank)]
        x = normal(rng, 2, groups * per_in, *spatial)
        w = normal(rng, groups * per_in, per_out, *kernel)
        inputs = [x, w, normal(rng, groups * per_out)][: int(rng.integers(2, 4))]
        same_as_onnxruntime("ConvTranspose", inputs, opset=11, group=groups, strides=strides,
                            pads=pads, dilations=dilations, output_padding=extra,
                            kernel_shape=kernel)  # fmt: skip


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_conv_transpose_output_shape(auto_pad: str, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(6)
    x, w = normal(rng, 1, 2, 4, 3), normal(rng, 2, 3, 3, 4)
    for shape in ([9, 7], [8, 8], [7, 5], [6, 6]):
        same_as_onnxruntime("ConvTranspose", [x, w], opset=11, output_shape=shape,
                            auto_pad=auto_pad, strides=[2, 2])  # fmt: skip
    if auto_pad != "NOTSET":
        same_as_onnxruntime("ConvTranspose", [x, w], opset=11, auto_pad=auto_pad, strides=[2, 3])


def test_deform_conv_without_offsets_is_a_convolution() -> None:
    rng = np.random.default_rng(9)
    x, w = normal(rng, 2, 4, 5, 6), normal(rng, 6, 2, 3, 2)
    plain = Conv((2, 1), (1, 0, 1, 2), (1, 2), 2)
    (expected,) = plain.run_reference((x, w))
    offset = np.zeros((2, 2 * 6 * 2, *expected.shape[2:]), np.float32)
    mask = np.ones((2, 2 * 6, *expected.shape[2:]), np.float32)
    deformed = DeformConv(plain.strides, plain.pads, plain.dilations, 2, 2)
    (got,) = deformed.run_reference((x, w, offset, mask))
    np.testing.assert_allclose(got, expected, atol=1e-5)
    # Offsets (axis 0, axis 1) of (0, 1) everywhere look one column further.
    offset.reshape(2, 2, 6, 2, *expected.shape[2:])[:, :, :, 1] = 1
    moved = np.concatenate([x[..., 1:], np.zeros_like(x[..., :1])], axis=-1)
    (got,) = deformed.run_reference((x, w, offset, mask))
    inside = plain.run_reference((moved, w))[0][..., 1:]
    np.testing.assert_allclose(got[..., 1:], inside, atol=1e-5)


@pytest.mark.parametrize("sets", [1, 2])
def test_deform_conv(sets: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(11)
    x, w = normal(rng, 2, 4, 6, 7), normal(rng, 6, 2, 3, 2)
    offset = 2 * normal(rng, 2, sets * 12, 4, 8)
    mask = normal(rng, 2, sets * 6, 4, 8)
    for inputs in ([x, w, offset], [x, w, offset, normal(rng, 6), mask]):
        same_as_onnxruntime("DeformConv", inputs, opset=19, group=2, offset_group=sets,
                            pads=[0, 1, 0, 1], strides=[1, 1], kernel_shape=[3, 2],
                            atol=1e-4)  # fmt: skip


def test_blocks_of_columns_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    x, w = normal(rng, 3, 4, 9, 7), normal(rng, 6, 2, 3, 3)
    op = Conv((1, 2), (1, 0, 1, 1), (1, 1), 2)
    (whole,) = op.run_reference((x, w))
    per_row = 4 * 9 * whole.shape[3] * 4
    for rows in (1, 4, 20):
        monkeypatch.setattr(conv_module, "COLUMNS_LIMIT_BYTES", rows * per_row)
        np.testing.assert_allclose(op.run_reference((x, w))[0], whole, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "x", "w", "problem"),
    [
        (Conv((1,), (0, 0), (1,)), (1, 3, 4), (2, 2, 3), "channels do not fit 1 groups"),
        (Conv((1,), (0, 0), (1,), 2), (1, 4, 4), (3, 2, 3), "channels do not fit 2 groups"),
        (Conv((1,), (0, 0), (1,)), (1, 3, 4), (2, 3, 5), "a window of 5 does not fit"),
        (Conv((1, 1), (0, 0), (1,)), (1, 3, 4), (2, 3, 3), "do not describe 1 spatial axes"),
        (Conv((0,), (0, 0), (1,)), (1, 3, 4), (2, 3, 3), "must be positive"),
        (Conv((1,), (-1, 0), (1,)), (1, 3, 4), (2, 3, 3), "negative pads"),
        (ConvTranspose((1,), (2, 2), (1,), (0,)), (1, 3, 2), (3, 2, 3), "cut everything off"),
    ],
)
def test_refused_types(op: Conv | ConvTranspose, x: Any, w: Any, problem: str) -> None:
    with pytest.raises(OperatorError, match=problem):
        op.infer_types((TensorType(x, f32), TensorType(w, f32)))


def test_half_precision_convolution_rounds_once() -> None:
    rng = np.random.default_rng(8)
    x, w = (rng.standard_normal(s).astype(np.float16) for s in ((1, 64, 6, 6), (3, 64, 3, 3)))
    op = Conv((1, 1), (1, 1, 1, 1), (1, 1))
    (got,) = op.run_reference((x, w))
    (precise,) = op.run_reference((x.astype(np.float64), w.astype(np.float64)))
    assert got.dtype == f16.numpy
    np.testing.assert_allclose(got, precise, rtol=2**-10, atol=1e-3)


@pytest.mark.parametrize(
    ("op_type", "attributes", "problem"),
    [
        ("Conv", {"auto_pad": "SAME_UPPER", "strides": [0, 0]}, "strides"),
        ("Conv", {"pads": [1]}, "pads"),
        ("Conv", {"kernel_shape": [2, 2]}, "kernel_shape"),
        ("Conv", {"auto_pad": "DIFFERENT"}, "auto_pad 'DIFFERENT'"),
        ("ConvTranspose", {"dilations": [1]}, "dilations"),
        ("MaxRoiPool", {"pooled_shape": [1, 1, 1]}, "pooled_shape"),
    ],
)
def test_refused_attributes(
    op_type: str, attributes: dict[str, Any], problem: str, whet_node: Callable[..., list[Array]]
) -> None:
    x, w = np.zeros((1, 2, 5, 5), np.float32), np.zeros((2, 2, 3, 3), np.float32)
    with pytest.raises(UnsupportedError) as caught:
        whet_node(op_type, [x, w], **attributes)
    assert problem in str(caught.value)
