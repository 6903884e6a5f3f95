"""Small networks of random layers, of the kinds that images and sequences go through."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whet.core.dtypes import f32
from whet.core.types import Shape, TensorType
from whet.graph.graph import Graph, Value, apply, make_constant, make_input
from whet.graph.passes import expand_composites
from whet.ops import REGISTRY

CHANNELS = (3, 4, 5, 8, 12, 17)


class Grower:
    """Adds layers to a network."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        size = [int(n) for n in self.rng.integers(4, 10, 2)]
        self.x = make_input("x", TensorType((1, self.pick(CHANNELS), *size), f32))
        self.values: list[Value] = [self.x]

    def pick(self, options: tuple[int, ...]) -> int:
        return options[int(self.rng.integers(len(options)))]

    def weights(self, *shape: int) -> Value:
        return make_constant((self.rng.standard_normal(shape) / 4).astype(np.float32))

    def network(self, layers: int) -> Graph:
        kinds: list[Callable[[Value], Value | None]] = [
            self.convolution, self.convolution, self.transposed, self.pooled, self.shifted,
            self.positive, self.added, self.joined, self.sliced, self.normalized,
        ]  # fmt: skip
        while len(self.values) <= layers:
            made = kinds[int(self.rng.integers(len(kinds)))](self.values[-1])
            if made is not None:
                self.values.append(made)
        outputs = (self.values[-1],) + ((self.values[-2],) if self.rng.random() < 0.3 else ())
        names = tuple(f"y{n}" for n in range(len(outputs)))
        return expand_composites(Graph((self.x,), outputs, names))

    # ------------------------------------------------------------------------------------ layers
    def convolution(self, x: Value) -> Value:
        _, channels, *size = x.tensor_type.shape
        kernel = self.pick((1, 3)) if min(size) > 2 else 1
        groups = self.pick(tuple(g for g in (1, 1, 2, channels) if channels % g == 0))
        filters = self.pick(CHANNELS) * groups if groups < channels else channels
        w = self.weights(filters, channels // groups, kernel, kernel)
        stride = self.pick((1, 2)) if min(size) > 3 else 1
        op = REGISTRY["conv"]((stride,) * 2, (kernel // 2,) * 4, (1, 1), groups)
        return apply(op, x, w)[0]

    def transposed(self, x: Value) -> Value | None:
        _, channels, *size = x.tensor_type.shape
        if max(size) > 8:
            return None
        kernel, pad = ((4, 1), (2, 0), (3, 1))[int(self.rng.integers(3))]
        w = self.weights(channels, self.pick(CHANNELS), kernel, kernel)
        return apply(REGISTRY["conv_transpose"]((2, 2), (pad,) * 4, (1, 1), (0, 0), 1), x, w)[0]

    def pooled(self, x: Value) -> Value | None:
        if min(x.tensor_type.shape[2:]) < 4:
            return None
        return apply(REGISTRY["max_pool"]((3, 3), (2, 2), (1, 1, 1, 1), (1, 1)), x)[0]

    def shifted(self, x: Value) -> Value:
        return apply(REGISTRY["add"](), x, self.weights(1, x.tensor_type.shape[1], 1, 1))[0]

    def positive(self, x: Value) -> Value:
        return apply(REGISTRY[("relu", "tanh", "sigmoid")[self.pick((0, 1, 2))]](), x)[0]

    def added(self, x: Value) -> Value | None:
        others = [v for v in self.values[:-1] if v.tensor_type == x.tensor_type]
        return apply(REGISTRY["add"](), x, others[-1])[0] if others else None

    def joined(self, x: Value) -> Value | None:
        others = [v for v in self.values[:-1] if _but_channels(v) == _but_channels(x)]
        return apply(REGISTRY["concat"](1), x, others[-1])[0] if others else None

    def sliced(self, x: Value) -> Value | None:
        shape = x.tensor_type.shape
        if shape[1] < 4:
            return None
        stops = (1, shape[1] - 1, *shape[2:])
        return apply(REGISTRY["slice"]((0, 1, 0, 0), stops, (1, 1, 1, 1)), x)[0]

    def normalized(self, x: Value) -> Value:
        return apply(REGISTRY["softmax"](self.pick((1, 3))), x)[0]


def _but_channels(v: Value) -> Shape:
    shape = v.tensor_type.shape
    return (shape[0], *shape[2:])
