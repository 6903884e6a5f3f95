"""Operators by which rewrites speak about weights: borders of zeros, other groupings, identities.

A rewrite may enlarge a kernel so that two convolutions can be merged, join groups of a grouped
convolution, or bring in a weight that makes an operator the identity or an average.  All of
these depend on weights alone, so in a compiled model they are constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from whet.core.dtypes import FLOATS, NUMERIC, DType, f32
from whet.core.types import Array, Shape, TensorType, type_of
from whet.ir.expr import Expr, all_of, as_expr, const, equal, select
from whet.ir.tensor import Compute, Tensor, compute
from whet.ops.base import Op, Sample, law, operator, require

# How many zeros stand before a filter w that is enlarged to the kernel k, in steps of x.
BORDER = tuple(f"(k[{n}] - dim(w, {n + 2})) // 2 * d[{n}]" for n in range(2))
HALF_LARGE = "[(k[0] - 1) // 2, (k[1] - 1) // 2, (k[0] - 1) // 2, (k[1] - 1) // 2]"
HALF_SMALL = (
    "[(dim(w, 2) - 1) // 2, (dim(w, 3) - 1) // 2, (dim(w, 2) - 1) // 2, (dim(w, 3) - 1) // 2]"
)
UNIT = "strides=[1, 1], dilations=[1, 1]"


@operator("enlarge", "w")
class Enlarge(Op):
    """Filters w [M, C, *spatial] in the middle of a larger `kernel`, zeros around them.

    The border must be as wide before as after, so that the middle is well defined.
    """

    kernel: tuple[int, ...]

    def border(self, w: Shape) -> Shape:
        """The number of zeros before (and after) the filter, by spatial axis."""
        return tuple((large - small) // 2 for large, small in zip(self.kernel, w[2:]))

    def infer(self, w: TensorType) -> TensorType:
        require(w.rank == len(self.kernel) + 2, self,
                f"kernel {list(self.kernel)} does not describe the spatial axes", w,
                code="WH1104")  # fmt: skip
        fits = all(k >= d and (k - d) % 2 == 0 for k, d in zip(self.kernel, w.shape[2:]))
        require(fits, self, f"no even border makes kernel {list(self.kernel)}", w)
        return w.with_shape((*w.shape[:2], *self.kernel))

    def compute(self, w: Tensor) -> Compute:
        border = self.border(w.shape)

        def body(m: Expr, c: Expr, *k: Expr) -> Expr:
            at = [i - b for i, b in zip(k, border)]
            tests = [
                t for i, b, d in zip(at, border, w.shape[2:]) if b for t in (as_expr(0) <= i, i < d)
            ]
            return select(all_of(tests), w[(m, c, *at)], const(0, w.dtype))

        return compute(self.infer(w.type).shape, body, "enlarge")

    def reference(self, w: Array) -> Array:
        return np.pad(w, [(0, 0), (0, 0), *((b, b) for b in self.border(w.shape))])

    axioms = (
        # The padding of the convolution grows with the border; the stride does not matter.
        law("conv(x, enlarge(w, kernel=k), strides=s, pads=p, dilations=d, groups=g) = "
            f"conv(x, w, strides=s, pads=[p[0] - {BORDER[0]}, p[1] - {BORDER[1]}, "
            f"p[2] - {BORDER[0]}, p[3] - {BORDER[1]}], dilations=d, groups=g)", "real",
            x=(2, 4, 5, 6), w=(6, 2, 1, 3), k=(3, 3), s=(2, 1), p=(1, 1, 2, 0), d=(1, 1), g=2),
        # Where the padding is half the kernel it stays so.
        law(f"conv(x, enlarge(w, kernel=k), strides=s, pads={HALF_LARGE}, dilations=[1, 1], "
            f"groups=g) = conv(x, w, strides=s, pads={HALF_SMALL}, dilations=[1, 1], groups=g)",
            "real", x=(2, 4, 5, 6), w=(6, 2, 1, 3), k=(3, 3), s=(2, 1), g=2),
        law("enlarge(add(w, v), kernel=k) = add(enlarge(w, kernel=k), enlarge(v, kernel=k))",
            "exact", when=("shape(w) == shape(v)",), w=(2, 3, 1, 3), v=(2, 3, 1, 3), k=(3, 3)),
        law("enlarge(mul(w, s), kernel=k) = mul(enlarge(w, kernel=k), s)", "real",
            w=(2, 3, 1, 3), s=(), k=(3, 3)),
        law("enlarge(mul(w, v), kernel=k) = mul(enlarge(w, kernel=k), enlarge(v, kernel=k))",
            "exact", when=("shape(w) == shape(v)",), w=(2, 3, 1, 3), v=(2, 3, 1, 3), k=(3, 3)),
        law("enlarge(relu(w), kernel=k) = relu(enlarge(w, kernel=k))", "exact",
            w=(2, 3, 1, 3), k=(3, 3)),
        law("enlarge(concat(w, v, axis=0), kernel=k) = "
            "concat(enlarge(w, kernel=k), enlarge(v, kernel=k), axis=0)", "exact",
            w=(2, 3, 1, 3), v=(4, 3, 1, 3), k=(3, 3)),
        law("enlarge(concat(w, v, axis=1), kernel=k) = "
            "concat(enlarge(w, kernel=k), enlarge(v, kernel=k), axis=1)", "exact",
            w=(2, 3, 1, 3), v=(2, 1, 1, 3), k=(3, 3)),
        law("enlarge(w, kernel=[3, 5]) = pad(w, 0, pads=[0, 0, 1, 1, 0, 0, 1, 1])", "exact",
            when=("dim(w, 2) == 1", "dim(w, 3) == 3"), w=(2, 3, 1, 3)),
        law("enlarge(enlarge(w, kernel=j), kernel=k) = enlarge(w, kernel=k)",
            "exact", w=(2, 3, 1, 3), j=(3, 3), k=(5, 7)),
        law("enlarge(w, kernel=[dim(w, 2), dim(w, 3)]) = w", "exact", w=(2, 3, 1, 3)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls((3, 3)), (TensorType((4, 3, 1, 3), f32),)),
            Sample(cls((5,)), (TensorType((2, 2, 3), f32),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = tuple(int(d) for d in rng.integers(1, 4, int(rng.integers(3, 6))))
        kernel = tuple(d + 2 * int(rng.integers(0, 3)) for d in shape[2:])
        return Sample(cls(kernel), (TensorType(shape, f32),))


@operator("regroup", "w")
class Regroup(Op):
    """Filters of a convolution with `groups` groups as filters of groups / merged groups.

    `merged` neighbouring groups become one, so w [M, C, *kernel] becomes [M, merged * C,
    *kernel]: output channel m keeps its C weights in the block that was its group, and has
    zeros in the other blocks.
    """

    groups: int
    merged: int

    def infer(self, w: TensorType) -> TensorType:
        require(w.dtype in NUMERIC, self, f"no meaning for {w.dtype}", w, code="WH1103")
        require(w.rank >= 2, self, "filters have two or more axes", w)
        require(self.groups >= 1 and self.merged >= 1 and self.groups % self.merged == 0, self,
                f"{self.groups} groups cannot be merged by {self.merged}", w,
                code="WH1104")  # fmt: skip
        require(w.shape[0] % self.groups == 0, self,
                f"output channels do not fit {self.groups} groups", w)  # fmt: skip
        return w.with_shape((w.shape[0], w.shape[1] * self.merged, *w.shape[2:]))

    def compute(self, w: Tensor) -> Compute:
        per_group, channels = w.shape[0] // self.groups, w.shape[1]

        def body(m: Expr, c: Expr, *k: Expr) -> Expr:
            block = m // per_group % self.merged
            own = c - block * channels
            inside = all_of([as_expr(0) <= own, own < channels])
            return select(inside, w[(m, own, *k)], const(0, w.dtype))

        return compute(self.infer(w.type).shape, body, "regroup")

    def reference(self, w: Array) -> Array:
        per_group = len(w) // self.groups
        blocks = w.reshape(self.groups // self.merged, self.merged, per_group, *w.shape[1:])
        wide = np.zeros((*blocks.shape[:3], self.merged, *w.shape[1:]), w.dtype)
        for n in range(self.merged):
            wide[:, n, :, n] = blocks[:, n]
        return wide.reshape(self.infer(type_of(w)).shape)

    axioms = (
        law("conv(x, w, strides=s, pads=p, dilations=d, groups=g) = conv(x, regroup(w, groups=g, "
            "merged=m), strides=s, pads=p, dilations=d, groups=g // m)", "real",
            x=(2, 8, 5, 6), w=(12, 2, 3, 3), s=(2, 1), p=(1, 0, 1, 2), d=(1, 1), g=4, m=2),
        law("regroup(add(w, v), groups=g, merged=m) = "
            "add(regroup(w, groups=g, merged=m), regroup(v, groups=g, merged=m))", "exact",
            when=("shape(w) == shape(v)",), w=(4, 2, 3, 1), v=(4, 2, 3, 1), g=4, m=2),
        law("regroup(mul(w, s), groups=g, merged=m) = mul(regroup(w, groups=g, merged=m), s)",
            "real", w=(4, 2, 3, 1), s=(), g=4, m=2),
        law("regroup(relu(w), groups=g, merged=m) = relu(regroup(w, groups=g, merged=m))",
            "exact", w=(4, 2, 3, 1), g=4, m=2),
        law("regroup(regroup(w, groups=g, merged=m), groups=g // m, merged=n) = "
            "regroup(w, groups=g, merged=m * n)", "exact",
            w=(8, 3, 3, 1), g=4, m=2, n=2),
        law("regroup(regroup(w, groups=g, merged=m), groups=g // m, merged=g // m) = "
            "regroup(w, groups=g, merged=g)", "exact", w=(8, 3, 3, 1), g=4, m=2),
        law("regroup(enlarge(w, kernel=k), groups=g, merged=m) = "
            "enlarge(regroup(w, groups=g, merged=m), kernel=k)", "exact",
            w=(4, 2, 1, 3), g=2, m=2, k=(3, 3)),
        law("regroup(w, groups=g, merged=1) = w", "exact", w=(4, 2, 3, 1), g=2),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(4, 2), (TensorType((8, 1, 3, 3), f32),)),
            Sample(cls(3, 3), (TensorType((3, 2, 2), f32),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        merged, rest, per_group = (int(v) for v in rng.integers(1, 4, 3))
        inner = tuple(int(d) for d in rng.integers(1, 4, int(rng.integers(1, 4))))
        groups = merged * rest
        return Sample(cls(groups, merged), (TensorType((groups * per_group, *inner), f32),))


# ------------------------------------------------------------------------------------ constants
@dataclass(frozen=True)
class Known(Op):
    """Base: a constant that follows from its attributes."""

    accepts: ClassVar[tuple[DType, ...]] = NUMERIC

    dtype: DType = f32

    @property
    def shape(self) -> Shape:
        raise NotImplementedError

    def element(self, *i: Expr) -> Expr:
        """The element at position i."""
        raise NotImplementedError

    def infer(self) -> TensorType:
        require(self.dtype in self.accepts, self, f"no meaning for {self.dtype}", code="WH1103")
        return TensorType(self.shape, self.dtype)

    def compute(self) -> Compute:
        return compute(self.infer().shape, self.element, self.name)


def _ones_where(condition: Expr, dtype: DType) -> Expr:
    return select(condition, const(1, dtype), const(0, dtype))


@operator("pool_weight")
class PoolWeight(Known):
    """C_pool: the depthwise filters [channels, 1, *kernel] that average over a window."""

    channels: int = 1
    kernel: tuple[int, ...] = (1, 1)
    accepts = FLOATS

    @property
    def shape(self) -> Shape:
        return (self.channels, 1, *self.kernel)

    def element(self, *i: Expr) -> Expr:
        return const(1.0, self.dtype) / float(np.prod(self.kernel))

    def reference(self) -> Array:
        return np.full(self.shape, 1 / np.prod(self.kernel), self.dtype.numpy)

    axioms = (
        # Windows that reach into the padding count it, as the convolution does.
        law("avg_pool(x, kernel=k, strides=s, pads=p, dilations=d, ceil_mode=false, "
            "count_include_pad=true) = conv(x, pool_weight(channels=dim(x, 1), kernel=k), "
            "strides=s, pads=p, dilations=d, groups=dim(x, 1))", "real",
            x=(2, 3, 5, 6), k=(3, 2), s=(1, 2), p=(1, 0, 1, 1), d=(1, 1)),
        law("avg_pool(x, kernel=k, strides=s, pads=[0, 0, 0, 0], dilations=d, ceil_mode=false, "
            "count_include_pad=false) = conv(x, pool_weight(channels=dim(x, 1), kernel=k), "
            "strides=s, pads=[0, 0, 0, 0], dilations=d, groups=dim(x, 1))", "real",
            x=(2, 3, 5, 6), k=(3, 2), s=(1, 2), d=(1, 1)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (Sample(cls(f32, 3, (3, 2)), ()),)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        kernel = tuple(int(d) for d in rng.integers(1, 4, int(rng.integers(1, 4))))
        return Sample(cls(f32, int(rng.integers(1, 5)), kernel), ())


@operator("conv_identity")
class ConvIdentity(Known):
    """I_conv: the filters [channels, channels, *kernel] whose convolution, padded by half the
    kernel, gives its input.  All extents of the kernel are odd."""

    channels: int = 1
    kernel: tuple[int, ...] = (1, 1)

    @property
    def shape(self) -> Shape:
        return (self.channels, self.channels, *self.kernel)

    def infer(self) -> TensorType:
        require(all(k % 2 for k in self.kernel), self,
                f"kernel {list(self.kernel)} has no middle", code="WH1104")  # fmt: skip
        return super().infer()

    def element(self, *i: Expr) -> Expr:
        middle = [equal(at, k // 2) for at, k in zip(i[2:], self.kernel) if k > 1]
        return _ones_where(all_of([equal(i[0], i[1]), *middle]), self.dtype)

    def reference(self) -> Array:
        filters = np.zeros(self.shape, self.dtype.numpy)
        for c in range(self.channels):
            filters[(c, c, *(k // 2 for k in self.kernel))] = 1
        return filters

    axioms = (
        law(f"conv(x, conv_identity(channels=dim(x, 1), kernel=k), {UNIT}, pads=[(k[0] - 1) // 2, "
            "(k[1] - 1) // 2, (k[0] - 1) // 2, (k[1] - 1) // 2], groups=1) = x", "exact",
            x=(2, 3, 5, 6), k=(3, 1)),
        law("enlarge(conv_identity(channels=c, kernel=j), kernel=k) = "
            "conv_identity(channels=c, kernel=k)", "exact", c=3, j=(1, 1), k=(3, 3)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (Sample(cls(f32, 3, (3, 1)), ()),)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        kernel = tuple(2 * int(d) + 1 for d in rng.integers(0, 2, int(rng.integers(1, 4))))
        return Sample(cls(f32, int(rng.integers(1, 5)), kernel), ())


@operator("matmul_identity")
class MatMulIdentity(Known):
    """I_matmul: the unit matrix."""

    size: int = 1

    @property
    def shape(self) -> Shape:
        return (self.size, self.size)

    def element(self, *i: Expr) -> Expr:
        return _ones_where(equal(i[0], i[1]), self.dtype)

    def reference(self) -> Array:
        return np.eye(self.size, dtype=self.dtype.numpy)

    axioms = (
        law("matmul(a, matmul_identity(size=dim(a, 1))) = a", "exact", a=(2, 3)),
        law("matmul(matmul_identity(size=dim(a, 0)), a) = a", "exact", a=(2, 3)),
        law(
            "transpose(matmul_identity(size=n), perm=[1, 0]) = matmul_identity(size=n)",
            "exact",
            n=3,
        ),
    )

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (Sample(cls(f32, 3), ()),)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        return Sample(cls(NUMERIC[int(rng.integers(len(NUMERIC)))], int(rng.integers(1, 6))), ())


@operator("mul_identity")
class MulIdentity(Known):
    """I_ewmul: ones of the given extents."""

    extents: tuple[int, ...] = ()

    @property
    def shape(self) -> Shape:
        return self.extents

    def element(self, *i: Expr) -> Expr:
        return const(1, self.dtype)

    def reference(self) -> Array:
        return np.ones(self.extents, self.dtype.numpy)

    axioms = (
        law("mul(x, mul_identity(extents=shape(x))) = x", "exact", x=(2, 3)),
        law("transpose(mul_identity(extents=[m, n]), perm=[1, 0]) = mul_identity(extents=[n, m])",
            "exact", m=2, n=3),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (Sample(cls(f32, (2, 3)), ()), Sample(cls(f32, ()), ()))

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = tuple(int(d) for d in rng.integers(1, 6, int(rng.integers(0, 4))))
        return Sample(cls(NUMERIC[int(rng.integers(len(NUMERIC)))], shape), ())
