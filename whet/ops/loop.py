"""Loops whose number of rounds depends on data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whet.core.dtypes import bool_, f32, i64
from whet.core.types import Array, Shape, TensorType
from whet.ops.arithmetic import Add, Sub
from whet.ops.base import Body, Domain, DynamicType, NoAlgebra, Sample, operator, require
from whet.ops.logic import Less
from whet.ops.shared.control import Control, StepsBody, require_truth


@dataclass(frozen=True)
class OpenLoop(Control):
    """Base: runs `body` for as long as it is to go on.

    The values are `going`, a truth value, then `states` initial states, then values that every
    round sees whole.  The body takes states and whole values, and gives whether to go on, the
    next states, and items, of which a round has one each.
    """

    body: Body
    states: int

    unseen = 1

    @property
    def first_whole(self) -> int:
        return self.states

    @property
    def folds(self) -> bool:
        return False  # nobody knows how long it runs

    def item_types(self, going: TensorType, *values: TensorType) -> tuple[TensorType, ...]:
        """The types of the items, after a check of all types."""
        require(0 <= self.states <= len(values), self, f"{self.states} states", *values,
                code="WH1101")  # fmt: skip
        require_truth(self, going)
        taken = ", ".join(map(str, self.body.input_types))
        require(values == self.body.input_types, self, f"the body takes {taken}", *values)
        onward, *given = self.body.output_types
        require_truth(self, onward)
        require(tuple(given[: self.states]) == values[: self.states], self,
                "the body does not give the states back", *given)  # fmt: skip
        return tuple(given[self.states :])

    def rounds(self, going: Array, values: tuple[Array, ...]) -> tuple[Any, list[Any]]:
        """The last states, and the items of every round."""
        states, whole = values[: self.states], values[self.states :]
        items = []
        while going.any():
            going, *given = self.body.run((*states, *whole))
            states = tuple(given[: self.states])
            items.append(given[self.states :])
        return states, items

    axioms = NoAlgebra("its rounds depend on each other")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (cls._sample((), 5), cls._sample((1,), 1))

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        return cls._sample((1,) * int(rng.integers(2)), int(rng.integers(1, 40)))

    @classmethod
    def _sample(cls, condition: Shape, width: int, *items: int) -> Sample:
        """n, x <- n - one, x + y while one < n, with these values as items."""
        number, row = TensorType(condition, i64), TensorType((width,), f32)
        n, x, one, y = range(4)
        body = StepsBody(
            (number, row, number, row),
            ((Less(), (one, n)), (Sub(), (n, one)), (Add(), (x, y))),
            (4, 5, 6, *items),
        )
        domains = (None, Domain(0, 6), None, Domain(1, 2), None)
        return Sample(cls(body, 2), (TensorType(condition, bool_), *body.input_types), domains)


@operator("while_loop", "going", "*values")
class WhileLoop(OpenLoop):
    """Runs `body` for as long as it is to go on; results are the last states."""

    def infer(self, going: TensorType, *values: TensorType) -> tuple[TensorType, ...]:
        items = self.item_types(going, *values)
        require(not items and self.states > 0, self, "a loop of states has no items", *items)
        return values[: self.states]

    def reference(self, going: Array, *values: Array) -> tuple[Array, ...]:
        states: tuple[Array, ...] = self.rounds(going, values)[0]
        return states


@operator("collecting_loop", "going", "*values")
class CollectingLoop(OpenLoop):
    """Runs `body` for as long as it is to go on; results are the last states, and the items of
    all rounds one behind the other."""

    host = True

    def infer(self, going: TensorType, *values: TensorType) -> tuple[TensorType | DynamicType, ...]:
        items = self.item_types(going, *values)
        require(bool(items), self, "there is nothing to collect", *values)
        return (*values[: self.states], *(DynamicType(t.rank + 1, t.dtype) for t in items))

    def reference(self, going: Array, *values: Array) -> tuple[Array, ...]:
        states, rounds = self.rounds(going, values)
        types = self.body.output_types[1 + self.states :]
        collected = [np.empty((len(rounds), *t.shape), t.dtype.numpy) for t in types]
        for number, items in enumerate(rounds):
            for target, item in zip(collected, items, strict=True):
                target[number] = item
        return (*states, *collected)

    @classmethod
    def _sample(cls, condition: Shape, width: int, *items: int) -> Sample:
        return super()._sample(condition, width, 6, 1)
