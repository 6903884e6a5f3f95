"""Random numbers.

These operators run on the host.  Their results differ from run to run unless there is a seed,
so they are never folded; `stream` keeps two unseeded ones of equal attributes apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from whet.core.dtypes import FLOATS, DType, f32, f64
from whet.core.types import Array, TensorType
from whet.ops.base import NoAlgebra, Op, Sample, operator, require


@dataclass(frozen=True)
class RandomNumbers(Op):
    """Base: an array of independent draws."""

    shape: tuple[int, ...]
    dtype: DType = f32
    seed: int | None = None
    stream: int = 0

    host = True
    deterministic = False
    axioms = NoAlgebra("random numbers take no part in rewrites")

    def infer(self) -> TensorType:
        require(self.dtype in FLOATS, self, f"no meaning for {self.dtype}", code="WH1103")
        return TensorType(self.shape, self.dtype)

    def reference(self) -> Array:
        return np.asarray(self.draw(np.random.default_rng(self.seed))).astype(self.dtype.numpy)

    def draw(self, rng: np.random.Generator) -> Array:
        """The numbers in double precision."""
        raise NotImplementedError

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (Sample(cls((3, 4)), ()), Sample(cls((2,), f64, seed=7), ()))

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = tuple(int(d) for d in rng.integers(1, 6, int(rng.integers(0, 4))))
        return Sample(cls(shape, FLOATS[int(rng.integers(len(FLOATS)))]), ())


@operator("random_uniform")
class RandomUniform(RandomNumbers):
    """Numbers between `low` and `high`, all equally likely."""

    low: float = 0.0
    high: float = 1.0

    def infer(self) -> TensorType:
        sound = self.low <= self.high and math.isfinite(self.high - self.low)
        require(sound, self, f"no numbers from {self.low} to {self.high}", code="WH1104")
        return super().infer()

    def draw(self, rng: np.random.Generator) -> Array:
        return rng.uniform(self.low, self.high, self.shape)


@operator("random_normal")
class RandomNormal(RandomNumbers):
    """Normally distributed numbers."""

    mean: float = 0.0
    scale: float = 1.0

    def draw(self, rng: np.random.Generator) -> Array:
        return rng.normal(self.mean, self.scale, self.shape)
