"""Fourier transforms.  Complex numbers are a last axis of two: real and imaginary part."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from whet.core.dtypes import FLOATS, compute_dtype, f32
from whet.core.types import Array, TensorType
from whet.ops.base import Builder, Op, Sample, law, operator, require
from whet.ops.matmul import MatMul
from whet.ops.movement import Reshape, Slice, Transpose
from whet.ops.shared.precision import converted, widen


@operator("dft", "x")
class DFT(Op):
    """The discrete Fourier transform along an axis, of a signal cut or zero-padded to `length`.

    The last axis of x holds the real part and, if it has two elements, the imaginary part.
    With `onesided`, a forward transform takes real signals and gives the length // 2 + 1
    frequencies that are not mirror images; an inverse one takes those and gives real signals.
    """

    axis: int
    length: int
    inverse: bool = False
    onesided: bool = False

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype in FLOATS, self, f"no meaning for {x.dtype}", x, code="WH1103")
        require(0 <= self.axis < x.rank - 1 and self.length > 0, self,
                f"no transform of length {self.length} along axis {self.axis}", x,
                code="WH1104")  # fmt: skip
        parts = x.shape[-1]
        wanted = (1, 2) if not self.onesided else (2,) if self.inverse else (1,)
        require(parts in wanted, self, f"the last axis has {parts} parts", x)
        count, parts = self._result()
        return x.with_shape((*x.shape[: self.axis], count, *x.shape[self.axis + 1 : -1], parts))

    def _result(self) -> tuple[int, int]:
        """Number of results and of their parts."""
        if not self.onesided:
            return self.length, 2
        return (self.length, 1) if self.inverse else (self.length // 2 + 1, 2)

    def reference(self, x: Array) -> Array:
        wide = widen(x)
        signal = wide[..., 0] + (1j * wide[..., 1] if x.shape[-1] == 2 else 0)
        if not signal.shape[self.axis]:  # NumPy's inverse then leaves its result as it finds it
            shape = [1 if n == self.axis else d for n, d in enumerate(signal.shape)]
            signal = np.zeros(shape, signal.dtype)
        if self.onesided and self.inverse:
            real = np.fft.irfft(signal, self.length, axis=self.axis)
            return real[..., None].astype(x.dtype)
        transform = np.fft.ifft if self.inverse else np.fft.fft
        result = transform(signal, self.length, axis=self.axis)
        if self.onesided:
            result = np.take(result, range(self.length // 2 + 1), self.axis)
        return np.stack([result.real, result.imag], axis=-1).astype(x.dtype)

    def expand(self, b: Builder, x: Any) -> Any:
        """A product with the matrix of the transform, the transformed axis being last."""
        t = b.type(x)
        needed = self.length // 2 + 1 if self.onesided and self.inverse else self.length
        used = min(t.shape[self.axis], needed)
        stops = (*t.shape[: self.axis], used, *t.shape[self.axis + 1 :])
        cut = b(Slice((0,) * t.rank, stops, (1,) * t.rank), x)
        others = tuple(n for n in range(t.rank - 1) if n != self.axis)
        perm = (*others, self.axis, t.rank - 1)
        inner = compute_dtype(t.dtype)
        rows = b(Transpose(perm), converted(b, cut, inner))
        parts = t.shape[-1]
        outer = tuple(t.shape[n] for n in others)
        rows = b(Reshape((math.prod(outer), used * parts)), rows)
        matrix = b.constant(self.matrix(used, parts).astype(inner.numpy))
        product = b(Reshape((*outer, *self._result())), b(MatMul(), rows, matrix))
        back = tuple(perm.index(n) for n in range(t.rank))
        return converted(b, b(Transpose(back), product), t.dtype)

    def matrix(self, used: int, parts: int) -> Array:
        """Row (n, part) and column (k, part): how sample n contributes to result k."""
        count, out_parts = self._result()
        n, k = np.arange(used)[:, None], np.arange(count)[None, :]
        # Reducing n * k first keeps the angles exact for long signals.
        angle = 2 * np.pi / self.length * ((n * k) % self.length)
        cos, sin = np.cos(angle), np.sin(angle) * (1 if self.inverse else -1)
        contributions = np.stack([np.stack([cos, -sin]), np.stack([sin, cos])])  # [out, in, n, k]
        if self.inverse:
            contributions = contributions / self.length
        if self.inverse and self.onesided:
            mirrored = (n > 0) & (2 * n != self.length)
            contributions = contributions * np.where(mirrored, 2.0, 1.0)
        chosen = contributions[:out_parts, :parts]
        return np.transpose(chosen, (2, 1, 3, 0)).reshape(used * parts, count * out_parts)

    axioms = (
        law("dft(add(x, y), axis=0, length=4) = add(dft(x, axis=0, length=4), "
            "dft(y, axis=0, length=4))", "real", when=("shape(x) == shape(y)",),
            x=(4, 2), y=(4, 2)),
        law("dft(dft(x, axis=0, length=4), axis=0, length=4, inverse=true) = x", "real",
            when=("length is the extent of the axis",), x=(4, 2)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        real, spectrum = TensorType((2, 6, 3, 1), f32), TensorType((5, 2), f32)
        return (
            Sample(cls(1, 6), (real,)),
            Sample(cls(1, 8, onesided=True), (real,)),
            Sample(cls(0, 8, inverse=True, onesided=True), (spectrum,)),
            Sample(cls(0, 9, inverse=True, onesided=True), (spectrum,)),
            Sample(cls(0, 3, inverse=True), (spectrum,)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = tuple(int(d) for d in rng.integers(1, 7, int(rng.integers(1, 4))))
        inverse, onesided = (bool(n) for n in rng.integers(2, size=2))
        parts = int(rng.integers(1, 3)) if not onesided else 2 if inverse else 1
        op = cls(int(rng.integers(len(shape))), int(rng.integers(1, 9)), inverse, onesided)
        return Sample(op, (TensorType((*shape, parts), f32),))
