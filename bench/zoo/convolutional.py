"""Convolutional networks.

All take the size of the image, and `narrow`, which divides the numbers of channels; those with
stages take how many blocks each has.  The defaults are the networks as they were published.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from zoo.writer import Writer


def resnet50(
    groups: int = 1,
    width: int = 64,
    *,
    image: int = 224,
    narrow: int = 1,
    blocks: Sequence[int] = (3, 4, 6, 3),
) -> onnx.ModelProto:
    """ResNet-50; `groups=32, width=4` is ResNeXt-50 32x4d."""
    w = Writer()
    cin = 64 // narrow
    y = w.conv(w.input("x0", (1, 3, image, image)), 3, cin, 7, 2)
    y = w.max_pool(y, 3, 2, 1)
    for stage, count in enumerate(blocks):
        planes, first = 64 * 2**stage // narrow, 1 if stage == 0 else 2
        mid, cout = planes * width // 64 * groups, planes * 4
        for block in range(count):
            stride = first if block == 0 else 1
            z = w.conv(y, cin, mid, 1)
            z = w.conv(z, mid, mid, 3, stride, groups=groups)
            z = w.conv(z, mid, cout, 1, relu=False)
            if block == 0:
                y = w.conv(y, cin, cout, 1, stride, relu=False)
            y, cin = w.node("Relu", w.node("Add", z, y)), cout
    return w.model(w.classifier(y, cin, 1000 // narrow))


def resnext50(
    groups: int = 32,
    width: int = 4,
    *,
    image: int = 224,
    narrow: int = 1,
    blocks: Sequence[int] = (3, 4, 6, 3),
) -> onnx.ModelProto:
    return resnet50(groups, width, image=image, narrow=narrow, blocks=blocks)


def resnet18_3d(*, frames: int = 16, image: int = 112, narrow: int = 1) -> onnx.ModelProto:
    """R3D-18 on 16 frames of 112 x 112."""
    w = Writer()
    cin = 64 // narrow
    y = w.input("x0", (1, 3, frames, image, image))
    y = w.conv(y, 3, cin, (3, 7, 7), (1, 2, 2), dims=3)
    for stage in range(4):
        cout, first = 64 * 2**stage // narrow, 1 if stage == 0 else 2
        for stride in (first, 1):
            z = w.conv(y, cin, cout, 3, stride, dims=3)
            z = w.conv(z, cout, cout, 3, relu=False, dims=3)
            if cin != cout:
                y = w.conv(y, cin, cout, 1, stride, relu=False, dims=3)
            y, cin = w.node("Relu", w.node("Add", z, y)), cout
    return w.model(w.classifier(y, cin, 400 // narrow, dims=3))


def mobilenet_v2(
    *, image: int = 224, narrow: int = 1, blocks: Sequence[int] = (1, 2, 3, 4, 3, 3, 1)
) -> onnx.ModelProto:
    w = Writer()

    def conv6(x: str, cin: int, cout: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
        y = w.conv(x, cin, cout, kernel, stride, groups=groups, relu=False)
        return w.node("Clip", y, w.number(0.0), w.number(6.0))

    cin = 32 // narrow
    y = conv6(w.input("x0", (1, 3, image, image)), 3, cin, 3, 2)
    stages = [(1, 16, 1), (6, 24, 2), (6, 32, 2), (6, 64, 2), (6, 96, 1), (6, 160, 2), (6, 320, 1)]
    for (expand, channels, first), count in zip(stages, blocks, strict=True):
        cout = channels // narrow
        for block in range(count):
            stride, mid = (first if block == 0 else 1), cin * expand
            z = conv6(y, cin, mid, 1) if expand > 1 else y
            z = conv6(z, mid, mid, 3, stride, groups=mid)
            z = w.conv(z, mid, cout, 1, relu=False)
            y = w.node("Add", y, z) if stride == 1 and cin == cout else z
            cin = cout
    last = 1280 // narrow
    return w.model(w.classifier(conv6(y, cin, last, 1), last, 1000 // narrow))


def dcgan(*, narrow: int = 1) -> onnx.ModelProto:
    """The generator: a code of 100 numbers to an image of 64 x 64."""
    w = Writer()
    cin = 100
    y = w.input("x0", (1, cin, 1, 1))
    for cout, stride, pad in [
        (512 // narrow, 1, 0), (256 // narrow, 2, 1), (128 // narrow, 2, 1), (64 // narrow, 2, 1),
        (3, 2, 1),
    ]:  # fmt: skip
        fan = cin * 16 / stride**2
        weight, bias = w.normal((cin, cout, 4, 4), (1.5 / fan) ** 0.5), w.normal((cout,), 0.05)
        y = w.node("ConvTranspose", y, weight, bias, kernel_shape=[4, 4], strides=[stride] * 2,
                   pads=[pad] * 4)  # fmt: skip
        y, cin = w.node("Relu" if cout > 3 else "Tanh", y), cout
    return w.model(y)


def squeezenet(*, image: int = 224, narrow: int = 1) -> onnx.ModelProto:
    """SqueezeNet 1.1."""
    w = Writer()
    cin = 64 // narrow
    y = w.conv(w.input("x0", (1, 3, image, image)), 3, cin, 3, 2, 0)
    for full in (0, 64, 64, 0, 128, 128, 0, 192, 192, 256, 256):
        if not full:
            y = w.max_pool(y, 3, 2, ceil=True)
            continue
        wide = full // narrow
        squeeze = wide // 4
        s = w.conv(y, cin, squeeze, 1)
        parts = w.conv(s, squeeze, wide, 1), w.conv(s, squeeze, wide, 3)
        y, cin = w.node("Concat", *parts, axis=1), 2 * wide
    y = w.conv(y, cin, 1000 // narrow, 1)
    return w.model(w.node("ReduceMean", y, w.ints(2, 3), keepdims=0))


def inception_v3(*, image: int = 299, narrow: int = 1) -> onnx.ModelProto:
    """Inception-v3 at 299 x 299, without the auxiliary head."""
    w = Writer()
    layers = Narrowed(w, narrow)
    conv, chain, pooled, join = layers.conv, layers.chain, layers.pooled, layers.join
    y = w.input("x0", (1, 3, image, image))
    y = w.conv(y, 3, 32 // narrow, 3, 2, 0)
    y = conv(y, 32, 32, 3, 1, 0)
    y = w.max_pool(conv(y, 32, 64, 3), 3, 2)
    y = conv(conv(y, 64, 80, 1), 80, 192, 3, 1, 0)
    y, cin = w.max_pool(y, 3, 2), 192
    for last in (32, 64, 64):
        y = join(
            conv(y, cin, 64, 1),
            chain(y, cin, (48, 1), (64, 5)),
            chain(y, cin, (64, 1), (96, 3), (96, 3)),
            pooled(y, cin, last),
        )
        cin = 224 + last
    y = join(
        conv(y, cin, 384, 3, 2, 0),
        conv(chain(y, cin, (64, 1), (96, 3)), 96, 96, 3, 2, 0),
        w.max_pool(y, 3, 2),
    )
    cin, flat, tall = 768, (1, 7), (7, 1)
    for m in (128, 160, 160, 192):
        y = join(
            conv(y, cin, 192, 1),
            chain(y, cin, (m, 1), (m, flat), (192, tall)),
            chain(y, cin, (m, 1), (m, tall), (m, flat), (m, tall), (192, flat)),
            pooled(y, cin, 192),
        )
    y = join(
        conv(conv(y, cin, 192, 1), 192, 320, 3, 2, 0),
        conv(chain(y, cin, (192, 1), (192, flat), (192, tall)), 192, 192, 3, 2, 0),
        w.max_pool(y, 3, 2),
    )
    cin = 1280
    for _ in range(2):
        a, b = conv(y, cin, 384, 1), chain(y, cin, (448, 1), (384, 3))
        forks = [join(conv(v, 384, 384, (1, 3)), conv(v, 384, 384, (3, 1))) for v in (a, b)]
        y, cin = join(conv(y, cin, 320, 1), *forks, pooled(y, cin, 192)), 2048
    return w.model(w.classifier(y, cin // narrow, 1000 // narrow))


class Narrowed:
    """The layers of Inception-v3, told the published numbers of channels."""

    def __init__(self, w: Writer, narrow: int) -> None:
        self.w, self.narrow = w, narrow

    def conv(
        self,
        x: str,
        cin: int,
        cout: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        pad: int | None = None,
    ) -> str:
        return self.w.conv(x, cin // self.narrow, cout // self.narrow, kernel, stride, pad)

    def chain(self, x: str, cin: int, *layers: tuple[int, int | tuple[int, int]]) -> str:
        for cout, kernel in layers:
            x, cin = self.conv(x, cin, cout, kernel), cout
        return x

    def pooled(self, x: str, cin: int, cout: int) -> str:
        return self.conv(self.w.average_pool(x, 3, 1, 1, count_pad=True), cin, cout, 1)

    def join(self, *parts: str) -> str:
        return self.w.node("Concat", *parts, axis=1)


def nasnet_a(
    *, image: int = 224, narrow: int = 1, stages: int = 3, cells: int = 4
) -> onnx.ModelProto:
    """NASNet-A mobile (4 @ 1056)."""
    made = NasNetCells()
    w, first = made.w, 32 // narrow
    stem = w.conv(w.input("x0", (1, 3, image, image)), 3, first, 3, 2, 0, relu=False)
    before: Feature | None = None
    now: Feature = (stem, first, 2)
    plan = [(11 // narrow, True), (22 // narrow, True)]
    for stage in range(stages):
        filters = 44 // narrow * 2**stage
        plan += [(filters, True)] * (stage > 0) + [(filters, False)] * cells
    for filters, reduce in plan:
        before, now = now, made.cell(before, now, filters, reduce)
    return w.model(w.classifier(w.node("Relu", now[0]), now[1], 1000 // narrow))


Feature = tuple[str, int, int]
"""A value, its channels, and how many input pixels one of its pixels spans."""


def nasnet_cell(*, image: int = 28, filters: int = 44) -> onnx.ModelProto:
    """A normal cell of NASNet-A as the TASO paper has it: its convolutions have no
    biases, and its pools count the border."""
    made, wide = NasNetCells(bias=False, count_pad=True), 6 * filters
    before, now = (made.w.input(f"x{n}", (1, wide, image, image)) for n in range(2))
    return made.w.model(made.cell((before, wide, 1), (now, wide, 1), filters, reduce=False)[0])


def residual_module(*, image: int = 28, cin: int = 128, cout: int = 128) -> onnx.ModelProto:
    """Two 3x3 convolutions with a 1x1 convolution beside them, without biases."""
    w = Writer()
    x = w.input("x0", (1, cin, image, image))
    y = w.conv(w.conv(x, cin, cout, 3, bias=False), cout, cout, 3, relu=False, bias=False)
    shortcut = w.conv(x, cin, cout, 1, relu=False, bias=False)
    return w.model(w.node("Relu", w.node("Add", y, shortcut)))


class NasNetCells:
    """The cells that NASNet-A is made of."""

    def __init__(self, bias: bool = True, count_pad: bool = False) -> None:
        self.w, self.bias, self.count_pad = Writer(), bias, count_pad

    def cell(self, before: Feature | None, now: Feature, c: int, reduce: bool) -> Feature:
        x, _, span = now
        h = self.squeeze(now, c)
        p, pc = (x, now[1]) if before is None else (self.adjust(before, now, c), c)
        add, w = self.add, self.w

        def average(v: str, stride: int = 1) -> str:
            return w.average_pool(v, 3, stride, 1, self.count_pad)

        if reduce:
            y0 = add(self.separable(h, c, c, 5, 2), self.separable(p, pc, c, 7, 2))
            y1 = add(w.max_pool(h, 3, 2, 1), self.separable(p, pc, c, 7, 2))
            y2 = add(average(h, 2), self.separable(p, pc, c, 5, 2))
            y3 = add(average(y0), y1)
            y4 = add(self.separable(y0, c, c, 3), w.max_pool(h, 3, 2, 1))
            return w.node("Concat", y1, y2, y3, y4, axis=1), 4 * c, span * 2
        y0 = add(self.separable(h, c, c, 5), self.separable(p, pc, c, 3))
        y1 = add(self.separable(p, pc, c, 5), self.separable(p, pc, c, 3))
        y2 = add(average(h), p)
        y3 = add(average(p), average(p))
        y4 = add(self.separable(h, c, c, 3), h)
        return w.node("Concat", p, y0, y1, y2, y3, y4, axis=1), 6 * c, span

    def add(self, a: str, b: str) -> str:
        return self.w.node("Add", a, b)

    def squeeze(self, x: Feature, c: int) -> str:
        return self.w.conv(self.w.node("Relu", x[0]), x[1], c, 1, relu=False, bias=self.bias)

    def adjust(self, before: Feature, now: Feature, c: int) -> str:
        """The value before last, with the channels and the size of the last one."""
        if before[2] == now[2]:
            return self.squeeze(before, c)
        w = self.w
        x = w.node("Relu", before[0])
        shifted = w.node("Pad", x, w.ints(0, 0, 0, 0, 0, 0, 1, 1), w.number(0.0))
        far = w.constant(np.array([np.iinfo(np.int64).max] * 2))
        shifted = w.node("Slice", shifted, w.ints(1, 1), far, w.ints(2, 3))
        halves = []
        for value, channels in ((x, c // 2), (shifted, c - c // 2)):
            every_other = w.average_pool(value, 1, 2, 0, count_pad=True)
            halves.append(w.conv(every_other, before[1], channels, 1, relu=False, bias=self.bias))
        return w.node("Concat", *halves, axis=1)

    def separable(self, x: str, cin: int, cout: int, kernel: int, stride: int = 1) -> str:
        """relu, depthwise, pointwise; twice."""
        w = self.w
        for channels, step in ((cin, stride), (cout, 1)):
            x = w.conv(w.node("Relu", x), channels, channels, kernel, step, groups=channels,
                       relu=False, bias=self.bias)  # fmt: skip
            x = w.conv(x, channels, cout, 1, relu=False, bias=self.bias)
        return x
