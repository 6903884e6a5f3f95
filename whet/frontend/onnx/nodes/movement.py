"""ONNX data movement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

from whet.core.types import broadcast_shapes
from whet.frontend.onnx.mapping import Context, maps, normalized_axis
from whet.graph.graph import Value
from whet.ops.fill import Pad, PadMode, Trilu
from whet.ops.movement import Concat, Expand, Reshape, Slice, Split, Tile, Transpose


@maps("Transpose")
def transpose(c: Context) -> Value:
    rank = c.type(0).rank
    return c(Transpose(tuple(c.attr("perm", reversed(range(rank))))), c.input(0))


# ------------------------------------------------------------------------------------ reshape
@maps("Reshape", since=5)
def reshape(c: Context) -> Value:
    return _reshape(c, c.const_ints(1))


@maps("Reshape")
def reshape_by_attribute(c: Context) -> Value:
    return _reshape(c, c.attr("shape"))


def _reshape(c: Context, wanted: Sequence[int]) -> Value:
    """`wanted` may keep an extent with 0 and leave one open with -1."""
    x = c.type(0)
    shape = list(wanted)
    for n, extent in enumerate(shape):
        if extent == 0 and not c.attr("allowzero", 0):
            if n >= x.rank:
                c.unsupported(f"shape {list(wanted)} keeps an axis that {x} does not have")
            shape[n] = x.shape[n]
    if shape.count(-1) > 1 or min(shape, default=0) < -1:
        c.unsupported(f"shape {list(wanted)} leaves more than one extent open")
    if -1 in shape:
        known = math.prod(d for d in shape if d != -1)
        if known == 0 or x.size % known:
            c.unsupported(f"shape {list(wanted)} does not divide {x}")
        shape[shape.index(-1)] = x.size // known
    return c(Reshape(tuple(shape)), c.input(0))


@maps("Flatten")
def flatten(c: Context) -> Value:
    x = c.type(0)
    axis = c.attr("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    shape = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    return c(Reshape(shape), c.input(0))


def _axes(c: Context, index: int, since: int) -> tuple[int, ...] | None:
    """The axes: an attribute in early opsets, later input number `index`; None if absent."""
    if c.opset < since:
        given = c.attr("axes")
        return None if given is None else tuple(given)
    return None if c.optional(index) is None else c.const_ints(index)


@maps("Squeeze")
def squeeze(c: Context) -> Value:
    x = c.type(0)
    given = _axes(c, 1, since=13)
    if given is None:
        removed = {n for n, d in enumerate(x.shape) if d == 1}
    else:
        removed = {normalized_axis(a, x.rank) for a in given}
    c.require(all(x.shape[a : a + 1] == (1,) for a in removed),
              f"axes {sorted(removed)} of {x} are not all of extent 1")  # fmt: skip
    return c(Reshape(tuple(d for n, d in enumerate(x.shape) if n not in removed)), c.input(0))


@maps("Unsqueeze")
def unsqueeze(c: Context) -> Value:
    x = c.type(0)
    given = _axes(c, 1, since=13)
    if given is None:
        c.unsupported("axes are missing")
    rank = x.rank + len(given)
    added = {normalized_axis(a, rank) for a in given}
    if len(added) != len(given):
        c.unsupported(f"axes {list(given)} repeat")
    extents = iter(x.shape)
    return c(Reshape(tuple(1 if n in added else next(extents) for n in range(rank))), c.input(0))


@maps("DepthToSpace")
def depth_to_space(c: Context) -> Value:
    n, depth, h, w, block = _image_blocks(c)
    channels = depth // (block * block)
    c.require(channels * block * block == depth, "blocks do not divide the depth")
    if c.choice("mode", "DCR", ("DCR", "CRD")) == "DCR":
        parts, order = (n, block, block, channels, h, w), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = (n, channels, block, block, h, w), (0, 1, 4, 2, 5, 3)
    blocks = c(Transpose(order), c(Reshape(parts), c.input(0)))
    return c(Reshape((n, channels, h * block, w * block)), blocks)


def _image_blocks(c: Context) -> tuple[int, int, int, int, int]:
    """The four extents of the input and the block size."""
    x, block = c.type(0), c.attr("blocksize")
    c.require(x.rank == 4 and block >= 1, f"blocks of {block} in {x}")
    n, channels, h, w = x.shape
    return n, channels, h, w, block


@maps("SpaceToDepth")
def space_to_depth(c: Context) -> Value:
    n, channels, h, w, block = _image_blocks(c)
    c.require(h % block == 0 and w % block == 0, "blocks do not divide the image")
    parts = (n, channels, h // block, block, w // block, block)
    depth_first = c.choice("mode", "DCR", ("DCR", "CRD")) == "DCR"
    order = (0, 3, 5, 1, 2, 4) if depth_first else (0, 1, 3, 5, 2, 4)
    blocks = c(Transpose(order), c(Reshape(parts), c.input(0)))
    return c(Reshape((n, channels * block * block, h // block, w // block)), blocks)


# ----------------------------------------------------------------------------- copies of parts
@maps("Expand")
def expand(c: Context) -> Value:
    return c(Expand(broadcast_shapes(c.type(0).shape, c.const_ints(1))), c.input(0))


@maps("Tile", since=6)
def tile(c: Context) -> Value:
    return c(Tile(c.const_ints(1)), c.input(0))


@maps("Tile")
def tile_one_axis(c: Context) -> Value:
    count, axis = c.const_int(1), normalized_axis(c.const_int(2), c.type(0).rank)
    repeats = tuple(count if n == axis else 1 for n in range(c.type(0).rank))
    return c(Tile(repeats), c.input(0))


@maps("Concat")
def concat(c: Context) -> Value:
    axis = normalized_axis(c.attr("axis", 1), c.type(0).rank)
    return c(Concat(axis), *(c.input(n) for n in range(len(c.inputs))))


@maps("Split")
def split(c: Context) -> tuple[Value, ...]:
    x = c.type(0)
    c.require(x.rank > 0, "a scalar has no axes")
    axis = normalized_axis(c.attr("axis", 0), x.rank)
    extent = x.shape[axis]
    sizes: Sequence[int] | None = c.attr("split")
    if c.optional(1) is not None:
        sizes = c.const_ints(1)
    if sizes is None:
        count = c.attr("num_outputs", c.n_outputs)
        c.require(count == c.n_outputs > 0 and (c.opset >= 18 or extent % count == 0),
                  f"axis {axis} of {x} does not divide into {count} equal parts")  # fmt: skip
        part = -(-extent // count)
        sizes = [max(0, min(part, extent - n * part)) for n in range(count)]
    return c.results(Split(axis, tuple(sizes)), c.input(0))


@maps("Slice", since=10)
def slice_by_inputs(c: Context) -> Value:
    axes = None if c.optional(3) is None else c.const_ints(3)
    steps = None if c.optional(4) is None else c.const_ints(4)
    return _slice(c, c.const_ints(1), c.const_ints(2), axes, steps)


@maps("Slice")
def slice_by_attributes(c: Context) -> Value:
    return _slice(c, c.attr("starts"), c.attr("ends"), c.attr("axes"), None)


def _slice(
    c: Context,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Value:
    x = c.type(0)
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    c.require(len(starts) == len(ends) == len(axes) == len(steps) <= x.rank and 0 not in steps,
              f"starts, ends, axes and steps do not fit {x}")  # fmt: skip
    kept = [range(d) for d in x.shape]
    for start, end, axis, step in zip(starts, ends, axes, steps):
        n = normalized_axis(axis, x.rank)
        kept[n] = _clamped_range(start, end, step, x.shape[n])
    return slice_ranges(c, c.input(0), kept)


def _clamped_range(start: int, end: int, step: int, extent: int) -> range:
    """The positions from start to end: negative bounds count from the end of the axis.

    Both are then clamped.  Backwards, a start before the axis becomes 0 where Python would
    keep nothing.
    """
    start, end = (b + extent if b < 0 else b for b in (start, end))
    if step > 0:
        return range(min(max(start, 0), extent), min(max(end, 0), extent), step)
    if extent == 0:
        return range(0)
    return range(min(max(start, 0), extent - 1), min(max(end, -1), extent - 1), step)


def slice_ranges(c: Context, x: Value, kept: Sequence[range]) -> Value:
    """The value restricted to these positions; itself when that is everything."""
    if all(k == range(d) for k, d in zip(kept, x.tensor_type.shape)):
        return x
    canonical = [k if len(k) else range(0) for k in kept]
    return c(
        Slice(
            tuple(k.start for k in canonical),
            tuple(k.stop for k in canonical),
            tuple(k.step for k in canonical),
        ),
        x,
    )


# ---------------------------------------------------------------------------------------- pad
@maps("Pad", since=11)
def pad_by_inputs(c: Context) -> Value:
    x = c.type(0)
    pads = c.const_ints(1)
    axes = range(x.rank) if c.optional(3) is None else c.const_ints(3)
    c.require(len(pads) == 2 * len(axes), f"{len(pads)} pads for {len(axes)} axes")
    befores, afters = [0] * x.rank, [0] * x.rank
    for n, axis in enumerate(axes):
        at = normalized_axis(axis, x.rank)
        befores[at], afters[at] = pads[n], pads[len(axes) + n]
    value = c.optional(2)
    if value is None:
        value = c.constant(0, x.dtype)
    return pad(c, c.input(0), befores, afters, _pad_mode(c), value)


@maps("Pad")
def pad_by_attributes(c: Context) -> Value:
    pads = c.attr("pads", c.attr("paddings"))
    half = len(pads) // 2
    c.require(half == c.type(0).rank, f"{len(pads)} pads for {c.type(0)}")
    value = c.constant(c.attr("value", 0.0), c.type(0).dtype)
    return pad(c, c.input(0), pads[:half], pads[half:], _pad_mode(c), value)


def _pad_mode(c: Context) -> PadMode:
    mode: PadMode = c.choice("mode", "constant", get_args(PadMode))
    return mode


def pad(
    c: Context,
    x: Value,
    befores: Sequence[int],
    afters: Sequence[int],
    mode: PadMode,
    value: Value,
) -> Value:
    """The value with a border; a negative width cuts off as much."""
    shape = x.tensor_type.shape
    kept = [
        range(min(max(-before, 0), d), max(d - max(-after, 0), 0))
        for d, before, after in zip(shape, befores, afters)
    ]
    inner = slice_ranges(c, x, kept)
    widths = tuple(max(w, 0) for w in (*befores, *afters))
    if not any(widths):
        return inner
    scalar = value if value.tensor_type.shape == () else c(Reshape(()), value)
    return c(Pad(widths, mode), inner, scalar)


@maps("CenterCropPad")
def center_crop_pad(c: Context) -> Value:
    x = c.type(0)
    axes, wanted = c.attr("axes", range(x.rank)), c.const_ints(1)
    c.require(len(axes) == len(wanted) <= x.rank, f"{len(wanted)} extents for {len(axes)} axes")
    target = list(x.shape)
    for axis, extent in zip(axes, wanted):
        target[normalized_axis(axis, x.rank)] = extent
    kept, befores, afters = [], [], []
    for old, new in zip(x.shape, target):
        surplus = max(old - new, 0)
        kept.append(range(surplus // 2, surplus // 2 + min(old, new)))
        missing = max(new - old, 0)
        befores.append(missing // 2)
        afters.append(missing - missing // 2)
    inner = slice_ranges(c, c.input(0), kept)
    return pad(c, inner, befores, afters, "constant", c.constant(0, x.dtype))


@maps("Trilu")
def trilu(c: Context) -> Value:
    k = 0 if c.optional(1) is None else c.const_int(1)
    limit = sum(c.type(0).shape[-2:])
    return c(Trilu(bool(c.attr("upper", 1)), max(-limit, min(limit, k))), c.input(0))
