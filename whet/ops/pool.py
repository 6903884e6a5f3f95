"""Pooling: one value per window, over any number of spatial axes of [N, C, *spatial]."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict

import numpy as np

from whet.core.dtypes import FLOATS, NUMERIC, DType, compute_dtype, dtype_of, f32, i64
from whet.core.types import Array, Shape, TensorType
from whet.ir.expr import Axis, Expr, as_expr, call, cast, const, equal, select
from whet.ir.tensor import Compute, Tensor, compute, max_, reduce, reduce_axis, sum_
from whet.ops.base import Builder, Domain, Law, NoAlgebra, Op, Sample, law, operator, require
from whet.ops.movement import Reshape
from whet.ops.scatter import ScatterElements
from whet.ops.shared.row_major import flat_index, unflatten
from whet.ops.shared.spatial_laws import (
    SPATIAL,
    added,
    border,
    kernel_of_one,
    only_in_space,
    per_channel,
    repeated,
    still,
    strided,
)
from whet.ops.shared.window import Window, reduction_axes

# Attributes of the laws' examples: uneven strides and pads, so that no law holds by symmetry.
POOL = "kernel=[3, 2], strides=[1, 2], pads=[1, 0, 1, 1], dilations=[1, 1]"
ANY = "kernel=k, strides=s, pads=p, dilations=d, ceil_mode=m"
COUNTED = f"{ANY}, count_include_pad=n"


class Example(TypedDict):
    """Values of the attribute variables."""

    k: Shape
    s: Shape
    p: Shape
    d: Shape
    m: bool


EXAMPLE = Example(k=(3, 2), s=(1, 2), p=(1, 0, 1, 1), d=(1, 1), m=False)
VOLUME = Example(k=(3, 2, 2), s=(1, 2, 1), p=(1, 0, 0, 1, 1, 0), d=(1, 1, 1), m=False)
EXAMPLES = {2: EXAMPLE, 3: VOLUME}


def lowest(dtype: DType) -> float | int:
    """The value that every other one replaces in a maximum."""
    return -math.inf if dtype.is_float else int(np.iinfo(dtype.numpy).min)


@dataclass(frozen=True)
class Pool(Op):
    """Base: windows of `kernel` elements; `pads` are begins of all axes, then ends.

    With `ceil_mode`, the last window of an axis may run over the end of the padded input, as
    long as it starts before the end padding.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil_mode: bool = False

    accepts: ClassVar[tuple[DType, ...]] = FLOATS

    @property
    def window(self) -> Window:
        return Window(self.kernel, self.strides, self.pads, self.dilations)

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype in self.accepts, self, f"no meaning for {x.dtype}", x, code="WH1103")
        require(x.rank >= 3, self, "the input has no spatial axes", x)
        self.window.check(self, x.shape[2:])
        return x.with_shape((*x.shape[:2], *self.outputs(x.shape)))

    def outputs(self, x: Shape) -> Shape:
        return self.window.outputs(self, x[2:], self.ceil_mode)

    def taps(self, x: Array, fill: float) -> Iterator[Array]:
        """For each kernel position, what the windows see there; `fill` outside the input."""
        outputs = self.outputs(x.shape)
        return self.window.taps(self.window.pad(x, outputs, fill), outputs)

    @classmethod
    def options(cls, rng: np.random.Generator) -> dict[str, Any]:
        """Random values of the attributes that a subclass adds."""
        return {}

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        extra = cls.options(np.random.default_rng(0))

        def case(x: Shape, *args: Any) -> Sample:
            return Sample(cls(*args, **extra), (TensorType(x, f32),))

        return (
            case((1, 2, 5, 6), (2, 3), (2, 1), (0, 1, 1, 1), (1, 1)),
            case((2, 3, 9), (3,), (2,), (1, 1), (2,), True),
            case((1, 2, 4, 3, 5), (2, 1, 3), (1, 1, 2), (0,) * 6, (1, 1, 1)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        rank = int(rng.integers(1, 4))
        kernel, strides, dilations = (
            tuple(int(v) for v in rng.integers(1, high, rank)) for high in (4, 4, 3)
        )
        # Padding at most half a kernel, so that every window meets the input.
        pads = tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel * 2)
        op = cls(kernel, strides, pads, dilations, bool(rng.integers(2)), **cls.options(rng))
        lead = tuple(int(v) for v in rng.integers(1, 3, 2))
        spatial = tuple(s + int(rng.integers(0, 5)) for s in op.window.spans)
        dtype = cls.accepts[int(rng.integers(len(cls.accepts)))]
        return Sample(op, (TensorType((*lead, *spatial), dtype),))


def _averaged(x: str, pads: str = "p", counted: str = "n") -> str:
    return (f"avg_pool({x}, kernel=k, strides=s, pads={pads}, dilations=d, ceil_mode=m, "
            f"count_include_pad={counted})")  # fmt: skip


def _average_laws(n: int) -> Iterator[Law]:
    """Laws of averages over n spatial axes that speak of single axes."""
    example, spatial, one = EXAMPLES[n], (5, 6, 4)[:n], (1,) * n
    x, channel = (2, 3, *spatial), (1, 3, *one)
    along = f"shape(c) == {per_channel('dim(x, 1)', n)}"
    none = repeated(0, 2 * n)
    before = f"pad(x, 0, pads={border('p', n)})"
    yield law(f"{_averaged('mul(x, c)')} = mul({_averaged('x')}, c)", "real", when=(along,),
              **example, n=True, x=x, c=channel)  # fmt: skip
    yield law(f"{_averaged('add(x, c)')} = add({_averaged('x')}, c)", "real",
              when=("n == false", along), **example, n=False, x=x, c=channel)  # fmt: skip
    # Padding that counts can be done beforehand, and what was padded before need not be.
    yield law(f"{_averaged('x', counted='true')} = "
              f"{_averaged(before, none, 'false')}", "exact",
              when=("m == false",), **example, x=x)  # fmt: skip
    yield law(f"{_averaged('pad(x, 0, pads=q)', counted='true')} = "
              f"{_averaged('x', added('p', 'q', n), 'true')}", "exact",
              when=("m == false", only_in_space("q", n)), **example,
              q=(0, 0, *(1, 2, 0)[:n], 0, 0, *(2, 0, 1)[:n]), x=x)  # fmt: skip
    # Channel mixing commutes with averaging in space.
    yield law(f"{_averaged(f'conv(x, w, {still(n)}, groups=g)')} = "
              f"conv({_averaged('x')}, w, {still(n)}, groups=g)", "real",
              when=kernel_of_one("w", n), **example, n=True, g=1, x=x, w=(4, 3, *one))  # fmt: skip
    # The average of one element is that element.
    yield law(f"avg_pool(x, kernel={repeated(1, n)}, strides=s, pads={none}, dilations=d, "
              f"ceil_mode=m, count_include_pad=n) = {strided('x', 's', n)}", "exact",
              s=example["s"], d=example["d"], m=False, n=False, x=x)  # fmt: skip


def _maximum_laws(n: int) -> Iterator[Law]:
    """Laws of maxima over n spatial axes that speak of single axes."""
    example, spatial, one = EXAMPLES[n], (5, 6, 4)[:n], (1,) * n
    x, channel = (2, 3, *spatial), (1, 3, *one)
    # A window that lies in the padding as a whole has no largest element.
    met = tuple(f"p[{n * end + axis}] < k[{axis}]" for end in range(2) for axis in range(n))
    met += (f"d == {repeated(1, n)}", "m == false")
    yield law(f"max_pool(relu(x), {ANY}) = relu(max_pool(x, {ANY}))", "exact", when=met,
              **example, x=x)  # fmt: skip
    for bound in ("maximum", "minimum"):
        yield law(f"max_pool({bound}(x, c), {ANY}) = {bound}(max_pool(x, {ANY}), c)", "exact",
                  when=met, **example, x=x, c=())  # fmt: skip
    yield law(f"max_pool(add(x, c), {ANY}) = add(max_pool(x, {ANY}), c)", "exact",
              when=(f"shape(c) == {per_channel('dim(x, 1)', n)}", *met), **example, x=x,
              c=channel)  # fmt: skip
    # The largest of one element is that element.
    yield law(f"max_pool(x, kernel={repeated(1, n)}, strides=s, pads={repeated(0, 2 * n)}, "
              f"dilations=d, ceil_mode=m) = {strided('x', 's', n)}", "exact",
              s=example["s"], d=example["d"], m=False, x=x)  # fmt: skip


@operator("max_pool", "x")
class MaxPool(Pool):
    """The largest element of each window; padding never wins."""

    accepts = NUMERIC

    def reference(self, x: Array) -> Array:
        taps = self.taps(x, lowest(dtype_of(x)))
        result = next(taps).copy()
        for tap in taps:
            np.maximum(result, tap, out=result)
        return result

    def compute(self, x: Tensor) -> Compute:
        k = self.window.kernel_indices()

        def body(n: Expr, c: Expr, *o: Axis) -> Expr:
            value = self.window.read(x, (n, c), o, k, lowest(x.dtype))
            return max_(value, *reduction_axes(*k))

        return compute(self.infer(x.type).shape, body, "max_pool")

    axioms = (
        *(law for n in SPATIAL for law in _maximum_laws(n)),
        law(f"max_pool(maximum(x, y), {ANY}) = maximum(max_pool(x, {ANY}), "
            f"max_pool(y, {ANY}))", "exact", when=("shape(x) == shape(y)",), **EXAMPLE,
            x=(2, 3, 5, 6), y=(2, 3, 5, 6)),
        law(f"concat(max_pool(x, {ANY}), max_pool(y, {ANY}), axis=1) = "
            f"max_pool(concat(x, y, axis=1), {ANY})", "exact", **EXAMPLE,
            x=(2, 3, 5, 6), y=(2, 4, 5, 6)),
        law(f"concat(max_pool(x, {ANY}), max_pool(y, {ANY}), axis=0) = "
            f"max_pool(concat(x, y, axis=0), {ANY})", "exact", **EXAMPLE,
            x=(2, 3, 5, 6), y=(1, 3, 5, 6)),
        law(f"max_pool(x, {POOL}) = max_pool(pad(x, -inf, pads=[0, 0, 1, 0, 0, 0, 1, 1]), "
            "kernel=[3, 2], strides=[1, 2], pads=[0, 0, 0, 0], dilations=[1, 1])", "exact",
            x=(2, 3, 5, 6)),
        law("max_pool(x, kernel=[5, 6], strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1]) = "
            "reduce_max(x, axes=[2, 3], keepdims=true)", "exact",
            when=("dim(x, 2) == 5", "dim(x, 3) == 6"), x=(2, 3, 5, 6)),
        # Windows of windows: 2 of 3 in a row span 4, and rows can be pooled before columns.
        law("max_pool(max_pool(x, kernel=[3, 3], strides=[1, 1], pads=[0, 0, 0, 0], "
            "dilations=[1, 1]), kernel=[2, 2], strides=[1, 1], pads=[0, 0, 0, 0], "
            "dilations=[1, 1]) = max_pool(x, kernel=[4, 4], strides=[1, 1], pads=[0, 0, 0, 0], "
            "dilations=[1, 1])", "exact", x=(2, 3, 5, 6)),
        law(f"max_pool(x, {POOL}) = max_pool(max_pool(x, kernel=[3, 1], strides=[1, 1], "
            "pads=[1, 0, 1, 0], dilations=[1, 1]), kernel=[1, 2], strides=[1, 2], "
            "pads=[0, 0, 0, 1], dilations=[1, 1])", "exact", x=(2, 3, 5, 6)),
    )  # fmt: skip


@operator("max_pool_index", "x")
class MaxPoolIndex(Pool):
    """The flat position of each window's largest element in the whole input.

    Of equal elements the first in the window is taken, and NaN before any number; -1 where a window
    meets nothing but padding.  With `column_major`, the spatial axes are counted with the first one
    fastest (batch and channel as always).
    """

    column_major: bool = False
    accepts = NUMERIC

    def infer(self, x: TensorType) -> TensorType:
        return super().infer(x).with_dtype(i64)

    def reference(self, x: Array) -> Array:
        spatial = x.shape[2:]
        inner = np.arange(math.prod(spatial))
        if self.column_major:
            inner = inner.reshape(spatial[::-1]).T
        else:
            inner = inner.reshape(spatial)
        best: Array = np.zeros((*x.shape[:2], *self.outputs(x.shape)), x.dtype)
        found = np.full(best.shape, -1)
        for value, position in zip(self.taps(x, 0), self.taps(inner[None, None], -1)):
            better = (value > best) | (np.isnan(value) & ~np.isnan(best))
            better = (position >= 0) & ((found < 0) | better)
            best = np.where(better, value, best)
            found = np.where(better, position, found)
        planes = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * len(spatial))
        return np.where(found < 0, -1, found + planes * math.prod(spatial))

    def compute(self, x: Tensor) -> Compute:
        largest = MaxPool(self.kernel, self.strides, self.pads, self.dilations, self.ceil_mode)
        peak = largest.compute(x)
        window, spatial = self.window, x.shape[2:]
        k = tuple(reduce_axis(extent, f"k{n}") for n, extent in enumerate(self.kernel))

        def is_peak(n: Expr, c: Expr, *o: Axis) -> Expr:
            at = window.meeting(o, k)
            found = equal(x[(n, c, *at)], peak[(n, c, *o)])
            if x.dtype.is_float:
                found = found | call("isnan", x[(n, c, *at)])  # then the peak is NaN
            here = select(found, as_expr(1), as_expr(0))
            return reduce("argmax", select(window.inside(spatial, o, at), here, 0), *k)

        first = compute(peak.shape, is_peak, "first")

        def body(n: Expr, c: Expr, *o: Axis) -> Expr:
            at = window.meeting(o, unflatten(first[(n, c, *o)], self.kernel))
            plane = (n * x.shape[1] + c) * math.prod(spatial)
            if self.column_major:
                inner = flat_index(at[::-1], spatial[::-1])
            else:
                inner = flat_index(at, spatial)
            return select(window.inside(spatial, o, at), plane + inner, -1)

        return compute(peak.shape, body, "max_pool_index")

    @classmethod
    def options(cls, rng: np.random.Generator) -> dict[str, Any]:
        return {"column_major": bool(rng.integers(2))}

    axioms = NoAlgebra("positions take no part in rewrites")


@operator("avg_pool", "x")
class AvgPool(Pool):
    """The mean of each window: of its elements inside the input, or with
    `count_include_pad` of those inside the padded input (padding counts as zeros)."""

    count_include_pad: bool = False

    def reference(self, x: Array) -> Array:
        dtype = dtype_of(x)
        wide = x.astype(compute_dtype(dtype).numpy, copy=False)
        total = sum(self.taps(wide, 0))
        counted = np.ones((1, 1, *x.shape[2:]), wide.dtype)
        if self.count_include_pad:
            border = [(0, 0), (0, 0), *zip(self.window.begins, self.window.ends)]
            counted = np.pad(counted, border, constant_values=1)
            padded = Window(self.kernel, self.strides, (0,) * len(self.pads), self.dilations)
            outputs = self.outputs(x.shape)
            count = sum(padded.taps(padded.pad(counted, outputs, 0), outputs))
        else:
            count = sum(self.taps(counted, 0))
        return np.asarray(total / count).astype(dtype.numpy, copy=False)

    def compute(self, x: Tensor) -> Compute:
        out = self.infer(x.type)
        inner = compute_dtype(x.dtype)
        k = self.window.kernel_indices()

        def body(n: Expr, c: Expr, *o: Axis) -> Expr:
            value = cast(self.window.read(x, (n, c), o, k, 0), inner)
            total = sum_(value, *reduction_axes(*k))
            return cast(total / cast(self.count(x.shape[2:], o), inner), out.dtype)

        return compute(out.shape, body, "avg_pool")

    def count(self, spatial: Shape, o: tuple[Axis, ...]) -> Expr:
        """The number of elements that the window of output o counts."""
        window = self.window
        overrun = window.overrun(spatial, tuple(i.extent for i in o))
        product = as_expr(1)
        for n, i in enumerate(o):
            begin, end = window.begins[n], window.ends[n]
            if self.count_include_pad:
                low, high, over = -begin, spatial[n] + end, overrun[n] - end
            else:
                low, high, over = 0, spatial[n], overrun[n]
            start = i * window.strides[n] - begin
            stop = as_expr(window.kernel[n])
            first = as_expr(0)
            step = window.dilations[n]
            if over > 0:  # kernel positions before the one that first reaches `high`
                stop = call("min", stop, (high - start + (step - 1)) // step)
            if low > -begin:  # kernel positions from the first that reaches `low` on
                first = call("max", first, (low - start + (step - 1)) // step)
            product = product * (stop - first)
        return product

    @classmethod
    def options(cls, rng: np.random.Generator) -> dict[str, Any]:
        return {"count_include_pad": bool(rng.integers(2))}

    axioms = (
        law(f"avg_pool(add(x, y), {COUNTED}) = add(avg_pool(x, {COUNTED}), "
            f"avg_pool(y, {COUNTED}))", "real", when=("shape(x) == shape(y)",), **EXAMPLE, n=False,
            x=(2, 3, 5, 6), y=(2, 3, 5, 6)),
        law(f"avg_pool(mul(x, c), {COUNTED}) = mul(avg_pool(x, {COUNTED}), c)", "real",
            **EXAMPLE, n=True, x=(2, 3, 5, 6), c=()),
        law(f"concat(avg_pool(x, {COUNTED}), avg_pool(y, {COUNTED}), axis=1) = "
            f"avg_pool(concat(x, y, axis=1), {COUNTED})", "exact", **EXAMPLE, n=False,
            x=(2, 3, 5, 6), y=(2, 4, 5, 6)),
        law(f"concat(avg_pool(x, {COUNTED}), avg_pool(y, {COUNTED}), axis=0) = "
            f"avg_pool(concat(x, y, axis=0), {COUNTED})", "exact", **EXAMPLE, n=False,
            x=(2, 3, 5, 6), y=(1, 3, 5, 6)),
        law("avg_pool(x, kernel=[5, 6], strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1]) = "
            "reduce_mean(x, axes=[2, 3], keepdims=true)", "real",
            when=("dim(x, 2) == 5", "dim(x, 3) == 6"), x=(2, 3, 5, 6)),
        # Where all windows count alike, it is a depthwise convolution.
        law(f"avg_pool(x, {POOL}, count_include_pad=true) = "
            "conv(x, expand(0.16666666666666666, shape=[3, 1, 3, 2]), strides=[1, 2], "
            "pads=[1, 0, 1, 1], dilations=[1, 1], groups=3)", "real",
            when=("dim(x, 1) == 3",), x=(2, 3, 5, 6)),
        *(law for n in SPATIAL for law in _average_laws(n)),
    )  # fmt: skip


@operator("lp_pool", "x")
class LpPool(Pool):
    """The p-norm of each window; padding counts as zeros."""

    p: int = 2

    def infer(self, x: TensorType) -> TensorType:
        require(self.p >= 1, self, f"p = {self.p}", x, code="WH1104")
        return super().infer(x)

    def reference(self, x: Array) -> Array:
        dtype = dtype_of(x)
        wide = np.abs(x.astype(compute_dtype(dtype).numpy, copy=False))
        total = sum(self.taps(np.power(wide, self.p), 0))
        return np.power(total, 1.0 / self.p).astype(dtype.numpy)

    def compute(self, x: Tensor) -> Compute:
        out = self.infer(x.type)
        inner = compute_dtype(x.dtype)
        k = self.window.kernel_indices()

        def body(n: Expr, c: Expr, *o: Axis) -> Expr:
            value = cast(self.window.read(x, (n, c), o, k, 0), inner)
            power = value * value if self.p == 2 else call("pow", call("abs", value), self.p)
            total = sum_(power, *reduction_axes(*k))
            if self.p == 2:
                return cast(call("sqrt", total), out.dtype)
            return cast(call("pow", total, const(1.0 / self.p, inner)), out.dtype)

        return compute(out.shape, body, "lp_pool")

    @classmethod
    def options(cls, rng: np.random.Generator) -> dict[str, Any]:
        return {"p": int(rng.integers(1, 4))}

    axioms = (
        law(f"lp_pool(mul(x, s), {POOL}) = mul(lp_pool(x, {POOL}), abs(s))", "real",
            when=("shape(s) == [1, dim(x, 1), 1, 1]",), x=(2, 3, 5, 6), s=(1, 3, 1, 1)),
        law(f"lp_pool(abs(x), {POOL}) = lp_pool(x, {POOL})", "exact", x=(2, 3, 5, 6)),
        law(f"concat(lp_pool(x, {POOL}), lp_pool(y, {POOL}), axis=1) = "
            f"lp_pool(concat(x, y, axis=1), {POOL})", "exact", x=(2, 3, 5, 6), y=(2, 4, 5, 6)),
    )  # fmt: skip


@operator("max_unpool", "x", "indices")
class MaxUnpool(Op):
    """Zeros of `shape` with each element of x at the flat position that `indices` names.

    Where several go to one position, the last in row-major order stays.
    """

    shape: tuple[int, ...]

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        require(x.shape == indices.shape, self, "one index is needed for every element", x, indices)
        require(indices.dtype == i64, self, "indices are not i64", x, indices, code="WH1103")
        require(x.dtype in NUMERIC, self, f"no meaning for {x.dtype}", x, indices, code="WH1103")
        return x.with_shape(self.shape)

    def reference(self, x: Array, indices: Array) -> Array:
        result = np.zeros(self.shape, x.dtype)
        flat = indices.ravel()
        outside = flat[(flat < 0) | (flat >= result.size)]
        require(not outside.size, self, f"the index {outside[:1]} is outside [0, {result.size}), "
                f"the elements of {list(self.shape)}", code="WH1302")  # fmt: skip
        result.reshape(-1)[flat] = x.ravel()
        return result

    def expand(self, b: Builder, x: Any, indices: Any) -> Any:
        t = b.type(x)
        zeros = b.constant(np.zeros(math.prod(self.shape), t.dtype.numpy))
        positions, values = b(Reshape((t.size,)), indices), b(Reshape((t.size,)), x)
        return b(Reshape(self.shape), b(ScatterElements(axis=0), zeros, positions, values))

    axioms = NoAlgebra("where an element goes depends on data")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        types = (TensorType((1, 2, 3, 2), f32), TensorType((1, 2, 3, 2), i64))
        return (Sample(cls((1, 2, 6, 4)), types, (None, Domain(0, 48))),)

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = tuple(int(v) for v in rng.integers(1, 4, int(rng.integers(3, 6))))
        image = (*shape[:2], *(2 * d for d in shape[2:]))
        types = (TensorType(shape, f32), TensorType(shape, i64))
        return Sample(cls(image), types, (None, Domain(0, math.prod(image))))
