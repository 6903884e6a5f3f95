"""Elements in their place and a filling around them: borders and triangles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from whet.core.dtypes import f32, i64
from whet.core.types import Array, TensorType
from whet.ir.expr import Expr, all_of, as_expr, call, const, select
from whet.ir.tensor import Compute, Tensor, compute
from whet.ops.base import Law, Op, Sample, law, operator, require
from whet.ops.movement import random_shape

PadMode = Literal["constant", "reflect", "edge", "wrap"]


def _border_laws(rank: int) -> Iterator[Law]:
    """An empty border is none, and a border around a border of the same value is a wider one."""
    x, none = (2, 3, 1, 2)[:rank], [0] * (2 * rank)
    yield law(f"pad(x, v, pads={none}) = x", "exact", x=x, v=())
    wider = ", ".join(f"p[{k}] + q[{k}]" for k in range(2 * rank))
    yield law(f"pad(pad(x, v, pads=p), v, pads=q) = pad(x, v, pads=[{wider}])", "exact",
              x=x, v=(), p=(1, 0) * rank, q=(0, 2) * rank)  # fmt: skip


@operator("pad", "x", "value")
class Pad(Op):
    """The input with a border: `pads` lists what goes before each axis, then what goes after.

    The border holds `value` (mode constant), the mirror image without the edge (reflect), the
    edge element (edge), or the input again from its other side (wrap).
    """

    pads: tuple[int, ...]
    mode: PadMode = "constant"

    def infer(self, x: TensorType, value: TensorType) -> TensorType:
        require(value.shape == () and value.dtype == x.dtype, self,
                "the value must be a scalar of the input's type", x, value)  # fmt: skip
        require(len(self.pads) == 2 * x.rank and min(self.pads, default=0) >= 0, self,
                f"pads {list(self.pads)} need two counts for every axis", x,
                code="WH1104")  # fmt: skip
        require(self.mode == "constant" or all(d > 0 or a == b == 0 for d, (a, b) in self._axes(x)),
                self, f"mode {self.mode} has no elements to repeat", x)  # fmt: skip
        return x.with_shape([d + before + after for d, (before, after) in self._axes(x)])

    def _axes(self, x: TensorType | Tensor) -> list[tuple[int, tuple[int, int]]]:
        """Extent and (before, after) of each axis."""
        rank = len(x.shape)
        return list(zip(x.shape, zip(self.pads[:rank], self.pads[rank:])))

    def reference(self, x: Array, value: Array) -> Array:
        widths = list(zip(self.pads[: x.ndim], self.pads[x.ndim :]))
        if self.mode == "constant":
            return np.pad(x, widths, constant_values=value[()])
        return np.pad(x, widths, mode=self.mode)

    def compute(self, x: Tensor, value: Tensor) -> Compute:
        def body(*i: Expr) -> Expr:
            source: list[Expr] = []
            inside: list[Expr] = []
            for a, (extent, (before, after)) in zip(i, self._axes(x)):
                at = a + (-before)
                if before == after == 0:
                    source.append(a)
                elif self.mode == "constant":
                    source.append(at)
                    inside += [as_expr(0) <= at] * (before > 0) + [at < extent] * (after > 0)
                else:
                    source.append(_border_index(at, extent, self.mode))
            return select(all_of(inside), x[tuple(source)], value[()])

        return compute(self.infer(x.type, value.type).shape, body, "pad")

    axioms = (
        *(law for rank in range(1, 5) for law in _border_laws(rank)),
        law("slice(pad(x, v, pads=[1, 1, 1, 1]), starts=[1, 1], "
            "stops=[dim(x, 0) + 1, dim(x, 1) + 1], steps=[1, 1]) = x", "exact", x=(2, 3), v=()),
        law("relu(pad(x, v, pads=p)) = pad(relu(x), relu(v), pads=p)", "exact",
            x=(2, 3), v=(), p=(1, 0, 0, 1)),
        law("transpose(pad(x, v, pads=[1, 2, 3, 4]), perm=[1, 0]) = "
            "pad(transpose(x, perm=[1, 0]), v, pads=[2, 1, 4, 3])", "exact", x=(2, 3), v=()),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        types = (TensorType((3, 4), f32), TensorType((), f32))
        modes: tuple[PadMode, ...] = ("constant", "reflect", "edge", "wrap")
        return tuple(Sample(cls((1, 0, 2, 3), mode), types) for mode in modes)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng)
        pads = tuple(int(p) for p in rng.integers(0, 4, 2 * len(shape)))
        modes: tuple[PadMode, ...] = ("constant", "reflect", "edge", "wrap")
        op = cls(pads, modes[int(rng.integers(4))])
        return Sample(op, (TensorType(shape, f32), TensorType((), f32)))


def _border_index(at: Expr, extent: int, mode: PadMode) -> Expr:
    """The position in [0, extent) that a position beyond the edges repeats."""
    if mode == "edge" or extent == 1:
        return call("min", call("max", at, 0), extent - 1)
    if mode == "wrap":
        return at % extent
    period = 2 * (extent - 1)
    phase = at % period
    return select(phase < extent, phase, const(period, i64) - phase)


@operator("trilu", "x")
class Trilu(Op):
    """The upper or lower triangle of the last two axes from diagonal `k` on; zero elsewhere."""

    upper: bool
    k: int = 0

    def infer(self, x: TensorType) -> TensorType:
        require(x.rank >= 2, self, "needs two or more axes", x)
        return x

    def reference(self, x: Array) -> Array:
        row, column = np.indices(x.shape[-2:])
        kept = column - row >= self.k if self.upper else column - row <= self.k
        return np.where(kept, x, np.zeros((), x.dtype))

    def compute(self, x: Tensor) -> Compute:
        def body(*i: Expr) -> Expr:
            row, column = i[-2], i[-1]
            kept = row + self.k <= column if self.upper else column <= row + self.k
            return select(kept, x[i], const(0, x.dtype))

        return compute(x.shape, body, "trilu")

    axioms = (
        law("trilu(trilu(x, upper=true, k=1), upper=true, k=1) = trilu(x, upper=true, k=1)",
            "exact", x=(3, 4)),
        law("add(trilu(x, upper=true, k=1), trilu(x, upper=false, k=0)) = x", "real", x=(3, 4)),
        law("trilu(transpose(x, perm=[1, 0]), upper=true, k=1) = "
            "transpose(trilu(x, upper=false, k=-1), perm=[1, 0])", "exact", x=(3, 4)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(True), (TensorType((3, 4), f32),)),
            Sample(cls(False, -1), (TensorType((2, 4, 3), i64),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        op = cls(bool(rng.integers(2)), int(rng.integers(-6, 7)))
        return Sample(op, (TensorType(random_shape(rng, 2, 4), f32),))
