"""One small model for each of the ten operator families of Ansor's evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx

from zoo.writer import Writer


def conv(
    channels: tuple[int, int],
    size: Sequence[int],
    kernel: int,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> onnx.ModelProto:
    """A convolution over as many axes as `size` has, without a bias."""
    (cin, cout), dims = channels, len(size)
    w = Writer()
    x = w.input("x", (1, cin, *size))
    filters = w.normal((cout, cin // groups, *[kernel] * dims), 0.05)
    return w.model(w.node("Conv", x, filters, strides=[stride] * dims, pads=[pad] * 2 * dims,
                          dilations=[dilation] * dims, group=groups))  # fmt: skip


def transposed(channels: tuple[int, int], size: int) -> onnx.ModelProto:
    """A transposed convolution that doubles the image, as generators of images have."""
    w = Writer()
    x = w.input("x", (1, channels[0], size, size))
    filters = w.normal((*channels, 4, 4), 0.05)
    return w.model(w.node("ConvTranspose", x, filters, strides=[2, 2], pads=[1] * 4))


def capsule(channels: int, size: int) -> onnx.ModelProto:
    """A convolution of capsules: pixels are matrices of 4 x 4, multiplied where numbers were."""
    w = Writer()
    x = w.input("x", (1, size, size, 4, 4, channels))
    y = w.node("Transpose", x, perm=[0, 3, 4, 5, 1, 2])
    y = w.node("Reshape", y, w.ints(4, 4 * channels, size, size))
    y = w.node("Conv", y, w.normal((4 * channels, 4 * channels, 3, 3), 0.05), pads=[1] * 4)
    y = w.node("Reshape", y, w.ints(1, 4, 4, channels, size, size))
    return w.model(w.node("Transpose", y, perm=[0, 4, 5, 1, 2, 3]))


def product(size: int) -> onnx.ModelProto:
    """A matrix times a matrix, both inputs."""
    w = Writer()
    return w.model(w.node("MatMul", w.input("a", (1, size, size)), w.input("b", (1, size, size))))


def norm(size: int) -> onnx.ModelProto:
    """The root of the sum of the squares of a matrix."""
    w = Writer()
    return w.model(w.node("ReduceL2", w.input("x", (1, size, size)), w.ints(1, 2), keepdims=0))


OPERATORS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "C1D": lambda: conv((128, 256), [128], 1, 2),
    "C2D": lambda: conv((64, 64), [56, 56], 1),
    "C3D": lambda: conv((64, 64), [8, 14, 14], 3, pad=1),
    "GMM": lambda: product(128),
    "GRP": lambda: conv((256, 256), [14, 14], 3, pad=1, groups=4),
    "DIL": lambda: conv((256, 256), [14, 14], 3, pad=1, dilation=2),
    "DEP": lambda: conv((32, 32), [112, 112], 3, pad=1, groups=32),
    "T2D": lambda: transposed((256, 128), 8),
    "CAP": lambda: capsule(16, 8),
    "NRM": lambda: norm(512),
}
