"""Operators whose result has a shape that depends on data, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from whet.core.dtypes import bool_, f32, i64
from whet.core.errors import OperatorError
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Constant
from whet.ops.base import REGISTRY, DynamicType, Op
from whet.ops.host import Compress, NonMaxSuppression, NonZero, Unique

Compare = Callable[..., None]


def test_the_list_of_host_operators_is_short() -> None:
    movement = {n for n, cls in REGISTRY.items() if cls.host and cls.__module__ == "whet.ops.host"}
    assert movement == {"nonzero", "unique", "compress", "non_max_suppression"}


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 2), (0, 3)])
def test_nonzero(shape: tuple[int, ...], same_as_onnxruntime: Compare) -> None:
    x = np.random.default_rng(0).integers(0, 2, shape)
    same_as_onnxruntime("NonZero", [x])
    same_as_onnxruntime("NonZero", [x.astype(np.float32)])


def test_nonzero_of_a_scalar_has_no_rows() -> None:
    assert NonZero().run_reference((np.array(3),))[0].shape == (0, 1)
    assert NonZero().run_reference((np.array(0),))[0].shape == (0, 0)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("ordered", [0, 1])
def test_unique(axis: int | None, ordered: int, same_as_onnxruntime: Compare) -> None:
    x = np.random.default_rng(3).integers(0, 2, (4, 3, 3)).astype(np.float32)
    attributes = {} if axis is None else {"axis": axis}
    same_as_onnxruntime("Unique", [x], outputs=4, sorted=ordered, **attributes)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("known", [False, True])
def test_compress(axis: int | None, known: bool, same_as_onnxruntime: Compare) -> None:
    x = np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32)
    condition = np.array([False, True, True])
    attributes = {} if axis is None else {"axis": axis}
    given = ("constant", condition) if known else condition
    same_as_onnxruntime("Compress", [x, given], **attributes)


@pytest.mark.parametrize("centered", [0, 1])
@pytest.mark.parametrize("seed", range(5))
def test_non_max_suppression(centered: int, seed: int, same_as_onnxruntime: Compare) -> None:
    rng = np.random.default_rng(seed)
    boxes = rng.uniform(0, 1, (2, 12, 4)).astype(np.float32)
    scores = rng.uniform(0, 1, (2, 3, 12)).astype(np.float32)
    settings = [
        ("constant", np.array([int(rng.integers(1, 8))])),
        ("constant", np.array([0.3], np.float32)),
        ("constant", np.array([0.4], np.float32)) if seed % 2 else None,
    ]
    same_as_onnxruntime("NonMaxSuppression", [boxes, scores, *settings], center_point_box=centered)


def test_no_box_is_kept_without_a_limit(whet_node: Callable[..., list[np.ndarray]]) -> None:
    boxes, scores = np.ones((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)
    (rows,) = whet_node("NonMaxSuppression", [boxes, scores])
    assert rows.shape == (0, 3)
    assert rows.dtype == np.int64


def test_boxes_without_area_do_not_overlap() -> None:
    boxes = np.zeros((1, 2, 4), np.float32)
    scores = np.array([[[0.1, 0.9]]], np.float32)
    settings = (np.array(5), np.float32(0), np.float32(0))
    (rows,) = NonMaxSuppression().run_reference((boxes, scores, *map(np.asarray, settings)))
    assert rows[:, 2].tolist() == [1, 0]


def test_constant_inputs_fold() -> None:
    builder = GraphBuilder()
    found = builder.one(NonZero(), builder.constant(np.array([0, 2, 0, 1])))
    assert isinstance(found, Constant)
    assert found.array.tolist() == [[1, 3]]


def test_other_inputs_give_types_without_extents() -> None:
    builder = GraphBuilder()
    found = builder.one(NonZero(), builder.input("x", TensorType((3, 4), f32)))
    assert found.type == DynamicType(2, i64)


@pytest.mark.parametrize(
    ("op", "types", "problem"),
    [
        (Unique(2), [((2, 3), f32)], "outside the rank"),
        (Compress(0), [((2, 3), f32), ((2,), f32)], "truth values"),
        (Compress(0), [((2, 3), f32), ((3,), bool_)], "longer than the input"),
        (NonMaxSuppression(), [((1, 2, 3), f32), ((1, 1, 2), f32), ((), i64), ((), f32), ((), f32)],
         "batch, n, 4"),
    ],
)  # fmt: skip
def test_misuse_is_refused(
    op: Op, types: list[tuple[tuple[int, ...], object]], problem: str
) -> None:
    with pytest.raises(OperatorError, match=problem):
        op.infer_types(tuple(TensorType(s, d) for s, d in types))  # type: ignore[arg-type]
