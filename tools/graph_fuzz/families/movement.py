"""Operators that move numbers and compute none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tools.graph_fuzz.families.divided import parts_of_contraction
from tools.graph_fuzz.families.elementwise import broadcast_shape
from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from whet.core.dtypes import i32, i64
from whet.core.types import Shape


def some_axis(g: Growth, rank: int) -> int:
    """An axis, counted from the front or from the end."""
    if not rank:
        raise Impossible
    axis = g.draw.integer(0, rank - 1)
    return axis - rank if g.draw.chance(0.3) else axis


@generates("Identity")
def identity(g: Growth, name: str) -> Held:
    return g.emit(name, g.tensor(g.types(name, "V" if g.opset >= 14 else "T")))


@generates("Transpose")
def transpose(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    perm = None if g.draw.chance(0.2) else g.draw.shuffled(range(v.rank))
    return g.emit(name, v, perm=perm or None)


# ------------------------------------------------------------------------------------ reshape
def factored(g: Growth, size: int, rank: int) -> Shape:
    """A shape of so many axes with `size` elements."""
    shape = [1] * rank
    rest = size
    for n in range(2, size + 1):
        while rank and rest % n == 0 and rest > 1:
            shape[g.draw.integer(0, rank - 1)] *= n
            rest //= n
        if rest == 1:
            break
    return tuple(shape)


@generates("Reshape")
def reshape(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    rank = g.draw.integer(0 if v.size == 1 else 1, 5)
    wanted: list[int] = (
        list(factored(g, v.size, rank)) if v.size else list(g.draw.shuffled(v.shape))
    )
    if g.opset < 5:
        return g.emit(name, v, shape=wanted)
    if wanted and v.size and g.draw.chance(0.3):
        wanted[g.draw.integer(0, len(wanted) - 1)] = -1
    keeps = [n for n, d in enumerate(wanted) if n < v.rank and d == v.shape[n] and d]
    if keeps and g.draw.chance(0.2):
        wanted[g.draw.pick(keeps)] = 0
        return g.emit(name, v, g.ints(wanted))
    zeros = 1 if 0 in wanted and g.opset >= 14 else None
    if 0 in wanted and not zeros:
        raise Impossible
    return g.emit(name, v, g.ints(wanted), allowzero=zeros)


@generates("Flatten")
def flatten(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 6))
    low = -v.rank if g.opset >= 11 else 0
    return g.emit(name, v, axis=g.draw.pick([None, g.draw.integer(low, v.rank)]))


def axes_input(g: Growth, name: str, v: Held, axes: Sequence[int] | None, since: int) -> Held:
    """The node with its axes: an attribute, and from opset `since` on an input."""
    if axes is None:
        return g.emit(name, v)
    if g.opset < since:
        return g.emit(name, v, axes=list(axes))
    return g.emit(name, v, g.ints(axes))


@generates("Squeeze")
def squeeze(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), where=lambda v: 1 in v.shape,
                 shape=lambda: (*g.shape(g.draw.integer(0, 3)), 1))  # fmt: skip
    ones = [n for n, d in enumerate(v.shape) if d == 1]
    axes = g.draw.some(ones, 0.6) or ones[:1]
    if g.opset >= 11:
        axes = [a - v.rank if g.draw.chance(0.3) else a for a in axes]
    return axes_input(g, name, v, None if g.draw.chance(0.2) else axes, 13)


@generates("Unsqueeze")
def unsqueeze(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name))
    count = g.draw.integer(1, 2)
    rank = v.rank + count
    axes = sorted(g.draw.shuffled(range(rank))[:count])
    if g.opset >= 11:
        axes = [a - rank if g.draw.chance(0.3) else a for a in axes]
    return axes_input(g, name, v, axes, 13)


@generates("DepthToSpace", "SpaceToDepth")
def blocks(g: Growth, name: str) -> Held:
    block = g.draw.integer(1, 3)

    def fits(v: Held) -> bool:
        if name == "DepthToSpace":
            return v.rank == 4 and v.shape[1] % (block * block) == 0
        return v.rank == 4 and v.shape[2] % block == 0 and v.shape[3] % block == 0

    def shape() -> Shape:
        n, c, h, w = g.shape(4, extent=9, most=400)
        return (n, c * block**2, h, w) if name == "DepthToSpace" else (n, c, h * block, w * block)

    v = g.tensor(g.types(name), 4, fits, shape)
    mode = g.draw.pick([None, "DCR", "CRD"]) if name == "DepthToSpace" and g.opset >= 11 else None
    return g.emit(name, v, blocksize=block, mode=mode)


# ------------------------------------------------------------------------------ copies of parts
@generates("Expand")
def expand(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), where=lambda v: v.size <= 500,
                 shape=lambda: broadcast_shape(g, g.shape(most=500)))  # fmt: skip
    wanted = [g.draw.integer(1, 6) if d == 1 and g.draw.chance(0.6) else d for d in v.shape]
    if g.draw.chance(0.3):
        wanted = [g.draw.integer(1, 3), *wanted]
    if g.draw.chance(0.2):  # a shorter shape, or ones where the value is longer
        wanted = [1 if g.draw.chance(0.3) else d for d in wanted]
    return g.emit(name, v, g.ints(wanted))


@generates("Tile")
def tile(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), where=lambda v: v.size <= 600)
    if g.opset < 6:
        axis = g.draw.integer(0, max(v.rank - 1, 0))
        count, at = (g.constant(np.asarray([n], v.dtype.numpy)) for n in (2, axis))
        return g.emit(name, v, count, at)
    return g.emit(name, v, g.ints([g.draw.pick([1, 1, 2, 3]) for _ in v.shape]))


@generates("Concat")
def concat(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 6), where=lambda v: v.size <= 2500)
    axis = some_axis(g, v.rank)
    at = axis % v.rank
    parts = [v]
    for _ in range(g.draw.integer(0, 3)):
        fitting = [u for u in g.visible()[-30:] if u.dtype == v.dtype and _joins(u, v, at)]
        if fitting and g.draw.chance(0.7):
            parts.append(g.draw.pick(fitting))
        else:
            extent = g.shape(1, extent=17)[0]
            parts.append(g.fresh(v.dtype, (*v.shape[:at], extent, *v.shape[at + 1 :])))
    axis = axis if g.opset >= 11 else at
    return g.emit(name, *g.draw.shuffled(parts), axis=axis)


def _joins(a: Held, b: Held, axis: int) -> bool:
    """Whether two values agree in all extents but one."""
    pairs = enumerate(zip(a.shape, b.shape))
    return a.rank == b.rank and all(x == y or n == axis for n, (x, y) in pairs)


@generates("Split")
def split(g: Growth, name: str) -> Held | list[Held]:
    if g.draw.chance(0.4):
        return parts_of_contraction(g)
    v = g.tensor(g.types(name), rank=range(1, 6), where=lambda v: max(v.shape) > 1)
    axis = g.draw.pick([n for n, d in enumerate(v.shape) if d > 1])
    extent = v.shape[axis]
    count = g.draw.integer(1, min(extent, 4))
    at = axis - v.rank if g.opset >= 11 and g.draw.chance(0.3) else axis
    if extent % count == 0 and g.draw.chance(0.3):
        number = count if g.opset >= 18 else None
        return g.emit(name, v, outputs=count, axis=at, num_outputs=number)
    if g.opset >= 18 and -(-extent // count) * (count - 1) < extent and g.draw.chance(0.3):
        return g.emit(name, v, outputs=count, axis=at, num_outputs=count)  # the last is shorter
    cuts = sorted(g.draw.integer(0, extent) for _ in range(count - 1))
    sizes = [int(b - a) for a, b in zip([0, *cuts], [*cuts, extent])]
    if 0 in sizes and not g.empty:
        raise Impossible
    if g.opset < 13:
        return g.emit(name, v, outputs=count, axis=at, split=sizes)
    return g.emit(name, v, g.ints(sizes), outputs=count, axis=at)


# -------------------------------------------------------------------------------------- slices
def drawn_bounds(g: Growth, extent: int) -> tuple[int, int, int]:
    """Start, end and step: forwards or backwards, sometimes from beyond the ends."""
    step = g.draw.pick([1, 1, 1, 1, 2, 3, -1, -1, -1, -2])
    low = g.draw.pick([0, 0, g.draw.integer(0, max(extent - 1, 0))])
    high = g.draw.pick([extent, extent, g.draw.integer(low, extent)])
    if high == low and not g.empty:
        high = min(low + 1, extent)
    start, end = (low, high) if step > 0 else (high - 1, low - 1)
    if step < 0 and end < 0:
        end = -(1 << 40)
    if step < 0 and start < 0:
        start = 0
    if step > 0 and end == extent and g.draw.chance(0.3):
        end = (1 << 62) if g.draw.chance(0.5) else extent + 3
    if 0 < start < extent and g.draw.chance(0.2):
        start -= extent
    if step > 0 and 0 < end < extent and g.draw.chance(0.2):
        end -= extent
    return start, end, step


@generates("Slice")
def slice_(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 6))
    axes = g.draw.some(range(v.rank), 0.5) or [g.draw.integer(0, v.rank - 1)]
    return sliced(g, v, axes, [drawn_bounds(g, v.shape[a]) for a in axes])


def sliced(g: Growth, v: Held, axes: Sequence[int], bounds: Sequence[tuple[int, int, int]]) -> Held:
    """The part of a value between bounds on some axes."""
    starts, ends, steps = (list(x) for x in zip(*bounds))
    if g.opset < 10:
        steps = [1] * len(axes)
        pairs = [(s, e) if t > 0 else (0, 1 << 40) for s, e, t in bounds]
        starts, ends = ([p[k] for p in pairs] for k in (0, 1))
        return g.emit("Slice", v, starts=starts, ends=ends, axes=list(axes))
    if not g.empty:
        kept = tuple(
            len(range(*slice(s, e, t).indices(v.shape[a]))) for a, (s, e, t) in zip(axes, bounds)
        )
        if 0 in kept and v.size:
            raise Impossible
    dtype = g.draw.pick([i64, i64, i32])
    if dtype == i32:
        limit = (1 << 31) - 1
        starts, ends = ([max(min(x, limit), -limit) for x in xs] for xs in (starts, ends))
    signed = [a - v.rank if g.draw.chance(0.3) else a for a in axes]
    whole = list(axes) == list(range(len(axes))) and g.draw.chance(0.3)
    plain = all(s == 1 for s in steps) and g.draw.chance(0.5)
    return g.emit(
        "Slice", v, g.ints(starts, dtype), g.ints(ends, dtype),
        None if whole else g.ints(signed, dtype), None if plain else g.ints(steps, dtype),
    )  # fmt: skip


# ------------------------------------------------------------------------------------- borders
@generates("Pad")
def pad(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 6), where=lambda v: v.size <= 2500)
    modes = ["constant", "constant", "reflect", "edge"] + (["wrap"] if g.opset >= 19 else [])
    mode = g.draw.pick(modes)
    widths = []
    for extent in (*v.shape, *v.shape):
        most = 3 if mode == "constant" else min(3, extent - 1 if mode == "reflect" else extent)
        low = -min(1, extent - 1) if g.draw.chance(0.2) else 0
        widths.append(g.draw.pick([0, g.draw.integer(min(low, max(most, 0)), max(most, 0))]))
    if (mode == "reflect" and min(v.shape) < 2) or 0 in v.shape:
        widths = [max(w, 0) if mode == "constant" else 0 for w in widths]
    if min(widths) < 0 and mode != "constant":
        widths = [max(w, 0) for w in widths]
    value = np.asarray(g.draw.integer(0, 4)).astype(v.dtype.numpy)
    if g.opset < 11:
        number = float(value) if mode == "constant" and g.draw.chance(0.5) else None
        return g.emit(name, v, mode=mode, pads=widths, value=number)
    fill = g.operand(value) if mode == "constant" and g.draw.chance(0.5) else None
    if g.opset >= 18 and g.draw.chance(0.3):
        axes = [n for n in range(v.rank) if widths[n] or widths[v.rank + n]] or [0]
        some = [widths[n] for n in axes] + [widths[v.rank + n] for n in axes]
        return g.emit(name, v, g.ints(some), fill, g.ints(axes), mode=mode)
    return g.emit(name, v, g.ints(widths), fill, mode=mode)


@generates("CenterCropPad")
def center_crop_pad(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 5), where=lambda v: v.size <= 1000)
    axes = g.draw.some(range(v.rank), 0.6) or [0]
    wanted = [max(1, v.shape[a] + g.draw.integer(-3, 3)) for a in axes]
    if len(axes) == v.rank and g.draw.chance(0.5):
        return g.emit(name, v, g.ints(wanted))
    return g.emit(name, v, g.ints(wanted), axes=axes)


@generates("Trilu")
def trilu(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(2, 6))
    k = None if g.draw.chance(0.4) else g.ints(g.draw.integer(-4, 4))
    return g.emit(name, v, k, upper=g.draw.pick([None, 0, 1]))
