"""Data movement against NumPy and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from whet.core.dtypes import f32, i64
from whet.core.errors import OperatorError, UnsupportedError
from whet.core.types import TensorType
from whet.ir.tensor import describe, placeholder
from whet.ops.fill import Pad, Trilu
from whet.ops.movement import Concat, Expand, Reshape, Slice, Split, Tile, Transpose
from whet.ops.shared.row_major import matching_groups

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
Compare = Callable[..., None]


def ints(*values: int) -> tuple[str, np.ndarray]:
    return ("constant", np.array(values, np.int64))


@pytest.mark.parametrize(
    ("op", "types", "problem"),
    [
        (Transpose((0, 0)), [(2, 3)], "does not order"),
        (Reshape((5,)), [(2, 3)], "do not fill"),
        (Expand((3, 3)), [(2, 3)], "do not broadcast"),
        (Tile((2,)), [(2, 3)], "one count for every axis"),
        (Concat(2), [(2, 3)], "outside the rank"),
        (Concat(0), [(2, 3), (2, 4)], "differ outside axis 0"),
        (Split(0, (1, 2)), [(2, 3)], "do not make up"),
        (Slice((0, 0), (3, 3), (1, 1)), [(2, 3)], "leaves an axis of extent 2"),
        (Slice((0,), (1,), (1,)), [(2, 3)], "list every axis"),
        (Pad((1, 1)), [(2, 3), ()], "two counts"),
        (Pad((1, 1)), [(2,), (1,)], "must be a scalar"),
        (Pad((1, 1), "edge"), [(0,), ()], "no elements to repeat"),
        (Trilu(True), [(3,)], "two or more axes"),
    ],
)
def test_misuse_is_refused(op: object, types: list[tuple[int, ...]], problem: str) -> None:
    with pytest.raises(OperatorError, match=problem):
        op.infer_types(tuple(TensorType(t, f32) for t in types))  # type: ignore[attr-defined]


def test_concat_needs_one_element_type() -> None:
    with pytest.raises(OperatorError, match="element types differ"):
        Concat(0).infer_types((TensorType((2,), f32), TensorType((2,), i64)))


def test_reshape_keeps_plain_indices_of_untouched_axes() -> None:
    x = placeholder((2, 3, 4, 5), f32, "x")
    text = describe(*Reshape((6, 4, 5)).compute_tensors((x,)))
    assert text.endswith("reshape[i, j, l in 6, 4, 5] = x[i // 3, i % 3, j, l]")


@given(st.lists(st.integers(1, 4), max_size=5), st.data())
def test_matching_groups_cover_both_shapes(factors: list[int], data: st.DataObject) -> None:
    def merge() -> list[int]:
        out: list[int] = []
        for f in factors:
            if out and data.draw(st.booleans()):
                out[-1] *= f
            else:
                out.append(f)
        return out

    old, new = merge(), merge()
    groups = matching_groups(old, new)
    assert [a for g in groups for a in g[0]] == list(range(len(old)))
    assert [b for g in groups for b in g[1]] == list(range(len(new)))
    for left, right in groups:
        assert np.prod([old[a] for a in left]) == np.prod([new[b] for b in right])


def test_concat_of_many_parts_stays_shallow() -> None:
    parts = tuple(placeholder((1,), f32, f"x{n}") for n in range(2000))
    assert "select" in describe(*Concat(0).compute_tensors(parts))


# ------------------------------------------------------------------------------- ONNX mappings
@pytest.mark.parametrize(
    ("shape", "attributes", "expected"),
    [
        ((4, 6), {}, (4, 6)),
        ((-1, 2), {}, (12, 2)),
        ((0, -1), {}, (2, 12)),
        ((0, 0, 2, 2), {}, (2, 3, 2, 2)),
        ((24,), {"allowzero": 1}, (24,)),
    ],
)
def test_reshape_shapes(
    shape: tuple[int, ...],
    attributes: dict[str, int],
    expected: tuple[int, ...],
    whet_node: Callable[..., list[np.ndarray]],
) -> None:
    (y,) = whet_node("Reshape", [X, ints(*shape)], **attributes)
    np.testing.assert_array_equal(y, X.reshape(expected))


def test_reshape_to_nothing_with_allowzero(whet_node: Callable[..., list[np.ndarray]]) -> None:
    (y,) = whet_node("Reshape", [np.zeros((0, 3), np.float32), ints(3, 0)], allowzero=1)
    assert y.shape == (3, 0)


@pytest.mark.parametrize("shape", [(-1, -1), (0, 0, 0, 0), (5, -1), (-2, 12)])
def test_impossible_reshapes_are_refused(
    shape: tuple[int, ...], whet_node: Callable[..., list[np.ndarray]]
) -> None:
    with pytest.raises(UnsupportedError) as caught:
        whet_node("Reshape", [X, ints(*shape)])
    assert "shape" in str(caught.value)


@pytest.mark.parametrize("opset", [11, 13])
def test_squeeze_and_unsqueeze_axes(opset: int, same_as_onnxruntime: Compare) -> None:
    x = X[:, None]
    if opset < 13:
        same_as_onnxruntime("Squeeze", [x], opset, axes=[-3])
        same_as_onnxruntime("Unsqueeze", [x], opset, axes=[0, -1])
    else:
        same_as_onnxruntime("Squeeze", [x, ints(-3)], opset)
        same_as_onnxruntime("Unsqueeze", [x, ints(0, -1)], opset)
    same_as_onnxruntime("Squeeze", [x], opset)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -3])
def test_flatten(axis: int, same_as_onnxruntime: Compare) -> None:
    same_as_onnxruntime("Flatten", [X], axis=axis)


def test_split_versions(same_as_onnxruntime: Compare) -> None:
    x = RNG.standard_normal((2, 7)).astype(np.float32)
    same_as_onnxruntime("Split", [x], 11, 2, axis=1, split=[3, 4])
    same_as_onnxruntime("Split", [x, ints(3, 4)], 13, 2, axis=-1)
    same_as_onnxruntime("Split", [x], 18, 3, axis=1, num_outputs=3)
    same_as_onnxruntime("Split", [x], 13, 2, axis=0)


@pytest.mark.parametrize("seed", range(25))
def test_slice(seed: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(d) for d in rng.integers(1, 6, 3))
    x = rng.standard_normal(shape).astype(np.float32)
    axes = [int(a) for a in rng.permutation(3)[: int(rng.integers(1, 4))]]
    starts, ends = rng.integers(-8, 9, (2, len(axes)))
    steps = rng.choice([-3, -2, -1, 1, 2, 3], len(axes))
    inputs = [x, *(ints(*map(int, v)) for v in (starts, ends, axes, steps))]
    same_as_onnxruntime("Slice", inputs, 13)


def test_slice_by_attributes(same_as_onnxruntime: Compare) -> None:
    same_as_onnxruntime("Slice", [X], 9, starts=[0, -2], ends=[1, 100], axes=[0, 2])
    same_as_onnxruntime("Slice", [X], 9, starts=[1, 1], ends=[2, -1])


@pytest.mark.parametrize("seed", range(20))
def test_pad(seed: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(seed)
    mode = ("constant", "reflect", "edge", "wrap")[seed % 4]
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    low = 0 if mode == "wrap" else -1
    pads = [int(p) for p in rng.integers(low, 3, 6)]
    value = ("constant", np.float32(1.5)) if mode == "constant" else None
    same_as_onnxruntime("Pad", [x, ints(*pads), value], mode=mode)
    same_as_onnxruntime("Pad", [x, ints(*pads[:2], *pads[3:5]), value, ints(-1, 0)], mode=mode)


def test_pad_by_attributes(same_as_onnxruntime: Compare) -> None:
    same_as_onnxruntime("Pad", [X], 10, pads=[0, 1, 0, 2, 0, 1], value=2.5)
    same_as_onnxruntime("Pad", [X], 10, pads=[0, 1, 2, 0, 1, 1], mode="reflect")


def test_expand_broadcasts_both_ways(same_as_onnxruntime: Compare) -> None:
    same_as_onnxruntime("Expand", [X[:1], ints(2, 2, 1, 4)])
    same_as_onnxruntime("Expand", [X, ints(1)])


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_move_between_depth_and_space(
    mode: str, same_as_onnxruntime: Compare, whet_node: Callable[..., list[np.ndarray]]
) -> None:
    x = RNG.standard_normal((2, 8, 3, 2)).astype(np.float32)
    same_as_onnxruntime("DepthToSpace", [x], 13, blocksize=2, mode=mode)
    (y,) = whet_node("DepthToSpace", [x], 13, blocksize=2, mode=mode)
    (back,) = whet_node("SpaceToDepth", [y], 28, blocksize=2, mode=mode)
    np.testing.assert_array_equal(back, x)
    same_as_onnxruntime("SpaceToDepth", [y], 13, blocksize=2)


@pytest.mark.parametrize("k", [-9, -1, 0, 2, 9])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu(k: int, upper: int, same_as_onnxruntime: Compare) -> None:
    same_as_onnxruntime("Trilu", [X, ("constant", np.array(k, np.int64))], upper=upper)


def test_center_crop_pad(same_as_onnxruntime: Compare) -> None:
    x = RNG.standard_normal((5, 4, 3)).astype(np.float32)
    same_as_onnxruntime("CenterCropPad", [x, ints(2, 7, 3)])
    same_as_onnxruntime("CenterCropPad", [x, ints(8, 1)], axes=[-1, 0])


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "problem"),
    [
        ("DepthToSpace", [X], {"blocksize": 2}, "blocks of 2"),
        ("SpaceToDepth", [X[None]], {"blocksize": 3}, "do not divide the image"),
        ("Slice", [X, ints(0), ints(1, 2)], {}, "do not fit"),
        ("Slice", [X, ints(0), ints(1), ints(0), ints(0)], {}, "do not fit"),
        ("Pad", [X, ints(1, 1)], {}, "2 pads for 3 axes"),
        ("Pad", [X, ints(*[0] * 6)], {"mode": "mirror"}, "mode 'mirror'"),
        ("Split", [np.float32(1)], {"num_outputs": 1}, "no axes"),
        ("Squeeze", [X, ints(0)], {}, "not all of extent 1"),
        ("CenterCropPad", [X, ints(1)], {}, "1 extents for 3 axes"),
    ],
)
def test_inconsistent_nodes_are_refused(
    op_type: str,
    inputs: list[object],
    attributes: dict[str, object],
    problem: str,
    whet_node: Callable[..., list[np.ndarray]],
) -> None:
    with pytest.raises(UnsupportedError) as caught:
        whet_node(op_type, inputs, **attributes)
    assert problem in str(caught.value)
