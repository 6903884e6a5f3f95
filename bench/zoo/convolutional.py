"""Convolutional networks."""

from __future__ import annotations

import numpy as np
import onnx

from zoo.writer import Writer


def resnet50(groups: int = 1, width: int = 64) -> onnx.ModelProto:
    """ResNet-50; `groups=32, width=4` is ResNeXt-50 32x4d."""
    w = Writer()
    y = w.conv(w.input("x0", (1, 3, 224, 224)), 3, 64, 7, 2)
    y, cin = w.max_pool(y, 3, 2, 1), 64
    for planes, blocks, first in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]:
        mid, cout = planes * width // 64 * groups, planes * 4
        for block in range(blocks):
            stride = first if block == 0 else 1
            z = w.conv(y, cin, mid, 1)
            z = w.conv(z, mid, mid, 3, stride, groups=groups)
            z = w.conv(z, mid, cout, 1, relu=False)
            if block == 0:
                y = w.conv(y, cin, cout, 1, stride, relu=False)
            y, cin = w.node("Relu", w.node("Add", z, y)), cout
    return w.model(w.classifier(y, cin, 1000))


def resnext50() -> onnx.ModelProto:
    return resnet50(32, 4)


def resnet18_3d() -> onnx.ModelProto:
    """R3D-18 on 16 frames of 112 x 112."""
    w = Writer()
    y = w.conv(w.input("x0", (1, 3, 16, 112, 112)), 3, 64, (3, 7, 7), (1, 2, 2), dims=3)
    cin = 64
    for cout, first in [(64, 1), (128, 2), (256, 2), (512, 2)]:
        for stride in (first, 1):
            z = w.conv(y, cin, cout, 3, stride, dims=3)
            z = w.conv(z, cout, cout, 3, relu=False, dims=3)
            if cin != cout:
                y = w.conv(y, cin, cout, 1, stride, relu=False, dims=3)
            y, cin = w.node("Relu", w.node("Add", z, y)), cout
    return w.model(w.classifier(y, cin, 400, dims=3))


def mobilenet_v2() -> onnx.ModelProto:
    w = Writer()

    def conv6(x: str, cin: int, cout: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
        y = w.conv(x, cin, cout, kernel, stride, groups=groups, relu=False)
        return w.node("Clip", y, w.number(0.0), w.number(6.0))

    y, cin = conv6(w.input("x0", (1, 3, 224, 224)), 3, 32, 3, 2), 32
    for expand, cout, blocks, first in [
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
        (6, 160, 3, 2), (6, 320, 1, 1),
    ]:  # fmt: skip
        for block in range(blocks):
            stride, mid = (first if block == 0 else 1), cin * expand
            z = conv6(y, cin, mid, 1) if expand > 1 else y
            z = conv6(z, mid, mid, 3, stride, groups=mid)
            z = w.conv(z, mid, cout, 1, relu=False)
            y = w.node("Add", y, z) if stride == 1 and cin == cout else z
            cin = cout
    return w.model(w.classifier(conv6(y, cin, 1280, 1), 1280, 1000))


def dcgan() -> onnx.ModelProto:
    """The generator: a code of 100 numbers to an image of 64 x 64."""
    w = Writer()
    y = w.input("x0", (1, 100, 1, 1))
    for cin, cout, stride, pad in [
        (100, 512, 1, 0), (512, 256, 2, 1), (256, 128, 2, 1), (128, 64, 2, 1), (64, 3, 2, 1),
    ]:  # fmt: skip
        fan = cin * 16 / stride**2
        weight, bias = w.normal((cin, cout, 4, 4), (1.5 / fan) ** 0.5), w.normal((cout,), 0.05)
        y = w.node("ConvTranspose", y, weight, bias, kernel_shape=[4, 4], strides=[stride] * 2,
                   pads=[pad] * 4)  # fmt: skip
        y = w.node("Relu" if cout > 3 else "Tanh", y)
    return w.model(y)


def squeezenet() -> onnx.ModelProto:
    """SqueezeNet 1.1."""
    w = Writer()
    y = w.conv(w.input("x0", (1, 3, 224, 224)), 3, 64, 3, 2, 0)
    cin = 64
    for squeeze, wide in [(0, 0), (16, 64), (16, 64), (0, 0), (32, 128), (32, 128), (0, 0),
                          (48, 192), (48, 192), (64, 256), (64, 256)]:  # fmt: skip
        if not squeeze:
            y = w.max_pool(y, 3, 2, ceil=True)
            continue
        s = w.conv(y, cin, squeeze, 1)
        parts = w.conv(s, squeeze, wide, 1), w.conv(s, squeeze, wide, 3)
        y, cin = w.node("Concat", *parts, axis=1), 2 * wide
    y = w.conv(y, cin, 1000, 1)
    return w.model(w.node("ReduceMean", y, w.ints(2, 3), keepdims=0))


def inception_v3() -> onnx.ModelProto:
    """Inception-v3 at 299 x 299, without the auxiliary head."""
    w = Writer()

    def chain(x: str, cin: int, *layers: tuple[int, int | tuple[int, int]]) -> str:
        for cout, kernel in layers:
            x, cin = w.conv(x, cin, cout, kernel), cout
        return x

    def pooled(x: str, cin: int, cout: int) -> str:
        return w.conv(w.average_pool(x, 3, 1, 1, count_pad=True), cin, cout, 1)

    def join(*parts: str) -> str:
        return w.node("Concat", *parts, axis=1)

    y = w.conv(w.input("x0", (1, 3, 299, 299)), 3, 32, 3, 2, 0)
    y = w.conv(y, 32, 32, 3, 1, 0)
    y = w.max_pool(w.conv(y, 32, 64, 3), 3, 2)
    y = w.conv(w.conv(y, 64, 80, 1), 80, 192, 3, 1, 0)
    y, cin = w.max_pool(y, 3, 2), 192
    for last in (32, 64, 64):
        y = join(
            w.conv(y, cin, 64, 1),
            chain(y, cin, (48, 1), (64, 5)),
            chain(y, cin, (64, 1), (96, 3), (96, 3)),
            pooled(y, cin, last),
        )
        cin = 224 + last
    y = join(
        w.conv(y, cin, 384, 3, 2, 0),
        w.conv(chain(y, cin, (64, 1), (96, 3)), 96, 96, 3, 2, 0),
        w.max_pool(y, 3, 2),
    )
    cin, flat, tall = 768, (1, 7), (7, 1)
    for m in (128, 160, 160, 192):
        y = join(
            w.conv(y, cin, 192, 1),
            chain(y, cin, (m, 1), (m, flat), (192, tall)),
            chain(y, cin, (m, 1), (m, tall), (m, flat), (m, tall), (192, flat)),
            pooled(y, cin, 192),
        )
    y = join(
        w.conv(w.conv(y, cin, 192, 1), 192, 320, 3, 2, 0),
        w.conv(chain(y, cin, (192, 1), (192, flat), (192, tall)), 192, 192, 3, 2, 0),
        w.max_pool(y, 3, 2),
    )
    cin = 1280
    for _ in range(2):
        a, b = w.conv(y, cin, 384, 1), chain(y, cin, (448, 1), (384, 3))
        forks = [join(w.conv(v, 384, 384, (1, 3)), w.conv(v, 384, 384, (3, 1))) for v in (a, b)]
        y, cin = join(w.conv(y, cin, 320, 1), *forks, pooled(y, cin, 192)), 2048
    return w.model(w.classifier(y, cin, 1000))


def nasnet_a() -> onnx.ModelProto:
    """NASNet-A mobile (4 @ 1056)."""
    cells = NasNetCells()
    w = cells.w
    stem = w.conv(w.input("x0", (1, 3, 224, 224)), 3, 32, 3, 2, 0, relu=False)
    before: Feature | None = None
    now: Feature = (stem, 32, 2)
    plan = [(11, True), (22, True)]
    for stage in range(3):
        filters = 44 * 2**stage
        plan += [(filters, True)] * (stage > 0) + [(filters, False)] * 4
    for filters, reduce in plan:
        before, now = now, cells.cell(before, now, filters, reduce)
    return w.model(w.classifier(w.node("Relu", now[0]), now[1], 1000))


Feature = tuple[str, int, int]
"""A value, its channels, and how many input pixels one of its pixels spans."""


class NasNetCells:
    """The cells that NASNet-A is made of."""

    def __init__(self) -> None:
        self.w = Writer()

    def cell(self, before: Feature | None, now: Feature, c: int, reduce: bool) -> Feature:
        x, _, span = now
        h = self.squeeze(now, c)
        p, pc = (x, now[1]) if before is None else (self.adjust(before, now, c), c)
        add, w = self.add, self.w

        def average(v: str, stride: int = 1) -> str:
            return w.average_pool(v, 3, stride, 1, count_pad=False)

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
        return self.w.conv(self.w.node("Relu", x[0]), x[1], c, 1, relu=False)

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
            halves.append(w.conv(every_other, before[1], channels, 1, relu=False))
        return w.node("Concat", *halves, axis=1)

    def separable(self, x: str, cin: int, cout: int, kernel: int, stride: int = 1) -> str:
        """relu, depthwise, pointwise; twice."""
        w = self.w
        for channels, step in ((cin, stride), (cout, 1)):
            x = w.conv(w.node("Relu", x), channels, channels, kernel, step, groups=channels,
                       relu=False)  # fmt: skip
            x = w.conv(x, channels, cout, 1, relu=False)
        return x
