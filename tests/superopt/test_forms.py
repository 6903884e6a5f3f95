"""The generator's tables say what the operators say: one meaning, read in a prime field."""

from __future__ import annotations

import numpy as np
import pytest

from whet.core.dtypes import f64
from whet.core.types import Array, Shape
from whet.ops.activation import Gelu, Relu
from whet.ops.arithmetic import Add, Maximum, Minimum, Mul, Reciprocal, Sub
from whet.ops.base import Op
from whet.ops.conv import Conv, ConvTranspose
from whet.ops.logic import Where
from whet.ops.matmul import MatMul
from whet.ops.movement import Concat, Reshape, Split, Transpose
from whet.ops.pool import AvgPool, MaxPool
from whet.ops.reduce import ReduceMean, ReduceSum
from whet.ops.weights import (
    ConvIdentity,
    Enlarge,
    MatMulIdentity,
    MulIdentity,
    PoolWeight,
    Regroup,
)
from whet.superopt.generate.evaluate import KIND_NUMBERS, ONES, fill
from whet.superopt.generate.field import DRAWS, PRIME, residue
from whet.superopt.generate.forms import NotPolynomialError, make_forms

WINDOW = ((3, 3), (1, 2), (1, 0, 1, 2), (1, 1))
CASES: tuple[tuple[Op, tuple[Shape, ...]], ...] = (
    (Add(), ((3, 4), (3, 4))),
    (Sub(), ((3, 4), (4,))),
    (Mul(), ((3, 4), ())),
    (MatMul(), ((2, 3, 4), (2, 4, 5))),
    (Conv((1, 2), (1, 0, 1, 2), (1, 1)), ((2, 4, 5, 6), (6, 4, 3, 3))),
    (Conv((2, 1), (1, 1, 0, 0), (1, 2), 2), ((2, 4, 5, 6), (6, 2, 3, 2))),
    (Conv((1, 1), (1, 1, 1, 1), (1, 1), 4), ((1, 4, 5, 3), (4, 1, 3, 3))),
    (AvgPool(*WINDOW), ((2, 3, 5, 6),)),
    (AvgPool(*WINDOW, count_include_pad=True), ((2, 3, 5, 6),)),
    (MaxPool(*WINDOW), ((2, 3, 5, 6),)),
    (Maximum(), ((3, 4), ())),
    (Minimum(), ((3, 4), (3, 4))),
    (ConvTranspose((2, 1), (1, 0, 1, 1), (1, 1), (1, 0)), ((2, 3, 3, 4), (3, 2, 3, 2))),
    (Conv((1, 2, 1), (1, 0, 0, 1, 0, 1), (1, 1, 1)), ((1, 2, 3, 4, 2), (3, 2, 2, 1, 2))),
    (Relu(), ((3, 4),)),
    (Transpose((0, 2, 1)), ((2, 3, 4),)),
    (Reshape((6, 4)), ((2, 3, 4),)),
    (Concat(1), ((2, 3), (2, 1))),
    (Split(0, (1, 2)), ((3, 2),)),
    (Enlarge((3, 5)), ((2, 3, 1, 3),)),
    (Regroup(4, 2), ((4, 3, 2),)),
    (ReduceSum((1,), True), ((3, 4),)),
    (ReduceMean((0,), False), ((4, 3),)),
    (PoolWeight(channels=3, kernel=(3, 2)), ()),
    (ConvIdentity(channels=3, kernel=(3, 1)), ()),
    (MatMulIdentity(size=3), ()),
    (MulIdentity(extents=(2, 3)), ()),
)


def rows(array: Array) -> Array:
    """The array as one data row per draw, negative numbers as residues, a 1 at the end."""
    flat = np.append(array.astype(np.int64).ravel() % PRIME, 1).astype(np.uint32)
    return np.broadcast_to(flat, (1, DRAWS, len(flat))).copy()


def in_field(op: Op, arrays: tuple[Array, ...]) -> list[Array]:
    """What the table of the operator gives in exact mode, first draw."""
    operands = [*(rows(a) for a in arrays), ONES, ONES][:2]
    results = []
    for form in make_forms(op, [a.shape for a in arrays]):
        out = np.zeros((1, DRAWS, int(np.prod(form.shape)) + 1), np.uint32)
        zero = np.zeros(1, np.int32)
        fill(operands[0], zero, operands[1], zero, form.start, form.first, form.second,
             form.factor, form.plain, KIND_NUMBERS[form.kind], np.uint64(0), True, out)  # fmt: skip
        results.append(out[0, 0, :-1].reshape(form.shape))
    return results


@pytest.mark.parametrize(("op", "shapes"), CASES, ids=[str(op) for op, _ in CASES])
def test_tables_agree_with_the_reference(op: Op, shapes: tuple[Shape, ...]) -> None:
    rng = np.random.default_rng(1)
    # Multiples of all window sizes, so that averages are integers too.
    arrays = tuple(rng.integers(-5, 6, s).astype(np.float64) * 180 for s in shapes)
    expected = op.run_reference(arrays)
    found = in_field(op, arrays)
    assert len(found) == len(expected)
    for have, want in zip(found, expected):
        scaled = np.rint(want.astype(np.float64) * 180)
        np.testing.assert_array_equal(
            have.astype(np.int64) * 180 % PRIME, scaled.astype(np.int64) % PRIME
        )
    assert f64.numpy == np.float64


def test_a_fraction_is_exact() -> None:
    assert residue(1 / 9) * 9 % PRIME == 1
    with pytest.raises(ValueError, match="no simple fraction"):
        residue(np.pi)


def test_an_opaque_function_is_pointwise_and_not_relu() -> None:
    (gelu,), (relu,) = make_forms(Gelu(), [(3, 4)]), make_forms(Relu(), [(3, 4)])
    assert (gelu.kind, relu.kind) == ("pointwise", "relu")


def test_a_reciprocal_is_the_inverse() -> None:
    (form,) = make_forms(Reciprocal(), [(3, 4)])
    assert form.kind == "inverse"
    values = np.arange(-6, 6).reshape(3, 4) + 0.0
    (found,) = in_field(Reciprocal(), (values,))
    product = found.astype(np.int64) * (values.astype(np.int64) % PRIME) % PRIME
    np.testing.assert_array_equal(product, values != 0)


def test_three_inputs_are_refused() -> None:
    with pytest.raises(NotPolynomialError, match="at most two inputs"):
        make_forms(Where(), [(2,), (2,), (2,)])
