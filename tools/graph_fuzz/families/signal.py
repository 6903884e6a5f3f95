"""Fourier transforms, mel filters, windows, determinants."""

from __future__ import annotations

import numpy as np

from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from tools.graph_fuzz.schemas import TO_ONNX
from whet.core.types import Shape


@generates("Det")
def det(g: Growth, name: str) -> Held:
    def shape() -> Shape:
        n = g.draw.integer(1, 4)
        return (*g.shape(g.draw.integer(0, 1), extent=5), n, n)

    v = g.tensor(g.types(name), range(2, 4), lambda v: v.shape[-1] == v.shape[-2] <= 5, shape)
    return g.emit(name, v)


@generates("DFT")
def dft(g: Growth, name: str) -> Held:
    dtypes = g.types(name, "T1")
    inverse = g.draw.pick([None, 0, 1])
    parts = g.draw.pick([1, 2])
    onesided = g.draw.pick([None, 0, 1]) if parts == 1 and not inverse else None
    v = g.tensor(dtypes, range(3, 5), lambda v: v.shape[-1] == parts and 0 < v.size <= 400,
                 lambda: (*g.shape(g.draw.integer(2, 3), extent=17, most=200), parts))  # fmt: skip
    axis = g.draw.integer(1, v.rank - 2)
    length = None
    if g.draw.chance(0.3):
        length = g.ints(max(1, v.shape[axis] + g.draw.integer(-2, 2)))
    if g.opset < 20:
        return g.emit(name, v, length, axis=axis, inverse=inverse, onesided=onesided)
    return g.emit(name, v, length, g.ints(axis), inverse=inverse, onesided=onesided)


@generates("STFT")
def stft(g: Growth, name: str) -> Held:
    dtype = g.dtype(g.types(name, "T1"))
    samples = g.draw.integer(6, 40)
    frame = g.draw.integer(2, min(samples, 12))
    signal = g.same(dtype, (g.draw.integer(1, 2), samples, 1))
    step = g.ints(g.draw.integer(1, 5))
    window = g.fresh(dtype, (frame,), 0.8) if g.draw.chance(0.6) else None
    length = g.ints(frame) if window is None or g.draw.chance(0.5) else None
    return g.emit(name, signal, step, window, length, onesided=g.draw.pick([None, 0, 1]))


@generates("MelWeightMatrix")
def mel_weight_matrix(g: Growth, name: str) -> Held:
    length, rate = g.draw.pick([8, 16]), g.draw.pick([8000, 16000])
    bounds = (np.asarray(x, np.float32) for x in (0.0, rate / 2))
    return g.emit(name, g.ints(g.draw.integer(1, 8)), g.ints(length), g.ints(rate),
                  *map(g.constant, bounds))  # fmt: skip


@generates("HannWindow", "HammingWindow", "BlackmanWindow")
def window(g: Growth, name: str) -> Held:
    to = g.dtype([d for d in g.types(name, "T2") if d.is_float])
    size = g.draw.integer(2, 17)
    if to not in g.types("Cast", "T2"):
        raise Impossible
    return g.emit(
        name, g.ints(size), periodic=g.draw.pick([None, 0, 1]), output_datatype=TO_ONNX[to]
    )
