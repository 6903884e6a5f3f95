"""The operators and subgraphs of the Ansor paper's evaluation: ten families, four shapes each.

Shapes are those of the paper's appendix, batch 1 and 16.  Layout is channels first; weights are
constants, both operands of GMM and TBS are inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from zoo.networks import Network, described
from zoo.writer import Writer

Shape = tuple[int, ...]

_CONV2D: tuple[Shape, ...] = (
    (224, 224, 3, 64, 7, 2, 3),
    (56, 56, 64, 64, 1, 1, 0),
    (14, 14, 256, 256, 3, 1, 1),
    (7, 7, 512, 512, 3, 1, 1),
)
"""Height, width, channels in and out, kernel, stride, padding."""

SHAPES: dict[str, tuple[Shape, ...]] = {
    "C1D": ((256, 64, 128, 3, 2, 1), (128, 128, 256, 1, 2, 0), (64, 256, 256, 5, 1, 2),
            (32, 512, 512, 3, 1, 1)),
    "C2D": _CONV2D,
    "C3D": tuple((16, *s) for s in _CONV2D),
    "GMM": ((128, 128, 128), (512, 32, 512), (512, 512, 512), (1024, 1024, 1024)),
    "GRP": ((56, 56, 64, 128, 3, 2, 1), (56, 56, 64, 64, 1, 1, 0), (14, 14, 256, 256, 3, 1, 1),
            (7, 7, 512, 512, 3, 1, 1)),
    "DIL": _CONV2D,
    "DEP": ((112, 112, 32, 3, 1, 1), (112, 112, 64, 3, 2, 1), (14, 14, 512, 3, 2, 1),
            (7, 7, 1024, 3, 1, 1)),
    "T2D": ((4, 4, 512, 256, 4, 2, 1), (8, 8, 256, 128, 4, 2, 1), (16, 16, 128, 64, 4, 2, 1),
            (32, 32, 64, 3, 4, 2, 1)),
    "CAP": ((16, 16, 32, 32, 3, 2, 1), (8, 8, 32, 32, 3, 1, 1), (16, 16, 8, 16, 3, 2, 1),
            (8, 8, 16, 16, 3, 1, 1)),
    "NRM": ((256, 256), (512, 512), (1024, 1024), (4096, 1024)),
    "ConvLayer": ((224, 224, 3, 64, 7, 2, 3), (56, 56, 64, 128, 3, 2, 1),
                  (28, 28, 128, 256, 1, 2, 0), (7, 7, 512, 512, 3, 1, 1)),
    "TBS": ((128, 12, 64), (128, 16, 64), (64, 12, 128), (128, 12, 128)),
}  # fmt: skip
FAMILIES = tuple(SHAPES)
_GROUPS, _DILATION, _POSE = 4, 2, 4


@dataclass(frozen=True, slots=True)
class Case:
    """One operator on one shape."""

    family: str
    number: int
    batch: int

    def __str__(self) -> str:
        return f"{self.family}_{self.number}_b{self.batch}"

    @property
    def shape(self) -> Shape:
        return SHAPES[self.family][self.number]

    def model(self) -> onnx.ModelProto:
        return _BUILDERS[self.family](self.batch, *self.shape)

    def written(self, folder: Path) -> Network:
        """The case as a file."""
        path, model = folder / f"{self}.onnx", self.model()
        onnx.save(model, path)
        return Network(str(self), path, tuple(described(i) for i in model.graph.input))


def cases(families: Sequence[str] = FAMILIES, batches: Sequence[int] = (1, 16)) -> Iterator[Case]:
    for family in families:
        for batch in batches:
            for number in range(len(SHAPES[family])):
                yield Case(family, number, batch)


def _convolution(
    w: Writer, x: str, cin: int, cout: int, kernel: Sequence[int], stride: int, pad: int,
    *, groups: int = 1, dilation: int = 1, bias: bool = False,
) -> str:  # fmt: skip
    dims = len(kernel)
    fan = cin // groups
    for k in kernel:
        fan *= k
    given = [x, w.normal((cout, cin // groups, *kernel), fan**-0.5)]
    if bias:
        given.append(w.normal((cout,), 0.05))
    return w.node("Conv", *given, kernel_shape=list(kernel), strides=[stride] * dims,
                  pads=[pad] * 2 * dims, dilations=[dilation] * dims, group=groups)  # fmt: skip


def _conv1d(n: int, length: int, ci: int, co: int, k: int, s: int, p: int) -> onnx.ModelProto:
    w = Writer()
    return w.model(_convolution(w, w.input("x", (n, ci, length)), ci, co, (k,), s, p))


def _conv2d(
    n: int, h: int, width: int, ci: int, co: int, k: int, s: int, p: int,
    groups: int = 1, dilation: int = 1,
) -> onnx.ModelProto:  # fmt: skip
    w = Writer()
    x = w.input("x", (n, ci, h, width))
    return w.model(_convolution(w, x, ci, co, (k, k), s, p, groups=groups, dilation=dilation))


def _conv3d(
    n: int, d: int, h: int, width: int, ci: int, co: int, k: int, s: int, p: int
) -> onnx.ModelProto:
    w = Writer()
    return w.model(_convolution(w, w.input("x", (n, ci, d, h, width)), ci, co, (k, k, k), s, p))


def _grouped(n: int, *shape: int) -> onnx.ModelProto:
    return _conv2d(n, *shape, groups=_GROUPS)


def _dilated(n: int, *shape: int) -> onnx.ModelProto:
    return _conv2d(n, *shape, dilation=_DILATION)


def _depthwise(n: int, h: int, width: int, c: int, k: int, s: int, p: int) -> onnx.ModelProto:
    return _conv2d(n, h, width, c, c, k, s, p, groups=c)


def _transposed(
    n: int, h: int, width: int, ci: int, co: int, k: int, s: int, p: int
) -> onnx.ModelProto:
    w = Writer()
    weight = w.normal((ci, co, k, k), (ci * k * k / s**2) ** -0.5)
    return w.model(w.node("ConvTranspose", w.input("x", (n, ci, h, width)), weight,
                          kernel_shape=[k, k], strides=[s, s], pads=[p] * 4))  # fmt: skip


def _capsule(
    n: int, h: int, width: int, ci: int, co: int, k: int, s: int, p: int
) -> onnx.ModelProto:
    """out[n,h,w,i,j,co] = sum over window, k, c of in[n,.,.,i,k,c] * w[.,.,k,j,c,co]: a
    convolution with i folded into the batch, and transposes at both ends."""
    w = Writer()
    x = w.node("Transpose", w.input("x", (n, h, width, _POSE, _POSE, ci)), perm=[0, 3, 4, 5, 1, 2])
    x = w.node("Reshape", x, w.ints(n * _POSE, _POSE * ci, h, width))
    y = _convolution(w, x, _POSE * ci, _POSE * co, (k, k), s, p)
    rows, columns = ((e + 2 * p - k) // s + 1 for e in (h, width))
    y = w.node("Reshape", y, w.ints(n, _POSE, _POSE, co, rows, columns))
    return w.model(w.node("Transpose", y, perm=[0, 4, 5, 1, 2, 3]))


def _product(n: int, rows: int, columns: int, depth: int) -> onnx.ModelProto:
    w = Writer()
    a, b = w.input("a", (n, rows, depth)), w.input("b", (n, depth, columns))
    return w.model(w.node("MatMul", a, b))


def _norm(n: int, rows: int, columns: int) -> onnx.ModelProto:
    """The Frobenius norm of each matrix."""
    w = Writer()
    return w.model(w.node("ReduceL2", w.input("x", (n, rows, columns)), w.ints(1, 2), keepdims=0))


def _conv_layer(
    n: int, h: int, width: int, ci: int, co: int, k: int, s: int, p: int
) -> onnx.ModelProto:
    """Convolution, batch norm (folded, as exporters do) and relu."""
    w = Writer()
    x = w.input("x", (n, ci, h, width))
    return w.model(w.node("Relu", _convolution(w, x, ci, co, (k, k), s, p, bias=True)))


def _scores(n: int, length: int, heads: int, dim: int) -> onnx.ModelProto:
    """Transposed batch matrix product and softmax: the score half of attention."""
    w = Writer()
    q, k = (w.input(name, (n, length, heads, dim)) for name in ("q", "k"))
    a, b = w.node("Transpose", q, perm=[0, 2, 1, 3]), w.node("Transpose", k, perm=[0, 2, 3, 1])
    return w.model(w.node("Softmax", w.node("MatMul", a, b), axis=-1))


_BUILDERS: dict[str, Callable[..., onnx.ModelProto]] = {
    "C1D": _conv1d, "C2D": _conv2d, "C3D": _conv3d, "GMM": _product, "GRP": _grouped,
    "DIL": _dilated, "DEP": _depthwise, "T2D": _transposed, "CAP": _capsule, "NRM": _norm,
    "ConvLayer": _conv_layer, "TBS": _scores,
}  # fmt: skip
