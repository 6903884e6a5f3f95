"""ONNX Fourier transforms, mel filters, determinants and random numbers."""

from __future__ import annotations

import numpy as np

from whet.core.dtypes import DType, f32, i32
from whet.core.types import TensorType
from whet.frontend.onnx.mapping import Context, direct, maps, normalized_axis
from whet.frontend.onnx.nodes.casting import dtype_attribute
from whet.graph.graph import Value
from whet.ops.arithmetic import Add, Log, Mul, Neg
from whet.ops.base import Op
from whet.ops.gather import Gather
from whet.ops.linalg import Det
from whet.ops.movement import Reshape
from whet.ops.random import RandomNormal, RandomUniform
from whet.ops.reduce import ArgMax
from whet.ops.shared.precision import converted, widened
from whet.ops.signal import DFT

direct("Det", Det)


# ------------------------------------------------------------------------------------ Fourier
@maps("DFT", since=17)
def dft_along_attribute(c: Context) -> Value:
    return _dft(c, c.attr("axis", 1))


@maps("DFT", since=20)
def dft(c: Context) -> Value:
    return _dft(c, c.const_ints(2)[0] if c.optional(2) is not None else -2)


def _dft(c: Context, axis: int) -> Value:
    t = c.type(0)
    axis = normalized_axis(axis, t.rank)
    inverse, onesided = bool(c.attr("inverse", 0)), bool(c.attr("onesided", 0))
    extent = t.shape[axis]
    length = 2 * (extent - 1) if inverse and onesided else extent
    if c.optional(1) is not None:
        length = c.const_ints(1)[0]
    return c(DFT(axis, length, inverse, onesided), c.input(0))


@maps("STFT")
def stft(c: Context) -> Value:
    """Transforms of overlapping frames, each multiplied by the window."""
    t, window = c.type(0), c.optional(2)
    samples, parts = t.shape[1:]
    step = c.const_int(1)
    if c.optional(3) is not None:
        length = c.const_int(3)
    else:
        length = samples if window is None else window.tensor_type.size
    onesided = bool(c.attr("onesided", 1))
    if onesided and parts == 2:
        c.unsupported("one-sided transform of a complex signal")
    c.require(step > 0 < length <= samples, f"frames of {length} every {step} of {samples}")
    frames = (samples - length) // step + 1
    places = c.indices(frames * length).reshape(frames, length)
    places = places // length * step + places % length
    signal = c(Gather(1), c.input(0), c.builder.constant(places))
    if window is not None:
        signal = c(Mul(), signal, c(Reshape((length, 1)), window))
    return c(DFT(2, length, onesided=onesided), signal)


@maps("MelWeightMatrix")
def mel_weight_matrix(c: Context) -> Value:
    """Triangles of height 1, evenly spaced on the mel scale, over the transform's frequencies."""
    bands, length, rate = (c.const_int(n) for n in range(3))
    low, high = (float(np.ravel(c.const(n))[0]) for n in (3, 4))
    lowest, highest = (2595 * np.log10(1 + f / 700) for f in (low, high))
    mels = lowest + c.indices(bands + 2) * (highest - lowest) / (bands + 2)
    edges = ((length + 1) * 700 * (10 ** (mels / 2595) - 1) // rate).astype(np.int64)
    c.require(rate > 0 and low >= 0 and high >= 0, "negative frequencies")
    bins = c.indices(length // 2 + 1)[:, None]
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (bins - left) / np.maximum(centre - left, 1)
    falling = (right - bins) / np.maximum(right - centre, 1)
    weights = np.where(bins < centre, rising, np.where(bins == centre, 1, falling))
    inside = ((bins >= left) & (bins < right)) | (bins == centre)
    dtype = dtype_attribute(c, "output_datatype") or f32
    return c.constant(np.where(inside, weights, 0), dtype)


# ------------------------------------------------------------------------------------- random
def _seed(c: Context) -> tuple[int | None, int]:
    """The seed, and a number that no other node of the model has."""
    given = c.attr("seed")
    seed = None if given is None else int(np.float32(given).view(np.uint32))
    return seed, len(c.builder.names)


def _draw(c: Context, shape: tuple[int, ...], dtype: DType) -> Value:
    seed, stream = _seed(c)
    op: Op
    if c.op_type.startswith("RandomNormal"):
        mean, scale = float(c.attr("mean", 0.0)), float(c.attr("scale", 1.0))
        op = RandomNormal(shape, dtype, seed, stream, mean, scale)
    else:
        low, high = float(c.attr("low", 0.0)), float(c.attr("high", 1.0))
        op = RandomUniform(shape, dtype, seed, stream, low, high)
    return c(op)


@maps("RandomUniform", "RandomNormal")
def random_of_shape(c: Context) -> Value:
    return _draw(c, tuple(c.attr("shape")), dtype_attribute(c, "dtype") or f32)


@maps("RandomUniformLike", "RandomNormalLike")
def random_like(c: Context) -> Value:
    t: TensorType = c.type(0)
    return _draw(c, t.shape, dtype_attribute(c, "dtype") or t.dtype)


@maps("Multinomial")
def multinomial(c: Context) -> Value:
    """Draws classes from unnormalized log-probabilities: argmax(x + Gumbel noise)."""
    batch, classes = c.type(0).shape
    x = widened(c.builder, c.input(0))
    seed, stream = _seed(c)
    shape = (batch, int(c.attr("sample_size", 1)), classes)
    uniform = c(RandomUniform(shape, x.tensor_type.dtype, seed, stream))
    noise = c(Neg(), c(Log(), c(Neg(), c(Log(), uniform))))
    drawn = c(ArgMax(2), c(Add(), c(Reshape((batch, 1, classes)), x), noise))
    return converted(c.builder, drawn, dtype_attribute(c, "dtype") or i32)
