"""Random graphs around a contraction whose result is split."""

from __future__ import annotations

from functools import partial

import numpy as np

from tests.build.random_graphs import RandomGraph
from whet.graph.graph import Graph, Value
from whet.ops.activation import Sigmoid
from whet.ops.arithmetic import Add, Mul
from whet.ops.conv import Conv
from whet.ops.matmul import MatMul
from whet.ops.movement import Concat, Split


class DividedGraph(RandomGraph):
    """Parts go on in different ways: to epilogues, to each other, to windows, side by side."""

    def build(self, length: int) -> Graph:
        image = self.rng.random() < 0.6
        space = tuple(self.number(1, 9) for _ in range(2 if image else 1))
        batch = (1,) if self.rng.random() < 0.7 else (2,)
        channels = self.number(1, 20)
        x = self.input((*batch, channels, *space) if image else (*batch, *space, channels))
        for _ in range(self.number(1, 2)):
            parts = self.divided(x, 1 if image else 2)
            if len({v.tensor_type for v in parts}) == 1 and self.rng.random() < 0.6:
                parts = [self.folded(parts)]
            parts = self.finished(parts)
            x = self.gathered(parts, 1 if image else 2)
            self.unread += [v for v in parts if self.rng.random() < 0.2]
        for _ in range(length):
            made = self.pick([self.unary, self.binary, self.broadcast, self.move])(x)
            x = x if made is None else made
        outputs = tuple(dict.fromkeys([x, *self.unread]))
        names = tuple(f"y{n}" for n in range(len(outputs)))
        return Graph(tuple(self.inputs), outputs, names)  # type: ignore[arg-type]

    def divided(self, x: Value, axis: int) -> list[Value]:
        """The parts of a product or a convolution, mostly of whole vectors."""
        unit = int(self.rng.choice([16, 16, 16, 8, 5]))
        sizes = tuple(unit * self.number(1, 4) for _ in range(self.number(2, 4)))
        if self.rng.random() < 0.3:
            sizes = (sizes[0],) * len(sizes)
        channels, columns = x.tensor_type.shape[axis], sum(sizes)
        if axis == 1:
            kernel = int(self.rng.choice([1, 1, 3]))
            op = Conv((1, 1), (kernel // 2,) * 4, (1, 1), 1)
            whole = self.b.one(op, x, self.operand((columns, channels, kernel, kernel)))
        else:
            whole = self.b.one(MatMul(), x, self.operand((channels, columns)))
        for step in (self.broadcast, self.unary):
            if self.rng.random() < 0.25:
                whole = step(whole)
        if self.rng.random() < 0.1:
            self.unread.append(whole)
        if whole.tensor_type.shape[0] > 1 and self.rng.random() < 0.1:
            return list(self.b.results(Split(0, (1, whole.tensor_type.shape[0] - 1)), whole))
        return list(self.b.results(Split(axis, sizes), whole))

    def finished(self, parts: list[Value]) -> list[Value]:
        """The parts after epilogues of their own, some of which read other parts."""
        found: list[Value] = []
        for part in parts:
            others = [v for v in (*found, *parts) if v is not part]
            for _ in range(self.number(0, 3)):
                together = partial(self.product, others=others)
                step = self.pick([self.unary, self.broadcast, self.gated, together])
                part = step(part) or part
            found.append(part)
        return found

    def folded(self, parts: list[Value]) -> Value:
        """One value of all parts: products and sums of them, of functions of them."""
        changed = [self.pick([self.unary, self.gated, self.broadcast])(v) or v for v in parts]
        total = changed[0]
        for v in changed[1:]:
            total = self.b.one((Mul(), Add())[self.number(0, 1)], total, v)
        return total

    def gated(self, v: Value) -> Value:
        return self.b.one(Mul(), v, self.b.one(Sigmoid(), v))

    def product(self, v: Value, others: list[Value]) -> Value:
        same = [u for u in others if u.tensor_type == v.tensor_type and u is not v]
        return self.b.one(Mul(), v, same[0]) if same else self.binary(v)

    def gathered(self, parts: list[Value], axis: int) -> Value:
        """Parts side by side, some of them after a window with a border."""
        if any(p.tensor_type.shape[0] != parts[0].tensor_type.shape[0] for p in parts):
            axis = 0
        chosen = [self.windowed(p) if axis == 1 and self.rng.random() < 0.4 else p for p in parts]
        order = [chosen[int(n)] for n in self.rng.permutation(len(chosen))]
        self.unread += order[:1] if self.rng.random() < 0.2 else []
        return self.b.one(Concat(axis), *order)

    def windowed(self, v: Value) -> Value:
        size = int(self.rng.choice([3, 3, 5]))
        op = Conv((1, 1), (size // 2,) * 4, (1, 1), 1)
        return self.b.one(op, v, self.operand((self.number(1, 3) * 8, v.tensor_type.shape[1], size,
                                               size)))  # fmt: skip


def divided_graph(rng: np.random.Generator, length: int) -> Graph:
    return DividedGraph(rng).build(length)
