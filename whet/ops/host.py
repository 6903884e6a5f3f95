"""Host operators: the shape of the result depends on the values of the inputs.

No kernel can be compiled for a shape that is not known, so these run in Python between
compiled segments.  The list is short on purpose:

    nonzero               positions of the elements that are not zero
    unique                distinct elements or slices
    compress              slices where a condition holds
    non_max_suppression   boxes that no better box overlaps

With constant inputs they fold away while a model is imported.
"""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import bool_, f32, i64
from whet.core.types import Array, TensorType
from whet.ops.base import Domain, DynamicType, NoAlgebra, Op, Sample, operator, require
from whet.ops.movement import random_shape

_NO_ALGEBRA = NoAlgebra("the shape of the result depends on data")


@operator("nonzero", "x")
class NonZero(Op):
    """Positions of the non-zero elements in row-major order: one row per axis."""

    host = True

    def infer(self, x: TensorType) -> DynamicType:
        return DynamicType(2, i64)

    def reference(self, x: Array) -> Array:
        found = np.nonzero(np.atleast_1d(x))
        if x.ndim == 0:
            return np.zeros((0, len(found[0])), np.int64)
        return np.stack(found).astype(np.int64)

    axioms = _NO_ALGEBRA

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(), (TensorType((3, 4), bool_),)),
            Sample(cls(), (TensorType((5,), i64),), (Domain(0, 2),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        return Sample(cls(), (TensorType(random_shape(rng, 0, 4), i64),), (Domain(0, 3),))


@operator("unique", "x")
class Unique(Op):
    """The distinct elements (or slices along `axis`), and how they relate to the input.

    Outputs: the distinct ones, ascending if `sorted` and else in the order in which they
    first appear; where each first appears; for each one of the input its number; how often
    each appears.
    """

    axis: int | None = None
    sorted: bool = True

    host = True

    def infer(self, x: TensorType) -> tuple[DynamicType, ...]:
        require(self.axis is None or 0 <= self.axis < x.rank, self,
                f"axis {self.axis} is outside the rank", x, code="WH1104")  # fmt: skip
        require(not x.dtype.is_storage_only, self, f"no order on {x.dtype}", x, code="WH1103")
        position = DynamicType(1, i64)
        rank = 1 if self.axis is None else x.rank
        return DynamicType(rank, x.dtype), position, position, position

    def reference(self, x: Array) -> tuple[Array, ...]:
        found, first, number, count = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=self.axis
        )
        number = number.reshape(-1)
        if not self.sorted:
            order = np.argsort(first)
            found = np.take(found, order, axis=self.axis or 0)
            first, count = first[order], count[order]
            number = np.argsort(order)[number]
        positions = (a.astype(np.int64) for a in (first, number, count))
        return (found, *positions)

    axioms = _NO_ALGEBRA

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(), (TensorType((3, 4), i64),), (Domain(0, 5),)),
            Sample(cls(1, False), (TensorType((2, 6), i64),), (Domain(0, 2),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng, 1, 3)
        axis = None if rng.random() < 0.5 else int(rng.integers(len(shape)))
        op = cls(axis, bool(rng.integers(2)))
        return Sample(op, (TensorType(shape, i64),), (Domain(0, 3),))


@operator("compress", "x", "condition")
class Compress(Op):
    """The slices along `axis` (or the elements) whose condition holds.

    A condition that is shorter than the axis drops what lies beyond it.
    """

    axis: int | None = None

    host = True

    def infer(self, x: TensorType, condition: TensorType) -> DynamicType:
        require(condition.rank == 1 and condition.dtype == bool_, self,
                "the condition must be a vector of truth values", x, condition)  # fmt: skip
        require(self.axis is None or 0 <= self.axis < x.rank, self,
                f"axis {self.axis} is outside the rank", x, code="WH1104")  # fmt: skip
        extent = x.size if self.axis is None else x.shape[self.axis]
        require(condition.shape[0] <= extent, self,
                "the condition is longer than the input", x, condition)  # fmt: skip
        return DynamicType(1 if self.axis is None else x.rank, x.dtype)

    def reference(self, x: Array, condition: Array) -> Array:
        return np.compress(condition, x, axis=self.axis)

    axioms = _NO_ALGEBRA

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(1), (TensorType((2, 5), f32), TensorType((4,), bool_))),
            Sample(cls(), (TensorType((2, 3), f32), TensorType((6,), bool_))),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng, 1, 3)
        axis = int(rng.integers(len(shape)))
        length = int(rng.integers(1, shape[axis] + 1))
        return Sample(cls(axis), (TensorType(shape, f32), TensorType((length,), bool_)))


@operator("non_max_suppression", "boxes", "scores", "limit", "iou_threshold", "score_threshold")
class NonMaxSuppression(Op):
    """Rows (batch, class, box) of the boxes that survive greedy suppression.

    boxes is [batch, n, 4] and scores [batch, classes, n].  Per class, boxes with a score above
    `score_threshold` are taken from the best down, at most `limit`, leaving out those whose
    overlap with one already taken, as intersection over union, exceeds `iou_threshold`.  A box
    is two opposite corners (y, x, y, x), or with `centered` (x, y, width, height).
    """

    centered: bool = False

    host = True

    def infer(
        self,
        boxes: TensorType,
        scores: TensorType,
        limit: TensorType,
        iou_threshold: TensorType,
        score_threshold: TensorType,
    ) -> DynamicType:
        fits = boxes.rank == scores.rank == 3 and (
            boxes.shape[0], boxes.shape[1], boxes.shape[2]
        ) == (scores.shape[0], scores.shape[2], 4)  # fmt: skip
        require(fits, self, "boxes must be [batch, n, 4] and scores [batch, classes, n]", boxes,
                scores)  # fmt: skip
        settings = (limit, iou_threshold, score_threshold)
        require(all(t.shape == () for t in settings), self, "settings must be scalars", *settings)
        require(limit.dtype == i64, self, "the limit must be i64", limit, code="WH1103")
        return DynamicType(2, i64)

    def reference(
        self,
        boxes: Array,
        scores: Array,
        limit: Array,
        iou_threshold: Array,
        score_threshold: Array,
    ) -> Array:
        rows = [
            (batch, label, box)
            for batch in range(scores.shape[0])
            for label in range(scores.shape[1])
            for box in _survivors(
                _corners(boxes[batch], self.centered),
                scores[batch, label],
                int(limit),
                float(iou_threshold),
                float(score_threshold),
            )
        ]
        return np.array(rows, np.int64).reshape(len(rows), 3)

    axioms = _NO_ALGEBRA

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return tuple(_boxes_sample(cls(centered), 2, 2, 6) for centered in (False, True))

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        batch, classes, n = (int(d) for d in rng.integers(1, 6, 3))
        return _boxes_sample(cls(bool(rng.integers(2))), batch, classes, n)


def _boxes_sample(op: NonMaxSuppression, batch: int, classes: int, n: int) -> Sample:
    types = (
        TensorType((batch, n, 4), f32),
        TensorType((batch, classes, n), f32),
        TensorType((), i64),
        TensorType((), f32),
        TensorType((), f32),
    )
    share = Domain(0.0, 1.0)
    return Sample(op, types, (share, share, Domain(0, 4), share, share))


def _corners(boxes: Array, centered: bool) -> Array:
    """Boxes as (low, low, high, high); the order of the two directions does not matter."""
    if centered:
        half = boxes[:, 2:] / 2
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    first, second = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=1)


def _survivors(
    corners: Array, scores: Array, limit: int, iou_threshold: float, score_threshold: float
) -> list[int]:
    """The boxes that greedy suppression keeps, best first."""
    order = np.argsort(-scores, kind="stable")
    candidates = order[scores[order] > score_threshold]
    area = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
    kept: list[int] = []
    while len(candidates) and len(kept) < limit:
        best, rest = candidates[0], candidates[1:]
        kept.append(int(best))
        low = np.maximum(corners[best, :2], corners[rest, :2])
        high = np.minimum(corners[best, 2:], corners[rest, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=1)
        union = area[best] + area[rest] - shared
        # Boxes without area overlap nothing, so they never divide by zero here.
        overlap = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
        candidates = rest[overlap <= iou_threshold]
    return kept
