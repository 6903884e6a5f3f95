"""Data movement: the same elements in another place.

Every operator here reads each result element from one place of one input, so all of them hold
for any element type.  A reversed axis is a `slice` with a negative step; squeeze, unsqueeze and
flatten are `reshape`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from whet.core.dtypes import f32, i64
from whet.core.types import Array, Shape, TensorType, broadcast_shapes
from whet.ir.expr import Expr, select
from whet.ir.tensor import Compute, Tensor, broadcast_read, compute
from whet.ops.base import Op, Sample, law, operator, require
from whet.ops.shared.row_major import flat_index, matching_groups, unflatten


def random_shape(rng: np.random.Generator, low: int = 1, high: int = 5) -> Shape:
    """A small shape whose rank lies in [low, high]."""
    return tuple(int(d) for d in rng.integers(1, 6, int(rng.integers(low, high + 1))))


@operator("transpose", "x")
class Transpose(Op):
    """Axes reordered: axis n of the result is axis `perm[n]` of the input."""

    perm: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        require(sorted(self.perm) == list(range(x.rank)), self,
                f"perm {list(self.perm)} does not order {x.rank} axes", x,
                code="WH1104")  # fmt: skip
        return x.with_shape([x.shape[p] for p in self.perm])

    def reference(self, x: Array) -> Array:
        return np.transpose(x, self.perm)

    def compute(self, x: Tensor) -> Compute:
        def body(*i: Expr) -> Expr:
            source = {p: i[n] for n, p in enumerate(self.perm)}
            return x[tuple(source[a] for a in range(x.rank))]

        return compute(self.infer(x.type).shape, body, "transpose")

    axioms = (
        law("transpose(transpose(x, perm=[1, 0]), perm=[1, 0]) = x", "exact", x=(2, 3)),
        law("transpose(transpose(x, perm=p), perm=q) = "
            "transpose(x, perm=[p[q[0]], p[q[1]], p[q[2]]])", "exact",
            x=(2, 3, 4), p=(1, 2, 0), q=(0, 2, 1)),
        law("transpose(transpose(x, perm=p), perm=q) = "
            "transpose(x, perm=[p[q[0]], p[q[1]], p[q[2]], p[q[3]]])", "exact",
            x=(2, 3, 4, 5), p=(1, 2, 0, 3), q=(0, 2, 3, 1)),
        law("transpose(x, perm=[0, 1]) = x", "exact", x=(2, 3)),
        law("transpose(x, perm=[0, 1, 2]) = x", "exact", x=(2, 3, 4)),
        law("transpose(x, perm=[0, 1, 2, 3]) = x", "exact", x=(2, 3, 4, 5)),
        law("transpose(matmul(x, y), perm=[1, 0]) = "
            "matmul(transpose(y, perm=[1, 0]), transpose(x, perm=[1, 0]))", "exact",
            x=(2, 3), y=(3, 4)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls((1, 0)), (TensorType((3, 5), f32),)),
            Sample(cls((0, 2, 3, 1)), (TensorType((2, 3, 4, 5), f32),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng)
        perm = tuple(int(p) for p in rng.permutation(len(shape)))
        return Sample(cls(perm), (TensorType(shape, f32),))


# ------------------------------------------------------------------------------------ reshape
@operator("reshape", "x")
class Reshape(Op):
    """The elements in row-major order under another shape of the same size."""

    shape: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        require(math.prod(self.shape) == x.size, self,
                f"{x.size} elements do not fill the shape {list(self.shape)}", x)  # fmt: skip
        return x.with_shape(self.shape)

    def reference(self, x: Array) -> Array:
        return np.reshape(x, self.shape)

    def compute(self, x: Tensor) -> Compute:
        def body(*i: Expr) -> Expr:
            source: list[Expr] = []
            for old, new in matching_groups(x.shape, self.shape):
                flat = flat_index([i[a] for a in new], [self.shape[a] for a in new])
                source += unflatten(flat, [x.shape[a] for a in old])
            return x[tuple(source)]

        return compute(self.shape, body, "reshape")

    axioms = (
        law("reshape(reshape(x, shape=s), shape=t) = reshape(x, shape=t)", "exact",
            x=(12,), s=(3, 4), t=(2, 6)),
        law("reshape(x, shape=shape(x)) = x", "exact", x=(2, 3)),
        law("reshape(add(x, y), shape=s) = add(reshape(x, shape=s), reshape(y, shape=s))",
            "exact", when=("shape(x) == shape(y)",), x=(2, 3), y=(2, 3), s=(6,)),
        law("reshape(mul(x, y), shape=s) = mul(reshape(x, shape=s), reshape(y, shape=s))",
            "exact", when=("shape(x) == shape(y)",), x=(2, 3), y=(2, 3), s=(6,)),
        law("reshape(relu(x), shape=s) = relu(reshape(x, shape=s))", "exact", x=(2, 3), s=(6,)),
        law("transpose(x, perm=[0, 2, 1]) = reshape(x, shape=[2, 3, 1])", "exact",
            when=("shape(x) == [2, 1, 3]",), x=(2, 1, 3)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls((6, 4)), (TensorType((2, 3, 4), f32),)),
            Sample(cls((2, 2, 1, 6)), (TensorType((4, 6), f32),)),
            Sample(cls((1,)), (TensorType((), f32),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        factors = random_shape(rng, 0, 5)

        def merged() -> Shape:
            out: list[int] = []
            for f in factors:
                if out and rng.random() < 0.5:
                    out[-1] *= f
                else:
                    out.append(f)
            return tuple(out)

        return Sample(cls(merged()), (TensorType(merged(), f32),))


@operator("expand", "x")
class Expand(Op):
    """The input broadcast to `shape`, which it must fit as it stands."""

    shape: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        require(broadcast_shapes(x.shape, self.shape) == self.shape, self,
                f"no broadcast to {list(self.shape)}", x)  # fmt: skip
        return x.with_shape(self.shape)

    def reference(self, x: Array) -> Array:
        return np.broadcast_to(x, self.shape)

    def compute(self, x: Tensor) -> Compute:
        return compute(self.shape, lambda *i: broadcast_read(x, i), "expand")

    axioms = (
        law("expand(expand(x, shape=s), shape=t) = expand(x, shape=t)", "exact",
            x=(2, 1), s=(2, 3), t=(4, 2, 3)),
        law("expand(x, shape=shape(x)) = x", "exact", x=(2, 3)),
        law("add(x, expand(y, shape=shape(x))) = add(x, y)", "exact", x=(2, 3), y=(1, 3)),
        law("mul(x, expand(y, shape=shape(x))) = mul(x, y)", "exact", x=(2, 3), y=(1, 3)),
        law("relu(expand(x, shape=s)) = expand(relu(x), shape=s)", "exact", x=(2, 1), s=(2, 3)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls((2, 3, 4)), (TensorType((3, 1), f32),)),
            Sample(cls((3,)), (TensorType((), f32),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng)
        own = shape[int(rng.integers(0, len(shape))) :]
        kept = tuple(1 if rng.random() < 0.5 else d for d in own)
        return Sample(cls(shape), (TensorType(kept, f32),))


@operator("tile", "x")
class Tile(Op):
    """The input repeated `repeats[n]` times along axis n."""

    repeats: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        require(len(self.repeats) == x.rank and all(r >= 0 for r in self.repeats), self,
                f"repeats {list(self.repeats)} need one count for every axis", x,
                code="WH1104")  # fmt: skip
        return x.with_shape([d * r for d, r in zip(x.shape, self.repeats)])

    def reference(self, x: Array) -> Array:
        return np.tile(x, self.repeats)

    def compute(self, x: Tensor) -> Compute:
        def body(*i: Expr) -> Expr:
            return x[tuple(a if r == 1 else a % d for a, d, r in zip(i, x.shape, self.repeats))]

        return compute(self.infer(x.type).shape, body, "tile")

    axioms = (
        law("tile(tile(x, repeats=[2, 1]), repeats=[3, 2]) = tile(x, repeats=[6, 2])", "exact",
            x=(2, 3)),
        law("tile(x, repeats=[1, 1]) = x", "exact", x=(2, 3)),
        law("tile(x, repeats=[1, 2]) = concat(x, x, axis=1)", "exact", x=(2, 3)),
        law("relu(tile(x, repeats=[2, 2])) = tile(relu(x), repeats=[2, 2])", "exact", x=(2, 3)),
        law("add(tile(x, repeats=[2, 2]), tile(y, repeats=[2, 2])) = "
            "tile(add(x, y), repeats=[2, 2])", "exact", x=(2, 3), y=(2, 3)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls((2, 3)), (TensorType((3, 2), f32),)),
            Sample(cls((1, 2, 1)), (TensorType((2, 3, 4), i64),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng, 1, 3)
        repeats = tuple(int(r) for r in rng.integers(1, 4, len(shape)))
        return Sample(cls(repeats), (TensorType(shape, f32),))


# --------------------------------------------------------------------------- concat and split
@operator("concat", "*xs")
class Concat(Op):
    """The inputs one after the other along `axis`; their other extents agree."""

    axis: int

    def infer(self, *xs: TensorType) -> TensorType:
        require(len(xs) > 0, self, "nothing to join", code="WH1101")
        first = xs[0]
        require(0 <= self.axis < first.rank, self, f"axis {self.axis} is outside the rank", *xs,
                code="WH1104")  # fmt: skip
        require(all(x.dtype == first.dtype for x in xs), self, "element types differ", *xs,
                code="WH1103")  # fmt: skip
        others = _without(first.shape, self.axis)
        require(all(x.rank == first.rank and _without(x.shape, self.axis) == others for x in xs),
                self, f"extents differ outside axis {self.axis}", *xs)  # fmt: skip
        total = sum(x.shape[self.axis] for x in xs)
        return first.with_shape((*first.shape[: self.axis], total, *first.shape[self.axis + 1 :]))

    def reference(self, *xs: Array) -> Array:
        return np.concatenate(xs, axis=self.axis)

    def compute(self, *xs: Tensor) -> Compute:
        starts = _offsets([x.shape[self.axis] for x in xs])

        def pick(low: int, high: int, i: tuple[Expr, ...]) -> Expr:
            """The element at `i` from parts [low, high): halving keeps the selects shallow."""
            if high - low == 1:
                own = i[self.axis] + (-starts[low])
                return xs[low][(*i[: self.axis], own, *i[self.axis + 1 :])]
            middle = (low + high) // 2
            in_left = i[self.axis] < starts[middle]
            return select(in_left, pick(low, middle, i), pick(middle, high, i))

        out = self.infer(*(x.type for x in xs))
        return compute(out.shape, lambda *i: pick(0, len(xs), i), "concat")

    axioms = (
        # Four blocks can be joined by rows or by columns first.
        law("concat(concat(a, b, axis=j), concat(c, d, axis=j), axis=k) = "
            "concat(concat(a, c, axis=k), concat(b, d, axis=k), axis=j)", "exact",
            when=("j != k", "dim(a, j) == dim(c, j)"),
            a=(2, 3), b=(2, 1), c=(4, 3), d=(4, 1), j=1, k=0),
        law("concat(concat(a, b, axis=k), c, axis=k) = concat(a, concat(b, c, axis=k), axis=k)",
            "exact", a=(2, 3), b=(1, 3), c=(4, 3), k=0),
        law("concat(a, b, c, axis=k) = concat(concat(a, b, axis=k), c, axis=k)",
            "exact", a=(2, 3), b=(1, 3), c=(4, 3), k=0),
        law("concat(transpose(a, perm=[1, 0]), transpose(b, perm=[1, 0]), axis=0) = "
            "transpose(concat(a, b, axis=1), perm=[1, 0])", "exact", a=(2, 3), b=(2, 1)),
        law("concat(transpose(a, perm=[1, 0]), transpose(b, perm=[1, 0]), axis=1) = "
            "transpose(concat(a, b, axis=0), perm=[1, 0])", "exact", a=(2, 3), b=(4, 3)),
        law("concat(x, axis=k) = x", "exact", x=(2, 3), k=0),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(0), (TensorType((2, 3), f32), TensorType((1, 3), f32))),
            Sample(cls(1), tuple(TensorType((2, d, 2), f32) for d in (3, 0, 2, 1))),
            Sample(cls(0), (TensorType((4,), i64),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng)
        axis = int(rng.integers(len(shape)))
        parts = rng.integers(1, 4, int(rng.integers(1, 5)))
        types = tuple(TensorType((*shape[:axis], int(d), *shape[axis + 1 :]), f32) for d in parts)
        return Sample(cls(axis), types)


@operator("split", "x")
class Split(Op):
    """The input cut along `axis` into consecutive parts of the given sizes: one output each."""

    axis: int
    sizes: tuple[int, ...]

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        require(0 <= self.axis < x.rank, self, f"axis {self.axis} is outside the rank", x,
                code="WH1104")  # fmt: skip
        require(min(self.sizes, default=-1) >= 0 and sum(self.sizes) == x.shape[self.axis], self,
                f"sizes {list(self.sizes)} do not make up axis {self.axis}", x,
                code="WH1104")  # fmt: skip
        before, after = x.shape[: self.axis], x.shape[self.axis + 1 :]
        return tuple(x.with_shape((*before, size, *after)) for size in self.sizes)

    def reference(self, x: Array) -> tuple[Array, ...]:
        return tuple(np.split(x, np.cumsum(self.sizes)[:-1], axis=self.axis))

    def compute(self, x: Tensor) -> tuple[Compute, ...]:
        def part(start: int, shape: Shape, name: str) -> Compute:
            def body(*i: Expr) -> Expr:
                return x[(*i[: self.axis], i[self.axis] + start, *i[self.axis + 1 :])]

            return compute(shape, body, name)

        starts = _offsets(self.sizes)
        types = self.infer(x.type)
        return tuple(part(s, t.shape, f"split{n}") for n, (s, t) in enumerate(zip(starts, types)))

    axioms = (
        law("concat(split(x, axis=0, sizes=[2, 1]), axis=0) = x", "exact",
            when=("dim(x, 0) == 3",), x=(3, 4)),
        law("concat(split(x, axis=1, sizes=[1, 2, 1]), axis=1) = x", "exact",
            when=("dim(x, 1) == 4",), x=(3, 4)),
        law("concat(split(x, axis=k, sizes=z)[0], split(x, axis=k, sizes=z)[1], axis=k) = x",
            "exact", when=("z[0] + z[1] == dim(x, k)",), x=(3, 4), k=1, z=(1, 3)),
        law("split(concat(x, y, axis=k), axis=k, sizes=[dim(x, k), dim(y, k)])[0] = x", "exact",
            x=(2, 3), y=(4, 3), k=0),
        law("split(concat(x, y, axis=k), axis=k, sizes=[dim(x, k), dim(y, k)])[1] = y", "exact",
            x=(2, 3), y=(4, 3), k=0),
        *(
            law("split(concat(x, y, z, axis=k), axis=k, sizes=[dim(x, k), dim(y, k), "
                f"dim(z, k)])[{n}] = {part}", "exact", x=(2, 3), y=(4, 3), z=(1, 3), k=0)
            for n, part in enumerate("xyz")
        ),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls(0, (2, 1)), (TensorType((3, 4), f32),)),
            Sample(cls(1, (1, 0, 3, 2)), (TensorType((2, 6, 2), f32),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng)
        axis = int(rng.integers(len(shape)))
        sizes = tuple(int(d) for d in rng.choice((0, 1, 1, 1, 2, 3), int(rng.integers(1, 5))))
        shape = (*shape[:axis], sum(sizes), *shape[axis + 1 :])
        return Sample(cls(axis, sizes), (TensorType(shape, f32),))


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _offsets(sizes: Sequence[int]) -> list[int]:
    """The start of each part when the sizes are laid end to end."""
    return [sum(sizes[:n]) for n in range(len(sizes))]


# ------------------------------------------------------------------------------ slice and pad
@operator("slice", "x")
class Slice(Op):
    """The positions range(start, stop, step) of every axis; a negative step runs backwards.

    Positions count from the front and none wraps around: a backward slice down to the first
    element has stop -1.  Every axis is listed.
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]

    def ranges(self) -> tuple[range, ...]:
        """The positions that are kept, by axis."""
        return tuple(map(range, self.starts, self.stops, self.steps))

    def infer(self, x: TensorType) -> TensorType:
        lengths = {len(self.starts), len(self.stops), len(self.steps)}
        require(lengths == {x.rank} and 0 not in self.steps, self,
                "starts, stops and steps must list every axis, and no step is 0", x,
                code="WH1104")  # fmt: skip
        for kept, extent in zip(self.ranges(), x.shape):
            ends = (kept[0], kept[-1]) if kept else (0, -1)  # min and max of a range walk it
            require(not kept or (min(ends) >= 0 and max(ends) < extent), self,
                    f"{kept} leaves an axis of extent {extent}", x, code="WH1104")  # fmt: skip
        return x.with_shape([len(kept) for kept in self.ranges()])

    def reference(self, x: Array) -> Array:
        return x[tuple(map(_numpy_slice, self.ranges()))]

    def compute(self, x: Tensor) -> Compute:
        def body(*i: Expr) -> Expr:
            return x[tuple(a * step + start for a, start, step in zip(i, self.starts, self.steps))]

        return compute(self.infer(x.type).shape, body, "slice")

    axioms = (
        law("slice(x, starts=[0, 0], stops=[dim(x, 0), dim(x, 1)], steps=[1, 1]) = x", "exact",
            x=(2, 3)),
        law("slice(slice(x, starts=[1], stops=[7], steps=[2]), starts=[1], stops=[3], steps=[1]) = "
            "slice(x, starts=[3], stops=[7], steps=[2])", "exact", x=(8,)),
        law("slice(slice(x, starts=[4], stops=[-1], steps=[-1]), starts=[4], stops=[-1], "
            "steps=[-1]) = x", "exact", when=("dim(x, 0) == 5",), x=(5,)),
        law("slice(concat(x, y, axis=0), starts=[0, 0], stops=[dim(x, 0), dim(x, 1)], "
            "steps=[1, 1]) = x", "exact", x=(2, 3), y=(4, 3)),
        law("slice(concat(x, y, axis=0), starts=[dim(x, 0), 0], stops=[dim(x, 0) + dim(y, 0), "
            "dim(x, 1)], steps=[1, 1]) = y", "exact", x=(2, 3), y=(4, 3)),
        law("slice(transpose(x, perm=[1, 0]), starts=[1, 0], stops=[3, 1], steps=[1, 1]) = "
            "transpose(slice(x, starts=[0, 1], stops=[1, 3], steps=[1, 1]), perm=[1, 0])", "exact",
            x=(2, 3)),
    )  # fmt: skip

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        return (
            Sample(cls((1, 0), (4, 2), (1, 1)), (TensorType((5, 3), f32),)),
            Sample(cls((4, 0), (-1, 5), (-2, 3)), (TensorType((5, 6), f32),)),
            Sample(cls((2,), (2,), (1,)), (TensorType((5,), f32),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        shape = random_shape(rng)
        starts = [int(rng.integers(d)) for d in shape]
        steps = [int(rng.choice([-2, -1, 1, 2])) for _ in shape]
        stops = [
            int(rng.integers(a, d + 1) if s > 0 else rng.integers(-1, a + 1))
            for a, d, s in zip(starts, shape, steps)
        ]
        return Sample(cls(tuple(starts), tuple(stops), tuple(steps)), (TensorType(shape, f32),))


def _numpy_slice(kept: range) -> slice:
    """The range in NumPy's notation, where a stop below 0 would count from the end."""
    if not kept:
        return slice(0, 0)
    return slice(kept.start, None if kept.stop < 0 else kept.stop, kept.step)
