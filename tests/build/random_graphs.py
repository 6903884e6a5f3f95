"""Small random graphs of the operators that networks are made of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whet.core.dtypes import f32
from whet.core.types import TensorType
from whet.graph.build import GraphBuilder
from whet.graph.graph import Graph, Value
from whet.ops.activation import Relu, Sigmoid
from whet.ops.arithmetic import Abs, Add, Exp, Maximum, Mul, Sub, Tanh
from whet.ops.conv import Conv
from whet.ops.matmul import MatMul
from whet.ops.movement import Concat, Reshape, Slice, Transpose
from whet.ops.pool import AvgPool, MaxPool
from whet.ops.reduce import ReduceMax, ReduceMean, ReduceSum
from whet.ops.softmax import Softmax

UNARY = (Relu, Sigmoid, Tanh, Abs)
BINARY = (Add, Sub, Mul, Maximum)


class RandomGraph:
    """Grows a graph of f32 values node by node."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.b = rng, GraphBuilder()
        self.inputs: list[Value] = []
        self.unread: list[Value] = []

    def build(self, length: int) -> Graph:
        """A graph of about `length` nodes whose outputs are the values that nothing reads."""
        rank = int(self.rng.choice([2, 3, 4, 4, 5], p=[0.3, 0.15, 0.25, 0.25, 0.05]))
        value = self.input(tuple(self.extent() for _ in range(rank)))
        for n in range(length):
            # Contractions have the most structure to get wrong, so most graphs begin with one.
            step = self.contract if n == 0 and self.rng.random() < 0.7 else self.pick([
                self.unary, self.binary, self.broadcast, self.contract, self.window, self.reduce,
                self.normalize, self.attend, self.move, self.join, self.cut,
            ])  # fmt: skip
            made = step(value)
            if made is not None and 0 < made.tensor_type.size < 1 << 16:
                value = made
                if self.rng.random() < 0.15:
                    self.unread.append(value)  # read again later, or an output of its own
        outputs = tuple(dict.fromkeys([value, *self.unread[:2]]))
        names = tuple(f"y{n}" for n in range(len(outputs)))
        return Graph(tuple(self.inputs), outputs, names)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------- drawing
    def pick(
        self, options: list[Callable[[Value], Value | None]]
    ) -> Callable[[Value], Value | None]:
        return options[int(self.rng.integers(len(options)))]

    def extent(self) -> int:
        """Mostly small and odd, sometimes a few vectors long."""
        sizes = [1, 2, 3, 5, 7, 8, 11, 16, 17, 24, 33]
        return int(self.rng.choice(sizes))

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def input(self, shape: tuple[int, ...]) -> Value:
        made = self.b.input(f"x{len(self.inputs)}", TensorType(shape, f32))
        self.inputs.append(made)
        return made

    def operand(self, shape: tuple[int, ...]) -> Value:
        """Another value of this shape: a constant or an input."""
        if self.rng.random() < 0.6:
            return self.b.constant(self.rng.uniform(-1, 1, shape).astype(np.float32))
        return self.input(shape)

    # --------------------------------------------------------------------------------- steps
    def unary(self, v: Value) -> Value:
        return self.b.one(UNARY[self.number(0, len(UNARY) - 1)](), v)

    def binary(self, v: Value) -> Value:
        same = [u for u in self.unread if u.tensor_type == v.tensor_type and u is not v]
        other = same[0] if same else self.operand(v.tensor_type.shape)
        return self.b.one(BINARY[self.number(0, len(BINARY) - 1)](), v, other)

    def broadcast(self, v: Value) -> Value:
        shape = tuple(d if self.rng.random() < 0.5 else 1 for d in v.tensor_type.shape)
        return self.b.one(BINARY[self.number(0, len(BINARY) - 1)](), v, self.operand(shape))

    def contract(self, v: Value) -> Value:
        shape = v.tensor_type.shape
        if len(shape) in (4, 5) and self.rng.random() < 0.7:
            return self.convolve(v)
        lead = shape[:-2] if self.rng.random() < 0.5 else ()
        return self.b.one(MatMul(), v, self.operand((*lead, shape[-1], self.extent())))

    def convolve(self, v: Value) -> Value:
        channels, *space = v.tensor_type.shape[1:]
        divisors = [g for g in range(1, channels + 1) if channels % g == 0]
        groups = int(self.rng.choice([1, 1, divisors[-1], divisors[len(divisors) // 2]]))
        kernel = [self.number(1, 3) for _ in space]
        dilations = [self.number(1, 2) for _ in space]
        strides = [self.number(1, 2) for _ in space]
        reach = [(k - 1) * d for k, d in zip(kernel, dilations)]
        pads = [max(self.number(0, r), r - d + 1) if r else 0 for d, r in zip(space, reach)]
        out = groups * self.number(1, max(1, 24 // groups))
        weights = self.operand((out, channels // groups, *kernel))
        op = Conv(tuple(strides), tuple(pads * 2), tuple(dilations), groups)
        return self.b.one(op, v, weights)

    def window(self, v: Value) -> Value | None:
        shape = v.tensor_type.shape
        if len(shape) != 4:
            return None
        kernel = [min(self.number(1, 3), d) for d in shape[2:]]
        pads = tuple([self.number(0, k // 2) for k in kernel] * 2)
        strides = (self.number(1, 2), self.number(1, 2))
        if self.rng.random() < 0.5:
            return self.b.one(MaxPool(tuple(kernel), strides, pads, (1, 1)), v)
        return self.b.one(AvgPool(tuple(kernel), strides, pads, (1, 1)), v)

    def reduce(self, v: Value) -> Value:
        rank = v.tensor_type.rank
        axes = tuple(n for n in range(rank) if self.rng.random() < 0.4) or (rank - 1,)
        cls = (ReduceSum, ReduceMean, ReduceMax)[self.number(0, 2)]
        made = self.b.one(cls(axes, True), v)
        return self.b.one(Sub(), v, made) if self.rng.random() < 0.6 else made

    def normalize(self, v: Value) -> Value:
        return self.b.one(Softmax(self.number(0, v.tensor_type.rank - 1)), v)

    def attend(self, v: Value) -> Value:
        """A product, something along its rows, and perhaps a product with that."""
        shape = v.tensor_type.shape
        lead = shape[:-2] if self.rng.random() < 0.7 else ()
        keys, width = self.extent(), shape[-1]
        if self.rng.random() < 0.5:
            turned = self.operand((*lead, keys, width))
            perm = (*range(len(lead)), len(lead) + 1, len(lead))
            other = self.b.one(Transpose(perm), turned)
        else:
            other = self.operand((*lead, width, keys))
        scores = self.b.one(MatMul(), v, other)
        if self.rng.random() < 0.5:
            scores = self.b.one(Add(), scores, self.operand((shape[-2], keys)))
        rows = self.b.one(Softmax(scores.tensor_type.rank - 1), scores)
        if self.rng.random() < 0.3:
            return rows
        return self.b.one(MatMul(), rows, self.operand((*lead, keys, self.extent())))

    def move(self, v: Value) -> Value:
        shape = v.tensor_type.shape
        if self.rng.random() < 0.5:
            return self.b.one(Transpose(tuple(map(int, self.rng.permutation(len(shape))))), v)
        at = self.number(0, len(shape) - 2)
        merged = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
        return self.b.one(Reshape(merged if len(merged) > 1 else (*merged, 1)), v)

    def join(self, v: Value) -> Value:
        axis = self.number(0, v.tensor_type.rank - 1)
        other = self.b.one(Exp(), self.b.one(Tanh(), v))
        return self.b.one(Concat(axis), v, other)

    def cut(self, v: Value) -> Value:
        shape = v.tensor_type.shape
        starts = tuple(self.number(0, d // 2) for d in shape)
        steps = tuple(self.number(1, 2) for _ in shape)
        return self.b.one(Slice(starts, shape, steps), v)


def random_graph(rng: np.random.Generator, length: int) -> Graph:
    return RandomGraph(rng).build(length)
