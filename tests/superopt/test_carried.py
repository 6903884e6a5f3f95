"""Axes that operators carry: what is read off their expressions holds of their NumPy meaning."""

from __future__ import annotations

import numpy as np
import pytest

from whet.core.dtypes import f32
from whet.core.types import Array, TensorType
from whet.graph.terms import read_term
from whet.ops.base import REGISTRY, Sample, make_op
from whet.superopt.apply.axis_rules import mergeable_axes
from whet.superopt.apply.carried import Carried, carried_axes, resized
from whet.superopt.verify.bounded import check_bounded
from whet.superopt.verify.claims import Claim
from whet.superopt.verify.identity import check_identity

SAMPLES = [
    (name, number)
    for name, operator in sorted(REGISTRY.items())
    if operator.deterministic and not operator.host
    for number in range(len(operator.samples()))
]


def typed(*shapes: tuple[int, ...]) -> tuple[TensorType, ...]:
    return tuple(TensorType(s, f32) for s in shapes)


def run(sample: Sample, op: object, arrays: tuple[Array, ...]) -> Array:
    return sample.op.__class__.run_reference(op, arrays)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "number"), SAMPLES)
def test_operators_commute_with_slices_along_carried_axes(name: str, number: int) -> None:
    sample = REGISTRY[name].samples()[number]
    arrays = sample.arrays(np.random.default_rng(number))
    for along in carried_axes(sample.op, sample.types):
        whole = run(sample, sample.op, arrays)
        extent = whole.shape[along.axis]
        for start, stop in ((0, 1), (extent - 1, extent), (0, extent - 1)):
            op = resized(sample.op, sample.types, along, [stop - start])
            if op is None or start == stop:
                continue
            places = zip(arrays, along.inputs)
            cut = tuple(a if b is None else a.take(range(start, stop), b) for a, b in places)
            expected = whole.take(range(start, stop), along.axis)
            np.testing.assert_allclose(run(sample, op, cut), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "number"), SAMPLES)
def test_operators_can_be_put_together_along_mergeable_axes(name: str, number: int) -> None:
    sample = REGISTRY[name].samples()[number]
    rng = np.random.default_rng(number)
    first, second = sample.arrays(rng), sample.arrays(rng)
    for along in mergeable_axes(sample.op, sample.types):
        second = tuple(b if p is not None else a for a, b, p in zip(first, second, along.inputs))
        parts = [run(sample, sample.op, arrays) for arrays in (first, second)]
        op = resized(sample.op, sample.types, along, [2 * parts[0].shape[along.axis]])
        if op is None:  # twice as long, it means something else
            continue
        pairs = zip(first, second, along.inputs)
        joined = tuple(a if p is None else np.concatenate((a, b), p) for a, b, p in pairs)
        expected = np.concatenate(parts, along.axis)
        np.testing.assert_allclose(run(sample, op, joined), expected, rtol=1e-5, atol=1e-6)


CASES = [
    ("matmul", {}, ((3, 4), (4, 5)), [(0, (0, None)), (1, (None, 1))]),
    ("matmul", {}, ((2, 3, 4), (4, 5)), [(0, (0, None)), (1, (1, None)), (2, (None, 1))]),
    ("add", {}, ((2, 3), (3,)), [(0, (0, None)), (1, (1, 0))]),
    ("softmax", {"axis": 1}, ((2, 3, 4),), [(0, (0,)), (2, (2,))]),
    ("reshape", {"shape": (2, 3, 2)}, ((2, 6),), [(0, (0,))]),
    ("transpose", {"perm": (1, 0)}, ((2, 3),), [(0, (1,)), (1, (0,))]),
    (
        "conv",
        {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1},
        ((2, 4, 5, 5), (3, 4, 3, 3)),
        [(0, (0, None)), (1, (None, 0))],
    ),
    (
        "conv",
        {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 2},
        ((2, 4, 5, 5), (6, 2, 3, 3)),
        [(0, (0, None))],
    ),
    ("layer_norm", {"axis": 1, "epsilon": 1e-5}, ((2, 3), (3,), (3,)), [(0, (0, None, None))]),
]


@pytest.mark.parametrize(("name", "attributes", "shapes", "expected"), CASES)
def test_known_operators(name: str, attributes: dict, shapes: tuple, expected: list) -> None:
    found = carried_axes(make_op(name, attributes), typed(*shapes))
    assert [(c.axis, c.inputs) for c in found] == expected


def test_an_extent_of_one_is_carried_once_it_is_longer() -> None:
    """The steps of a recurrence have one row each."""
    found = mergeable_axes(make_op("matmul", {}), typed((1, 4), (4, 4)))
    assert Carried(0, (0, None)) in found
    assert carried_axes(make_op("matmul", {}), typed((1, 4), (4, 4))) == (Carried(1, (None, 1)),)


def test_axes_that_matter_are_not_carried() -> None:
    """A sum over the axis, a window along it, or a condition on the position."""
    assert not carried_axes(make_op("reduce_sum", {"axes": (1,)}), typed((1, 3)))
    pool = {"kernel": (3, 3), "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    assert {c.axis for c in carried_axes(make_op("max_pool", pool), typed((2, 2, 5, 5)))} == {0, 1}
    assert 0 not in {
        c.axis for c in carried_axes(make_op("concat", {"axis": 0}), typed((2, 3), (2, 3)))
    }


AXIS_LAWS = [
    (
        (("x", 2), ("y", 2), ("w", 2)),
        "matmul(concat(x, y, axis=0), w)",
        "concat(matmul(x, w), matmul(y, w), axis=0)",
    ),
    (
        (("x", 2), ("w", 2), ("v", 2)),
        "matmul(x, concat(w, v, axis=1))",
        "concat(matmul(x, w), matmul(x, v), axis=1)",
    ),
    (
        (("x", 3), ("y", 3)),
        "softmax(concat(x, y, axis=0), axis=2)",
        "concat(softmax(x, axis=2), softmax(y, axis=2), axis=0)",
    ),
    (
        (("x", 4), ("w", 4), ("v", 4)),
        "conv(x, concat(w, v, axis=0), strides=s, pads=p, dilations=d, groups=1)",
        "concat(conv(x, w, strides=s, pads=p, dilations=d, groups=1), "
        "conv(x, v, strides=s, pads=p, dilations=d, groups=1), axis=1)",
    ),
    (
        (("x", 4), ("y", 4)),
        "max_pool(concat(x, y, axis=1), kernel=k, strides=s, pads=p, dilations=d)",
        "concat(max_pool(x, kernel=k, strides=s, pads=p, dilations=d), "
        "max_pool(y, kernel=k, strides=s, pads=p, dilations=d), axis=1)",
    ),
]


@pytest.mark.parametrize(("ranks", "left", "right"), AXIS_LAWS)
def test_laws_of_axes_pass_the_gates(
    ranks: tuple[tuple[str, int], ...], left: str, right: str
) -> None:
    claim = Claim(ranks, (read_term(left),), (read_term(right),))
    assert check_identity(claim, 0).passed
    verdict = check_bounded(claim, 0)
    assert verdict.passed or "cannot tell" in verdict.problem or "normal form" in verdict.problem
