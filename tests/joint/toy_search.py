"""A search over a handful of parts with made-up prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whet.core.dtypes import f32
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Value
from whet.joint.search import Step
from whet.ops.arithmetic import Add
from whet.superopt.apply.rewrite import Part


def chain(values: int) -> list[Part]:
    """Parts that a toy search walks over: number n is a chain of n additions."""
    b = GraphBuilder()
    x: Value = b.input("x", TensorType((2,), f32))
    made, parts = x, []
    for _ in range(values):
        made = b.one(Add(), made, x)
        parts.append(Part((x,), (made,)))
    return parts


PARTS = chain(8)


class Walk:
    """Prices of the parts, by number, and the steps between them."""

    def __init__(self, prices: Sequence[float], following: Mapping[int, Sequence[int]]) -> None:
        self.prices, self.following = prices, following
        self.asked: list[int] = []
        """The parts that were priced."""

    def steps(self, part: Part) -> list[Step]:
        return [((), PARTS[n]) for n in self.following[PARTS.index(part)]]

    def price(self, part: Part) -> float:
        self.asked.append(PARTS.index(part))
        return self.prices[self.asked[-1]]
