"""Convolutions, and what shares their windows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from whet.core.dtypes import DType
from whet.core.types import Shape

CHANNELS = {1: 4, 2: 3, 3: 8, 4: 3, 5: 8, 8: 3, 12: 1, 16: 3, 17: 8, 32: 1, 33: 6, 65: 4}
MOST_TERMS = 1 << 17


def image_shape(g: Growth) -> Shape:
    """Batch, channels and one to three axes of space."""
    space = g.draw.pick([1, 2, 2, 2, 2, 3])
    channels = g.draw.weighted(CHANNELS)
    batch = g.draw.pick([1, 1, 1, 2, 3])
    each = max(1, int((4000 / (channels * batch)) ** (1 / space)))
    extents = [min(g.shape(1)[0], each) for _ in range(space)]
    return (batch, channels, *extents)


def image(g: Growth, dtypes: tuple[DType, ...], ranks: range = range(3, 6)) -> Held:
    def shape() -> Shape:
        while len(found := image_shape(g)) not in ranks:
            pass
        return found

    return g.tensor(dtypes, ranks, lambda v: v.size > 0 or g.empty, shape)


@dataclass(frozen=True)
class Window:
    """The attributes that convolutions and pools share."""

    kernel: Shape
    strides: Shape
    dilations: Shape
    pads: Shape
    auto_pad: str | None

    def attributes(
        self, g: Growth, *, dilations: bool = True, kernel: bool = True
    ) -> dict[str, Any]:
        """As a node has them: what is trivial is often left out."""
        found: dict[str, Any] = {}
        if kernel:
            found["kernel_shape"] = self.kernel
        if max(self.strides) > 1 or g.draw.chance(0.3):
            found["strides"] = self.strides
        if dilations and (max(self.dilations) > 1 or g.draw.chance(0.3)):
            found["dilations"] = self.dilations
        if self.auto_pad:
            found["auto_pad"] = self.auto_pad
        elif max(self.pads) or g.draw.chance(0.3):
            found["pads"] = self.pads
        return found


def draw_window(g: Growth, space: Shape, *, pool: bool = False, dilate: bool = True) -> Window:
    """A window that fits into the space with its borders."""
    kernel, dilations, begins, ends = [], [], [], []
    square = g.draw.pick([None, None, 1, 3, 3, 5])
    for extent in space:
        k = square or g.draw.pick([1, 2, 3, 3, 4, 5, 7])
        d = g.draw.pick([1, 1, 1, 2, 3]) if dilate else 1
        most = max(k - 1, 0) if pool else (k - 1) * d
        same = (k - 1) * d // 2
        low, high = g.draw.pick([(0, 0), (same, same), (g.draw.integer(0, most),
                                 g.draw.integer(0, most))])  # fmt: skip
        low, high = min(low, most), min(high, most)
        while extent + low + high < (k - 1) * d + 1:
            k, low, high = k - 1, min(low, max(k - 2, 0)), min(high, max(k - 2, 0))
            if k < 1:
                raise Impossible
        kernel.append(k)
        dilations.append(d)
        begins.append(low)
        ends.append(high)
    strides = tuple(g.draw.pick([1, 1, 1, 2, 2, 3]) for _ in space)
    auto = g.draw.pick([None] * 5 + ["SAME_UPPER", "SAME_LOWER", "VALID"])
    if auto == "VALID" and any(e < (k - 1) * d + 1 for e, k, d in zip(space, kernel, dilations)):
        auto = None
    if pool and auto in ("SAME_UPPER", "SAME_LOWER"):  # with gaps, opinions differ on what fits
        dilations = [1] * len(space)
    return Window(tuple(kernel), strides, tuple(dilations), (*begins, *ends), auto)


def draw_groups(g: Growth, channels: int) -> tuple[int, int]:
    """Groups, and output channels of each."""
    divisors = [n for n in range(1, channels + 1) if channels % n == 0]
    groups = g.draw.pick([1, 1, 1, channels, g.draw.pick(divisors)])
    outputs = g.draw.pick([1, 1, 2, 3]) if groups > 1 else g.draw.weighted(CHANNELS)
    return groups, outputs


def filter_shape(g: Growth, x: Held, window: Window) -> tuple[Shape, int]:
    """The shape of weights for the image, and the number of groups."""
    channels = x.shape[1]
    if not channels:
        raise Impossible
    groups, each = draw_groups(g, channels)
    fan = channels // groups * math.prod(window.kernel)
    while each > 1 and each * groups * fan * math.prod(x.shape[2:]) * x.shape[0] > MOST_TERMS:
        each = (each + 1) // 2
    return (groups * each, channels // groups, *window.kernel), groups


def filters(g: Growth, x: Held, window: Window) -> tuple[Held, Held | None, int]:
    """Weights, perhaps a bias, and the number of groups."""
    shape, groups = filter_shape(g, x, window)
    weights = g.scaled(x.dtype, shape, math.prod(shape[1:]), 0.8)
    bias = g.fresh(x.dtype, shape[:1], 0.8) if g.draw.chance(0.5) else None
    return weights, bias, groups


@generates("Conv")
def conv(g: Growth, name: str) -> Held:
    x = image(g, g.types(name))
    window = draw_window(g, x.shape[2:])
    weights, bias, groups = filters(g, x, window)
    given = window.attributes(g, kernel=g.draw.chance(0.5))
    return g.emit(name, x, weights, bias, group=groups if groups > 1 else None, **given)


@generates("ConvTranspose")
def conv_transpose(g: Growth, name: str) -> Held:
    x = g.tensor(g.types(name), range(3, 6), lambda v: 0 < v.size <= 1500,
                 lambda: tuple(min(d, 17) for d in image_shape(g)))  # fmt: skip
    space, channels = x.shape[2:], x.shape[1]
    groups, each = draw_groups(g, channels)
    each = min(each, 17)
    kernel = tuple(g.draw.pick([1, 2, 3, 3, 4]) for _ in space)
    strides = tuple(g.draw.pick([1, 1, 2, 3]) for _ in space)
    dilations = tuple(g.draw.pick([1, 1, 1, 2]) for _ in space)
    weights = g.scaled(x.dtype, (channels, each, *kernel), channels // groups * 4, 0.8)
    bias = g.fresh(x.dtype, (groups * each,), 0.8) if g.draw.chance(0.5) else None
    given: dict[str, Any] = {"strides": strides, "dilations": dilations}
    way = g.draw.pick(["none", "pads", "pads", "same", "shape"])
    full = [(i - 1) * s + (k - 1) * d + 1 for i, s, k, d in zip(space, strides, kernel, dilations)]
    if way == "pads":
        low = [g.draw.integer(0, max(min(k - 1, (f - 1) // 2), 0)) for k, f in zip(kernel, full)]
        high = [g.draw.integer(0, max(min(k - 1, (f - 1) // 2), 0)) for k, f in zip(kernel, full)]
        given["pads"] = [*low, *high]
    elif way == "same" and all((k - 1) * d + 1 >= s for k, d, s in zip(kernel, dilations, strides)):
        given["auto_pad"] = g.draw.pick(["SAME_UPPER", "SAME_LOWER"])
    elif way == "shape":
        given["output_shape"] = [max(1, f - g.draw.integer(0, 1)) for f in full]
    if way in ("none", "pads") and g.draw.chance(0.3):
        given["output_padding"] = [
            g.draw.integer(0, max(s, d) - 1) for s, d in zip(strides, dilations)
        ]
    return g.emit(name, x, weights, bias, group=groups if groups > 1 else None,
                  kernel_shape=kernel if g.draw.chance(0.5) else None, **given)  # fmt: skip


@generates("DeformConv")
def deform_conv(g: Growth, name: str) -> Held:
    x = g.tensor(g.types(name), 4, lambda v: 0 < v.size <= 600,
                 lambda: (1, g.draw.integer(1, 4), *g.shape(2, extent=9)))  # fmt: skip
    window = draw_window(g, x.shape[2:])
    weights, bias, groups = filters(g, x, window)
    outputs = [
        (extent + window.pads[n] + window.pads[n + 2] - (k - 1) * d - 1) // s + 1
        for n, (extent, k, d, s) in enumerate(
            zip(x.shape[2:], window.kernel, window.dilations, window.strides)
        )
    ]
    sets = g.draw.pick([n for n in range(1, x.shape[1] + 1) if x.shape[1] % n == 0])
    taps = math.prod(window.kernel)
    # Between the pixels, and off the quarters where the neighbour changes.
    steps = g.draw.rng.integers(-3, 4, (x.shape[0], sets * taps * 2, *outputs)) * 0.5 + 0.125
    offset = g.operand(steps.astype(x.dtype.numpy))
    mask = None
    if g.draw.chance(0.5):
        mask = g.fresh(x.dtype, (x.shape[0], sets * taps, *outputs))
        if bias is None:
            bias = g.fresh(x.dtype, (weights.shape[0],))
    return g.emit(name, x, weights, offset, bias, mask, group=groups, offset_group=sets,
                  pads=window.pads, strides=window.strides, dilations=window.dilations)  # fmt: skip


@generates("CausalConvWithState")
def causal_conv(g: Growth, name: str) -> list[Held]:
    x = g.tensor(g.types(name), 3, lambda v: v.size > 0)
    kernel = g.draw.integer(1, 4)
    batch, channels, _ = x.shape
    weights = g.fresh(x.dtype, (channels, 1, kernel), 0.8)
    bias = g.fresh(x.dtype, (channels,), 0.8) if g.draw.chance(0.5) else None
    past = None
    if kernel > 1 and g.draw.chance(0.5):
        past = g.same(x.dtype, (batch, channels, kernel - 1))
    return g.emit(name, x, weights, bias, past, outputs=2,
                  activation=g.draw.pick([None, "none", "silu", "swish"]))  # fmt: skip


@generates("Col2Im")
def col2im(g: Growth, name: str) -> Held:
    dtype = g.dtype(g.types(name))
    space = g.draw.pick([1, 2, 2, 3])
    image = g.shape(space, extent=8, most=100)
    block = tuple(g.draw.integer(1, min(3, max(d, 1))) for d in image)
    strides = tuple(g.draw.pick([1, 1, 2]) for _ in image)
    pads = tuple(g.draw.integer(0, 1) for _ in range(2 * space))
    counts = [
        (d + pads[n] + pads[n + space] - block[n]) // strides[n] + 1 for n, d in enumerate(image)
    ]
    if min(counts) < 1:
        raise Impossible
    shape = (g.draw.integer(1, 2), g.draw.integer(1, 3) * math.prod(block), math.prod(counts))
    x = g.same(dtype, shape)
    return g.emit(name, x, g.ints(image), g.ints(block), strides=strides, pads=pads)
