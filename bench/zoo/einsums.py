"""Contractions that no library has an operator for, as a user would write them.

Each is one Einsum with an epilogue of the user's own: a few scalar operators that follow it.
Operands are inputs, in whatever order of axes their producers left them, unless one is a weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from zoo.networks import Network, described
from zoo.writer import Writer

Epilogue = Callable[[Writer, str, tuple[int, ...]], str]


@dataclass(frozen=True)
class Contraction:
    """An equation, the extents of its letters and what follows it."""

    equation: str
    extents: Mapping[str, int]
    epilogue: Epilogue
    weight: bool = False
    """Whether the second operand is a constant."""

    def __str__(self) -> str:
        return self.equation

    @property
    def operations(self) -> float:
        """Of the sums of products alone: a multiplication and an addition for every term."""
        return 2.0 * math.prod(self.extents.values())

    def shape(self, letters: str) -> tuple[int, ...]:
        return tuple(self.extents[c] for c in letters)

    def model(self) -> onnx.ModelProto:
        operands, _, result = self.equation.partition("->")
        first, second = map(self.shape, operands.split(","))
        w = Writer()
        a = w.input("a", first)
        b = w.normal(second, 0.1) if self.weight else w.input("b", second)
        y = w.node("Einsum", a, b, equation=self.equation)
        return w.model(self.epilogue(w, y, self.shape(result)))

    def written(self, folder: Path) -> Network:
        """The model as a file."""
        name = self.equation.replace(",", "_").replace("->", "_to_")
        path, model = folder / f"{name}.onnx", self.model()
        onnx.save(model, path)
        return Network(name, path, tuple(described(i) for i in model.graph.input))


def _scaled_hard_swish(w: Writer, y: str, shape: tuple[int, ...]) -> str:
    """s = y / 8, s * clip(s / 6 + 1/2, 0, 1)"""
    s = w.node("Mul", y, w.number(0.125))
    gate = w.node("Add", w.node("Mul", s, w.number(1 / 6)), w.number(0.5))
    return w.node("Mul", s, w.node("Clip", gate, w.number(0.0), w.number(1.0)))


def _relu_and_residual(w: Writer, y: str, shape: tuple[int, ...]) -> str:
    """max(y, 0) + r"""
    return w.node("Add", w.node("Relu", y), w.input("r", shape))


def _gate_per_column(w: Writer, y: str, shape: tuple[int, ...]) -> str:
    """(y + bias) * sigmoid(1.7 (y + bias)), the bias along the middle axis"""
    s = w.node("Add", y, w.normal((shape[1], 1), 0.1))
    return w.node("Mul", s, w.node("Sigmoid", w.node("Mul", s, w.number(1.7))))


def _squared_and_clipped(w: Writer, y: str, shape: tuple[int, ...]) -> str:
    """min(max(y, 0)^2, 20) - y / 10"""
    positive = w.node("Relu", y)
    square = w.node("Min", w.node("Mul", positive, positive), w.number(20.0))
    return w.node("Sub", square, w.node("Mul", y, w.number(0.1)))


# Chosen before any of them was measured, and not to be changed to suit a figure.  The last one was
# added after the others had been.
CONTRACTIONS = (
    # Attention's scores, followed by what is no softmax.
    Contraction("bhqd,bhkd->bhqk", {"b": 2, "h": 8, "q": 128, "k": 128, "d": 96},
                _scaled_hard_swish),
    # A product over an axis in the middle of the weight's place, results of rank four.
    Contraction("abc,cde->abde", {"a": 4, "b": 48, "c": 320, "d": 24, "e": 40},
                _relu_and_residual, weight=True),
    # Two summed axes with odd extents, in different orders; results turned around.
    Contraction("ixjy,yzx->jzi", {"i": 33, "x": 7, "j": 65, "y": 37, "z": 51}, _gate_per_column),
    # A batch axis inside, the summed axis outside it in both operands.
    Contraction("nchw,nchv->nhwv", {"n": 2, "c": 160, "h": 14, "w": 56, "v": 72},
                _squared_and_clipped),
    # A batched outer product: nothing is summed, the results' bytes are all there is.
    Contraction("bi,bj->bij", {"b": 24, "i": 160, "j": 200}, _scaled_hard_swish),
    # A batched inner product: every element is read once.
    Contraction("bnd,bnd->bn", {"b": 4, "n": 512, "d": 384}, _scaled_hard_swish),
)  # fmt: skip
