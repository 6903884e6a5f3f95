"""Mistakes in the definition of an operator are found when it is defined or first used."""

from __future__ import annotations

import numpy as np
import pytest

from whet.core.errors import OperatorError, WhetError
from whet.core.types import Array, TensorType
from whet.ops.base import REGISTRY, Op, make_op, operator


def test_a_name_is_taken_once() -> None:
    before = REGISTRY["relu"]
    with pytest.raises(WhetError, match="WH1106 operator 'relu' is defined twice"):

        @operator("relu", "x")
        class Again(Op):
            """Another relu."""

    assert REGISTRY["relu"] is before


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(OperatorError, match="WH1106 unknown operator 'frobnicate'"):
        make_op("frobnicate", {})


def test_a_result_must_have_the_inferred_type() -> None:
    class Wrong(Op):
        name, inputs = "wrong", ("x",)

        def infer(self, x: TensorType) -> TensorType:
            return x.with_shape((1,))

        def reference(self, x: Array) -> Array:
            return x

    with pytest.raises(WhetError, match=r"WH1105 wrong gave f32\[2\] where it inferred f32\[1\]"):
        Wrong().run_reference((np.zeros(2, np.float32),))
