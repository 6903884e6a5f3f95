"""Models of one operator, or of a few equal layers in a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from whet.core.types import Array
from zoo.writer import Writer


@dataclass(frozen=True, slots=True)
class ConvLayer:
    """A convolution on a square image, with bias and relu."""

    size: int
    cin: int
    cout: int
    kernel: int
    stride: int = 1
    groups: int = 1

    def __str__(self) -> str:
        name = f"{self.cin}-{self.cout} {self.kernel}x{self.kernel} @{self.size}"
        return name + (f" /{self.stride}" if self.stride > 1 else "")

    @property
    def out_size(self) -> int:
        return (self.size + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1

    @property
    def flops(self) -> float:
        per_pixel = 2.0 * self.cin // self.groups * self.cout * self.kernel**2
        return per_pixel * self.out_size**2

    @property
    def stackable(self) -> bool:
        """True if the output can be the input of the same layer."""
        return self.cin == self.cout and self.stride == 1


def resnet50_layers() -> list[ConvLayer]:
    """The 20 different convolutions of ResNet-50 as first published.

    There the first layer of a stage halves the image (later versions let the 3x3 layer do it;
    those three layers are `strided_3x3_layers`).
    """
    layers = [ConvLayer(224, 3, 64, 7, 2)]
    size, cin = 56, 64
    for mid in (64, 128, 256, 512):
        stride = 1 if mid == 64 else 2
        inside = size // stride
        layers += [
            ConvLayer(size, cin, mid, 1, stride),
            ConvLayer(inside, mid, mid, 3),
            ConvLayer(inside, mid, 4 * mid, 1),
            ConvLayer(size, cin, 4 * mid, 1, stride),
            ConvLayer(inside, 4 * mid, mid, 1),
        ]
        size, cin = inside, 4 * mid
    return list(dict.fromkeys(layers))


def strided_3x3_layers() -> list[ConvLayer]:
    """The 3x3 layers with stride 2 of later versions of ResNet-50."""
    return [ConvLayer(56, 128, 128, 3, 2), ConvLayer(28, 256, 256, 3, 2),
            ConvLayer(14, 512, 512, 3, 2)]  # fmt: skip


def resnext50_grouped_layers() -> list[ConvLayer]:
    """The 7 different 3x3 convolutions of ResNeXt-50, of 32 groups each."""
    shapes = [(56, 128, 1), (56, 256, 2), (28, 256, 1), (28, 512, 2), (14, 512, 1), (14, 1024, 2),
              (7, 1024, 1)]  # fmt: skip
    return [ConvLayer(size, c, c, 3, stride, groups=32) for size, c, stride in shapes]


def mobilenet_v2_depthwise_layers() -> list[ConvLayer]:
    """The 10 different depthwise convolutions of MobileNet-V2."""
    shapes = [(112, 32, 1), (112, 96, 2), (56, 144, 1), (56, 144, 2), (28, 192, 1), (28, 192, 2),
              (14, 384, 1), (14, 576, 1), (14, 576, 2), (7, 960, 1)]  # fmt: skip
    return [ConvLayer(size, c, c, 3, stride, groups=c) for size, c, stride in shapes]


def conv_model(layer: ConvLayer, copies: int = 1, channels_last: bool = False) -> onnx.ModelProto:
    """`copies` equal layers with different weights in a row.

    With `channels_last`, input and output are stored pixel by pixel and transposed inside, for
    runtimes that would otherwise convert the layout at the edges of the model.
    """
    w = Writer()
    shape = (1, layer.cin, layer.size, layer.size)
    if channels_last:
        y = w.node("Transpose", w.input("x", [shape[0], *shape[2:], shape[1]]), perm=[0, 3, 1, 2])
    else:
        y = w.input("x", shape)
    for _ in range(copies):
        y = w.conv(y, layer.cin, layer.cout, layer.kernel, layer.stride, groups=layer.groups)
    if channels_last:
        y = w.node("Transpose", y, perm=[0, 2, 3, 1])
    return w.model(y)


def matmul_model(m: int, n: int, k: int, constant: bool) -> onnx.ModelProto:
    """An m x k matrix times a k x n matrix, which is part of the model or an input."""
    w = Writer()
    a = w.input("a", (m, k))
    b = w.normal((k, n), k**-0.5) if constant else w.input("b", (k, n))
    return w.model(w.node("MatMul", a, b))


ELEMENTWISE = {"add": "Add", "relu": "Relu", "copy": "Identity", "exp": "Exp", "tanh": "Tanh"}


def elementwise_model(name: str, shape: Sequence[int]) -> onnx.ModelProto:
    """One operator over whole arrays."""
    w = Writer()
    inputs = [w.input(f"x{k}", shape) for k in range(2 if name == "add" else 1)]
    return w.model(w.node(ELEMENTWISE[name], *inputs))


def row_model(name: str, shape: Sequence[int]) -> onnx.ModelProto:
    """softmax, or layer_norm with scale and bias as inputs, along the last axis."""
    w = Writer()
    x = w.input("x0", shape)
    if name == "softmax":
        return w.model(w.node("Softmax", x, axis=-1))
    scale, bias = w.input("x1", shape[-1:]), w.input("x2", shape[-1:])
    return w.model(w.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5))


def direct_convolution(x: Array, weight: Array, bias: Array, layer: ConvLayer) -> Array:
    """relu(conv(x) + bias), channels first, in the precision of its arguments."""
    k, s, edge = layer.kernel, layer.stride, layer.kernel // 2
    padded = np.pad(x, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), (2, 3))[:, :, ::s, ::s]
    n, _, rows, columns = windows.shape[:4]
    if layer.groups == layer.cin:
        result = np.einsum("ncyxhw,chw->ncyx", windows, weight[:, 0], optimize=True)
    else:
        rows_of_windows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * rows * columns, -1)
        flat = rows_of_windows @ weight.reshape(layer.cout, -1).T
        result = flat.reshape(n, rows, columns, layer.cout).transpose(0, 3, 1, 2)
    return np.maximum(result + bias[:, None, None], 0)
