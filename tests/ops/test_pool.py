"""Pooling, regions of interest and sampling against ONNX Runtime and against plain loops."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from whet.core.dtypes import f32, u8
from whet.core.errors import OperatorError
from whet.core.types import Array, TensorType, type_of
from whet.ops.patch import Col2Im
from whet.ops.pool import AvgPool, LpPool, MaxPool, MaxPoolIndex, Pool
from whet.ops.roi import RoiAlign
from whet.ops.shared.window import Window

Compare = Callable[..., None]
Run = Callable[..., list[Array]]


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def random_pool(rng: np.random.Generator, rank: int) -> tuple[Array, dict[str, Any]]:
    """An image and window attributes under which every window meets the image."""
    kernel, strides = ([int(v) for v in rng.integers(1, 4, rank)] for _ in range(2))
    dilations = [int(v) for v in rng.integers(1, 3, rank)]
    pads = [int(rng.integers(0, k // 2 + 1)) for k in kernel * 2]
    spatial = [(k - 1) * d + 1 + int(rng.integers(0, 6)) for k, d in zip(kernel, dilations)]
    return normal(rng, 2, 3, *spatial), {
        "kernel_shape": kernel,
        "strides": strides,
        "pads": pads,
        "dilations": dilations,
        "ceil_mode": int(rng.integers(2)),
    }


# ------------------------------------------------------------------------ against ONNX Runtime
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_pool(rank: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(rank)
    for _ in range(15):
        x, attributes = random_pool(rng, rank)
        same_as_onnxruntime("MaxPool", [x], opset=12, **attributes)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("storage_order", [0, 1])
def test_max_pool_indices(rank: int, storage_order: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(20 + rank)
    for _ in range(10):
        x, attributes = random_pool(rng, rank)
        same_as_onnxruntime("MaxPool", [x], opset=12, outputs=2, storage_order=storage_order,
                            **attributes)  # fmt: skip


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_average_pool(rank: int, count_include_pad: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(30 + rank)
    for _ in range(12):
        x, attributes = random_pool(rng, rank)
        same_as_onnxruntime("AveragePool", [x], opset=19, count_include_pad=count_include_pad,
                            **attributes)  # fmt: skip


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool(p: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(40 + p)
    for rank in (1, 2, 3):
        x, attributes = random_pool(rng, rank)
        attributes["ceil_mode"] = 0
        same_as_onnxruntime("LpPool", [x], opset=18, p=p, **attributes)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_auto_pad(op_type: str, auto_pad: str, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(50)
    for kernel, stride in product((1, 2, 3), (1, 2)):
        x = normal(rng, 1, 2, 5, 6)
        same_as_onnxruntime(op_type, [x], opset=11, auto_pad=auto_pad,
                            kernel_shape=[kernel, 3], strides=[stride, 2])  # fmt: skip


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [("GlobalAveragePool", {}), ("GlobalMaxPool", {}), ("GlobalLpPool", {"p": 3})],
)
def test_global_pools(
    op_type: str, attributes: dict[str, Any], same_as_onnxruntime: Compare
) -> None:
    rng = np.random.default_rng(60)
    for spatial in ((7,), (4, 5), (2, 3, 4)):
        same_as_onnxruntime(op_type, [normal(rng, 2, 3, *spatial)], opset=13, **attributes)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align(mode: str, ratio: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(70)
    x = np.abs(normal(rng, 2, 3, 9, 8))
    corners = np.sort(rng.uniform(0, 8, (5, 2, 2)), axis=1).reshape(5, 4).astype(np.float32)
    batch = rng.integers(0, 2, 5)
    for coordinates in ("half_pixel", "output_half_pixel"):
        same_as_onnxruntime("RoiAlign", [x, corners, batch], opset=16, mode=mode,
                            sampling_ratio=ratio, output_height=3, output_width=2,
                            spatial_scale=0.75, atol=1e-4,
                            coordinate_transformation_mode=coordinates)  # fmt: skip
    same_as_onnxruntime("RoiAlign", [x, corners, batch], opset=10, mode=mode, output_height=2,
                        output_width=2, sampling_ratio=ratio, atol=1e-4)  # fmt: skip


def test_max_roi_pool(same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(71)
    x = normal(rng, 2, 3, 9, 8)
    boxes = np.sort(rng.uniform(-2, 11, (6, 2, 2)), axis=1).reshape(6, 4)
    rois = np.concatenate([rng.integers(0, 2, (6, 1)), boxes], axis=1).astype(np.float32)
    for scale in (1.0, 0.5):
        same_as_onnxruntime("MaxRoiPool", [x, rois], opset=13, pooled_shape=[3, 2],
                            spatial_scale=scale)  # fmt: skip


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample(mode: str, padding: str, align: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(80)
    # Where a cubic sample lies outside, ONNX Runtime clamps both axes when one leaves the
    # border, ONNX only that one; inside they agree.
    reach = 0.9 if (mode, padding) == ("cubic", "border") else 2.5
    grid = rng.uniform(-reach, reach, (2, 4, 3, 2)).astype(np.float32)
    same_as_onnxruntime("GridSample", [normal(rng, 2, 3, 5, 6), grid], opset=20, mode=mode,
                        padding_mode=padding, align_corners=align, atol=1e-4)  # fmt: skip
    if mode != "cubic":
        grid = rng.uniform(-2, 2, (1, 3, 2, 4, 3)).astype(np.float32)
        same_as_onnxruntime("GridSample", [normal(rng, 1, 2, 4, 5, 3), grid], opset=20,
                            mode=mode, padding_mode=padding, align_corners=align,
                            atol=1e-4)  # fmt: skip


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize(
    "size", [(1, 2, 4, 5), (2, 3, 3, 2), (1, 1, 1, 3), (2, 1, 2, 3, 4)], ids=str
)
def test_affine_grid(size: tuple[int, ...], align: int, same_as_onnxruntime: Compare) -> None:
    """Also of a single flat image, whose batch ONNX's own body loses, and of a single pixel."""
    space = len(size) - 2
    theta = normal(np.random.default_rng(81), size[0], space, space + 1)
    same_as_onnxruntime("AffineGrid", [theta, ("constant", np.array(size, np.int64))], opset=20,
                        align_corners=align, atol=1e-5)  # fmt: skip


def test_col2im(same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(90)
    for image, block, strides, pads, dilations in (
        ((5, 6), (2, 3), (1, 1), (0, 0, 0, 0), (1, 1)),
        ((5, 6), (2, 3), (2, 1), (1, 0, 1, 2), (1, 2)),
        ((4, 5, 3), (2, 2, 2), (1, 2, 1), (0, 1, 0, 1, 0, 1), (2, 1, 1)),
    ):
        op = Col2Im(image, block, strides, pads, dilations)
        blocks = int(np.prod(Window(block, strides, pads, dilations).outputs(op, image)))
        # ONNX Runtime 1.31 misplaces the second channel of a volume.
        channels = 3 if len(image) == 2 else 1
        x = normal(rng, 2, channels * int(np.prod(block)), blocks)
        shapes = [("constant", np.array(s, np.int64)) for s in (image, block)]
        same_as_onnxruntime("Col2Im", [x, *shapes], opset=18, strides=strides, pads=pads,
                            dilations=dilations)  # fmt: skip


# ------------------------------------------------------------------------- against plain loops
def window_elements(op: Pool, plane: Array, o: tuple[int, ...]) -> tuple[list[float], int]:
    """The elements that a window sees, and how many places of it lie in the padded input."""
    rank, seen, places = plane.ndim, [], 0
    for k in np.ndindex(*op.kernel):
        at = tuple(
            i * s + j * d - b for i, s, j, d, b in zip(o, op.strides, k, op.dilations, op.pads)
        )
        places += all(a < d + e for a, d, e in zip(at, plane.shape, op.pads[rank:]))
        if all(0 <= a < d for a, d in zip(at, plane.shape)):
            seen.append(float(plane[at]))
    return seen, places


@pytest.mark.parametrize("cls", [MaxPool, AvgPool, LpPool])
def test_pools_against_loops(cls: type[Pool]) -> None:
    rng = np.random.default_rng(100)
    for _ in range(12):
        sample = cls.sample(rng)
        op = sample.op
        x = rng.standard_normal(sample.types[0].shape).astype(np.float32)
        (got,) = op.run_reference((x,))
        for n, c, *o in np.ndindex(*got.shape):
            assert isinstance(op, Pool)
            seen, places = window_elements(op, x[n, c], tuple(o))
            if isinstance(op, AvgPool):
                expected = sum(seen) / (places if op.count_include_pad else len(seen))
            elif isinstance(op, LpPool):
                expected = sum(abs(v) ** op.p for v in seen) ** (1 / op.p)
            else:
                expected = max(seen)
            assert got[(n, c, *o)] == pytest.approx(expected, abs=1e-4), str(op)


def test_window_that_starts_in_the_end_padding_is_dropped() -> None:
    """Input 3 with end padding 1, kernel 1, stride 2: a third window would start at 4."""
    op = MaxPool((1,), (2,), (0, 1), (1,), True)
    assert op.infer(TensorType((1, 1, 3), f32)).shape == (1, 1, 2)
    op = MaxPool((3,), (2,), (1, 1), (1,), True)
    assert op.infer(TensorType((1, 1, 4), f32)).shape == (1, 1, 3)


def test_index_of_a_maximum_is_never_in_the_padding() -> None:
    """Padding of unsigned integers is 0, which real elements may equal."""
    op = MaxPoolIndex((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
    x = np.zeros((1, 2, 3, 3), u8.numpy)
    (found,) = op.run_reference((x,))
    assert found.tolist()[0][0] == [[0, 0, 1], [0, 0, 1], [3, 3, 4]]
    assert found.tolist()[0][1] == [[9, 9, 10], [9, 9, 10], [12, 12, 13]]


def test_max_unpool_undoes_max_pool(whet_node: Run) -> None:
    rng = np.random.default_rng(110)
    x = normal(rng, 2, 3, 4, 6)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    values, indices = whet_node("MaxPool", [x], opset=12, outputs=2, **window)
    (restored,) = whet_node("MaxUnpool", [values, indices], opset=11, **window)
    assert restored.shape == x.shape
    np.testing.assert_array_equal(restored, np.where(np.isin(x, values), x, 0))


def test_endless_sampling_of_boxes_is_refused() -> None:
    x, box = np.zeros((1, 1, 4, 4), np.float32), np.array([[0, 0, 2, 2]], np.float32)
    types = tuple(type_of(a) for a in (x, box, np.array([0])))
    with pytest.raises(OperatorError, match="too many sampling points"):
        RoiAlign((2, 2), sampling_ratio=1 << 40).infer_types(types)
    for far in (1e30, np.inf, np.nan):
        box[0, 3] = far
        with pytest.raises(OperatorError, match="a box is too large"):
            RoiAlign((2, 2)).run_reference((x, box, np.array([0])))


@pytest.mark.parametrize(
    ("op", "shape", "problem"),
    [
        (MaxPool((3,), (1,), (0, 0), (1,)), (1, 2, 2), "a window of 3 does not fit"),
        (MaxPool((3,), (1,), (0, 0), (1,)), (2, 3), "no spatial axes"),
        (MaxPool((3,), (1 << 50,), (0, 1 << 60), (1,)), (1, 2, 4), "impossible pads"),
        (LpPool((3,), (1,), (0, 0), (1,), p=0), (1, 2, 4), "p = 0"),
        (Col2Im((4,), (2,), (1,), (0, 0), (1,)), (1, 4, 4), "blocks fit into the image"),
    ],
)
def test_refused_types(op: Any, shape: tuple[int, ...], problem: str) -> None:
    with pytest.raises(OperatorError, match=problem):
        op.infer_types((TensorType(shape, f32),))
