"""Control flow: what operators that run bodies have in common.

A body is a graph as an attribute (`whet.ops.base.Body`).  Native code runs it where the operator
stands, as often as the operator says; the kernels of a body exist once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from whet.core.dtypes import bool_, f64
from whet.core.types import Array, TensorType
from whet.ops.base import Builder, Op, require


@dataclass(frozen=True)
class Control(Op):
    """Base: an operator that runs the bodies among its attributes."""

    unseen: ClassVar[int] = 0
    """How many of the operator's values, from the first on, its bodies do not take."""

    @property
    def first_whole(self) -> int:
        """From which input of a body on it takes the operator's values as they are, every time."""
        return 0

    @property
    def is_kept(self) -> bool:
        """Whether native code runs the bodies, rather than that they are written out."""
        return True


def require_truth(op: Op, t: TensorType) -> None:
    """Refuse what is no single truth value."""
    require(t.dtype == bool_ and t.size == 1, op, "a condition must be one truth value", t)


@dataclass(frozen=True)
class StepsBody:
    """A body as a list of operators.

    Step number n applies an operator to values by number: the inputs come first, then the
    results of the steps before.  `outputs` are numbers as well.
    """

    input_types: tuple[TensorType, ...]
    steps: tuple[tuple[Op, tuple[int, ...]], ...]
    outputs: tuple[int, ...]

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        known: list[Any] = list(self.input_types)
        for op, numbers in self.steps:
            known += op.infer_types(tuple(known[n] for n in numbers))
        return tuple(known[n] for n in self.outputs)

    def run(self, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        known = list(arrays)
        for op, numbers in self.steps:
            known += op.run_reference(tuple(known[n] for n in numbers))
        return tuple(known[n] for n in self.outputs)

    def build(self, builder: Builder, *values: Any) -> tuple[Any, ...]:
        known = list(values)
        for op, numbers in self.steps:
            made = builder(op, *(known[n] for n in numbers))
            known += made if isinstance(made, tuple) else (made,)
        return tuple(known[n] for n in self.outputs)

    def widened(self) -> StepsBody:
        wide = (t.with_dtype(f64) if t.dtype.is_float else t for t in self.input_types)
        return StepsBody(tuple(wide), self.steps, self.outputs)


def op_body(op: Op, *types: TensorType) -> StepsBody:
    """The body that applies one operator."""
    results = len(op.infer_types(types))
    given = tuple(range(len(types)))
    return StepsBody(types, ((op, given),), tuple(len(types) + n for n in range(results)))
