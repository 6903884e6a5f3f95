"""Resizing against ONNX Runtime, in all its modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from whet.core.dtypes import f32, i32
from whet.core.errors import OperatorError
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.ops.resize import Resize
from whet.ops.shared.resample import AxisScale, coordinates, nearest_table, weighted_table

Compare = Callable[..., None]
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def constant(values: Any, dtype: type) -> tuple[str, np.ndarray]:
    return ("constant", np.array(values, dtype))


def random_image(rng: np.random.Generator) -> np.ndarray:
    shape = (1, int(rng.integers(1, 3)), *(int(d) for d in rng.integers(3, 9, 2)))
    return rng.standard_normal(shape).astype(np.float32)


def other_sizes(rng: np.random.Generator, x: np.ndarray) -> tuple[str, np.ndarray]:
    """Sizes that change both image axes: ONNX Runtime ignores the crop of an axis that keeps
    its extent."""
    new = [int(rng.choice([s for s in range(1, 14) if s != d])) for d in x.shape[2:]]
    return constant([*x.shape[:2], *new], np.int64)


@pytest.mark.parametrize("kind", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes(mode: str, kind: str, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(len(mode) * len(kind))
    for rounding in NEAREST:
        x = random_image(rng)
        crop = constant([0, 0, 0.13, -0.21, 1, 1, 0.87, 1.18], np.float32)
        roi = crop if kind == "tf_crop_and_resize" else None
        same_as_onnxruntime(
            "Resize",
            [x, roi, None, other_sizes(rng, x)],
            atol=1e-4,
            mode=mode,
            coordinate_transformation_mode=kind,
            nearest_mode=rounding,
            extrapolation_value=7.0,
        )


@pytest.mark.parametrize("kind", [*COORDINATES, "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales_between_two_extents(mode: str, kind: str, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(len(mode) + len(kind))
    opsets = {"half_pixel_symmetric": [19] * 4, "tf_half_pixel_for_nn": [11] * 4}
    for opset, rounding in zip(opsets.get(kind, [11, 13, 18, 19]), NEAREST):
        x = random_image(rng)
        scales = constant([1, 1, *rng.uniform(1.3, 2.6, 2) ** rng.choice([-1, 1], 2)], np.float32)
        crop = [0, 0, 0.13, -0.21, 1, 1, 0.87, 1.18] if kind == "tf_crop_and_resize" else []
        same_as_onnxruntime(
            "Resize",
            [x, constant(crop, np.float32), scales],
            opset,
            atol=1e-4,
            mode=mode,
            coordinate_transformation_mode=kind,
            nearest_mode=rounding,
        )


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("kind", ["half_pixel_symmetric", "align_corners", "half_pixel"])
def test_aspect_ratios_between_two_extents(
    kind: str, policy: str, same_as_onnxruntime: Compare
) -> None:
    rng = np.random.default_rng(len(policy) * len(kind))
    for mode in ("nearest", "linear", "cubic"):
        for antialias in {0, int(mode != "nearest")}:
            x = random_image(rng)
            sizes = constant(rng.integers(2, 14, 2), np.int64)
            same_as_onnxruntime("Resize", [x, None, None, sizes], atol=1e-4, axes=[2, 3],
                                coordinate_transformation_mode=kind, mode=mode,
                                antialias=antialias, keep_aspect_ratio_policy=policy)  # fmt: skip


@pytest.mark.parametrize("scales", [(1.1, 1.2), (1.1, 2.0), (1.0, 0.7)])
def test_axes_that_keep_their_extent(
    scales: tuple[float, float], same_as_onnxruntime: Compare
) -> None:
    x = np.random.default_rng(4).standard_normal((1, 2, 5, 4)).astype(np.float32)
    given = [x, None, constant([1, 1, *scales], np.float32)]
    for mode in ("nearest", "linear", "cubic"):
        same_as_onnxruntime("Resize", given, atol=1e-4, mode=mode)
    for mode in ("linear", "cubic"):
        same_as_onnxruntime("Resize", given, atol=1e-4, mode=mode, antialias=1)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias_and_excluded_borders(mode: str, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(len(mode))
    for _ in range(6):
        x = random_image(rng)
        inputs = [x, None, None, other_sizes(rng, x)]
        same_as_onnxruntime("Resize", inputs, atol=1e-4, mode=mode, antialias=1)
    for a in (-0.5, -0.75):
        x = random_image(rng)
        inputs = [x, None, None, other_sizes(rng, x)]
        same_as_onnxruntime(
            "Resize", inputs, atol=1e-4, mode="cubic", exclude_outside=1, cubic_coeff_a=a
        )


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller", "stretch"])
def test_axes_and_aspect_ratio(policy: str, same_as_onnxruntime: Compare) -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 4, 3)).astype(np.float32)
    sizes = constant([7, 9], np.int64)
    same_as_onnxruntime(
        "Resize", [x, None, None, sizes], axes=[3, 2], keep_aspect_ratio_policy=policy
    )


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_before_opset_11(mode: str, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(5)
    for _ in range(4):
        x = random_image(rng)
        scales = constant([1, 1, *rng.uniform(0.4, 2.6, 2)], np.float32)
        same_as_onnxruntime("Resize", [x, scales], 10, atol=1e-4, mode=mode)
    same_as_onnxruntime("Upsample", [x, constant([1, 1, 2, 3], np.float32)], 9, mode=mode)
    same_as_onnxruntime("Upsample", [x], 7, mode=mode, scales=[1.0, 1.0, 3.0, 2.0])
    small = x[:, :, :3, :3]  # 1.3 times 3 is 3 as well, and 2.5 times 3 is not
    for scales in ([1.0, 1.0, 1.3, 1.2], [1.0, 1.0, 1.3, 2.5]):
        same_as_onnxruntime("Upsample", [small], 7, atol=1e-5, mode=mode, scales=scales)


def test_integers_are_interpolated_and_cut_off(same_as_onnxruntime: Compare) -> None:
    x = np.random.default_rng(0).integers(0, 256, (1, 1, 4, 5)).astype(np.uint8)
    sizes = constant([1, 1, 7, 11], np.int64)
    same_as_onnxruntime("Resize", [x, None, None, sizes], mode="nearest")
    same_as_onnxruntime("Resize", [x, None, None, sizes], atol=1, mode="linear")


def test_averages_of_integers_are_rounded(same_as_onnxruntime: Compare) -> None:
    x = np.random.default_rng(0).integers(0, 256, (1, 1, 9, 4)).astype(np.int32)
    sizes = constant([1, 1, 4, 4], np.int64)
    same_as_onnxruntime("Resize", [x, None, None, sizes], mode="linear", antialias=1)


# ------------------------------------------------------------------------------------ tables
@pytest.mark.parametrize("factor", [1.7, 0.6, 2.0])
def test_aligned_corners_stay_on_the_corners(factor: float) -> None:
    axis = AxisScale(9, int(9 * factor), factor)
    x = coordinates(axis, "align_corners")
    assert (x[0], x[-1]) == (0, 8)


def test_coordinates_that_rounding_moved_off_a_tie_are_ties() -> None:
    """2 / (4 / 7) is 3.5, and 3.4999998 in f32."""
    axis = AxisScale(7, 4, 4 / 7)
    assert coordinates(axis, "asymmetric")[2] < 3.5
    assert nearest_table(axis, "asymmetric", "round_prefer_ceil").positions[2] == 4
    assert nearest_table(axis, "asymmetric", "round_prefer_floor").positions[2] == 3


def test_a_factor_of_one_moves_nothing() -> None:
    axis = AxisScale(4, 4, 1.0)
    np.testing.assert_array_equal(coordinates(axis, "tf_half_pixel_for_nn"), range(4))


def test_half_pixel_coordinates_are_symmetric() -> None:
    axis = AxisScale(4, 8, 2.0)
    x = coordinates(axis, "half_pixel")
    np.testing.assert_allclose(x + x[::-1], 3.0)
    np.testing.assert_allclose(x[:3], [-0.25, 0.25, 0.75])


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        ("round_prefer_floor", [0, 0, 1, 1]),
        ("round_prefer_ceil", [0, 1, 1, 1]),
        ("floor", [0, 0, 1, 1]),
        ("ceil", [0, 1, 1, 1]),
    ],
)
def test_ties_go_where_the_mode_says(rounding: Any, expected: list[int]) -> None:
    table = nearest_table(AxisScale(2, 4, 2.0), "asymmetric", rounding)
    assert table.positions[:, 0].tolist() == expected


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("exclude_outside", [False, True])
def test_weights_add_up_to_one(mode: Any, antialias: bool, exclude_outside: bool) -> None:
    for old, new in ((7, 3), (3, 7), (5, 5), (9, 1)):
        table = weighted_table(
            AxisScale(old, new, new / old),
            "half_pixel",
            mode,
            cubic_coeff_a=-0.75,
            exclude_outside=exclude_outside,
            antialias=antialias,
        )
        np.testing.assert_allclose(table.weights.sum(axis=1), 1.0)
        assert table.positions.min() >= 0
        assert table.positions.max() < old


def test_an_axis_that_keeps_its_extent_costs_nothing() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 3, 4), f32))
    assert Resize((2, 3, 4), (1.0, 1.0, 1.0), mode="linear").expand(builder, x) is x
    y = Resize((2, 3, 8), (1.0, 1.0, 2.0), mode="linear").expand(builder, x)
    assert y.node.op.name == "interpolate"
    assert y.node.inputs[0] is x


@pytest.mark.parametrize(
    ("op", "dtype", "problem"),
    [
        (Resize((4,), (2.0,)), f32, "list every axis"),
        (Resize((4, 4), (2.0, -1.0)), f32, "positive"),
        (Resize((4, 4), (2.0, 2.0), mode="cubic"), i32, "no cubic interpolation of i32"),
        (Resize((4, 4), (2.0, 2.0), coordinates="tf_crop_and_resize"), f32, "roi"),
    ],
)
def test_misuse_is_refused(op: Resize, dtype: Any, problem: str) -> None:
    with pytest.raises(OperatorError, match=problem):
        op.infer_types((TensorType((2, 2), dtype),))
