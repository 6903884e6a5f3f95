"""Branches: one of two bodies, as a condition says."""

from __future__ import annotations

from typing import Any

import numpy as np

from whet.core.dtypes import bool_, f32
from whet.core.types import Array, Shape, TensorType
from whet.ops.arithmetic import Add, Exp, Mul
from whet.ops.base import Body, Builder, NoAlgebra, Sample, operator, require
from whet.ops.logic import Where
from whet.ops.movement import Reshape
from whet.ops.shared.control import Control, StepsBody, op_body, require_truth


@operator("branch", "condition", "*values")
class Branch(Control):
    """The results of `then_body` if the condition holds, else those of `else_body`.

    Both take all values and give results of the same types; only one of them runs.
    """

    then_body: Body
    else_body: Body

    unseen = 1

    def infer(self, condition: TensorType, *values: TensorType) -> tuple[TensorType, ...]:
        require_truth(self, condition)
        for body in (self.then_body, self.else_body):
            require(values == body.input_types, self,
                    f"a body takes {', '.join(map(str, body.input_types))}", *values)  # fmt: skip
        results, others = self.then_body.output_types, self.else_body.output_types
        require(results == others, self, "the bodies give different types", *results, *others)
        return results

    def reference(self, condition: Array, *values: Array) -> tuple[Array, ...]:
        return (self.then_body if condition.any() else self.else_body).run(values)

    def expand(self, b: Builder, condition: Any, *values: Any) -> tuple[Any, ...]:
        """Both bodies, and a choice per element."""
        chosen = b(Reshape(()), condition) if b.type(condition).rank else condition
        both = zip(self.then_body.build(b, *values), self.else_body.build(b, *values), strict=True)
        return tuple(b(Where(), chosen, x, y) for x, y in both)

    axioms = NoAlgebra("its algebra is that of its bodies")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (cls._sample((), 7), cls._sample((1, 1), 1))

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        return cls._sample((1,) * int(rng.integers(3)), int(rng.integers(1, 40)))

    @classmethod
    def _sample(cls, condition: Shape, width: int) -> Sample:
        """exp(x) * y or x + y."""
        row = TensorType((width,), f32)
        dear = StepsBody((row, row), ((Exp(), (0,)), (Mul(), (2, 1))), (3,))
        op = cls(dear, op_body(Add(), row, row))
        return Sample(op, (TensorType(condition, bool_), row, row))
