"""Reading and writing by index, and choosing by value."""

from __future__ import annotations

import math

import numpy as np

from tools.graph_fuzz.families.movement import some_axis
from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates
from whet.core.dtypes import bool_, i32, i64
from whet.core.types import Array, Shape

NUMBERS = ["add", "mul", "min", "max"]


def indices(g: Growth, extent: int, shape: Shape, *, dtype: np.dtype | None = None) -> Array:
    """Places on an axis, some of them counted from its end."""
    if not extent:
        raise Impossible
    low = -extent if g.opset >= 11 and g.draw.chance(0.3) else 0
    kind = dtype or g.draw.pick([i32.numpy, i64.numpy])
    return g.draw.rng.integers(low, extent, shape).astype(kind)


def _index(g: Growth, array: Array) -> Held:
    """Indices as a value that is there where one fits, else as a new one."""
    return g.operand(array, 0.5)


@generates("Gather")
def gather(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 6), where=lambda v: v.size <= 2500)
    axis = some_axis(g, v.rank)
    extent = v.shape[axis]
    index = indices(g, extent, g.shape(g.draw.pick([0, 1, 1, 2]), extent=7))
    if g.draw.chance(0.2) and index.ndim == 1:  # in a row, which is a slice
        index = np.arange(g.draw.integer(1, extent), dtype=index.dtype)[:: g.draw.pick([1, -1])]
    return g.emit(name, v, _index(g, index), axis=axis)


@generates("GatherElements")
def gather_elements(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 5))
    axis = some_axis(g, v.rank)
    at = axis % v.rank
    shape = tuple(g.draw.integer(1, 8) if n == at else g.draw.integer(min(1, d), d)
                  for n, d in enumerate(v.shape))  # fmt: skip
    return g.emit(name, v, _index(g, indices(g, v.shape[axis], shape)), axis=axis)


def _tuples(g: Growth, shape: Shape, count: Shape) -> Array:
    """One index per axis of `shape` in the last axis."""
    parts = [indices(g, d, count, dtype=np.dtype(np.int64)) for d in shape]
    return np.stack(parts, -1)


@generates("GatherND")
def gather_nd(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 5))
    batch = g.draw.integer(0, min(v.rank - 1, 2)) if g.opset >= 12 and g.draw.chance(0.4) else 0
    depth = g.draw.integer(1, v.rank - batch)
    count = (*v.shape[:batch], *g.shape(g.draw.integer(0, 2), extent=5))
    index = _tuples(g, v.shape[batch : batch + depth], count)
    return g.emit(name, v, _index(g, index), batch_dims=batch or None)


@generates("OneHot")
def one_hot(g: Growth, name: str) -> Held:
    depth = g.draw.integer(1, 9)
    kinds = [d for d in g.types(name, "T1") if d in (i32, i64)]
    shape = g.shape(g.draw.integer(0, 3), most=300)
    index = g.draw.rng.integers(-depth - 1, depth + 2, shape).astype(g.draw.pick(kinds).numpy)
    values = g.array(g.dtype(g.types(name, "T3")), (2,))
    axis = g.draw.pick([None, g.draw.integer(-index.ndim - 1, index.ndim)])
    return g.emit(name, g.operand(index), g.ints([depth] if g.draw.chance(0.5) else depth),
                  g.operand(values), axis=axis)  # fmt: skip


@generates("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name, "T", "ai.onnx.ml"), rank=range(1, 4), where=lambda v: v.size > 0)
    chosen = g.draw.rng.integers(0, v.shape[-1], (1, g.draw.integer(1, 5))).astype(np.int64)
    return g.emit(name, v, g.operand(chosen), domain="ai.onnx.ml")


# ------------------------------------------------------------------------------------- scatter
def _reduction(g: Growth, v: Held, since: int) -> str | None:
    if g.opset < since or g.draw.chance(0.4):
        return None
    most = len(NUMBERS) if g.opset >= 18 else 2
    return "none" if v.dtype == bool_ else g.draw.pick(NUMBERS[:most])


@generates("ScatterElements", "Scatter")
def scatter_elements(g: Growth, name: str) -> Held:
    """Without a reduction no place is written twice: the order would matter."""
    v = g.tensor(g.types(name), rank=range(1, 5), where=lambda v: v.size > 0)
    axis = some_axis(g, v.rank)
    at = axis % v.rank
    reduction = _reduction(g, v, 16) if name == "ScatterElements" else None
    shape = tuple(g.draw.integer(1, d) for d in v.shape)
    if reduction in (None, "none"):
        order = g.draw.rng.random((*shape[:at], v.shape[at], *shape[at + 1 :])).argsort(at)
        index = np.take(order, np.arange(shape[at]), at)
        if g.opset >= 11:
            index = np.where(g.draw.rng.random(index.shape) < 0.2, index - v.shape[at], index)
    else:
        index = indices(g, v.shape[at], shape)
    index = index.astype(g.draw.pick([i32, i64]).numpy)
    return g.emit(name, v, _index(g, index), g.same(v.dtype, shape), axis=axis,
                  reduction=reduction)  # fmt: skip


@generates("ScatterND")
def scatter_nd(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 5), where=lambda v: v.size > 0)
    depth = g.draw.integer(1, v.rank)
    reduction = _reduction(g, v, 16)
    places = math.prod(v.shape[:depth])
    count = g.draw.integer(1, min(6, places))
    if reduction in (None, "none"):
        chosen = g.draw.rng.permutation(places)[:count]
    else:
        chosen = g.draw.rng.integers(0, places, count)
    index = np.stack(np.unravel_index(chosen, v.shape[:depth]), -1).astype(np.int64)
    updates = g.same(v.dtype, (count, *v.shape[depth:]))
    return g.emit(name, v, _index(g, index), updates, reduction=reduction)


@generates("TensorScatter")
def tensor_scatter(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(3, 5), where=lambda v: v.size > 0)
    axis = g.draw.pick([None, *range(1, v.rank - 1)])
    at = v.rank - 2 if axis is None else axis
    length = g.draw.integer(1, v.shape[at])
    circular = g.draw.chance(0.4)
    most = v.shape[at] - (1 if circular else length)
    starts = g.draw.rng.integers(0, most + 1, v.shape[0]).astype(np.int64)
    update = g.same(v.dtype, (*v.shape[:at], length, *v.shape[at + 1 :]))
    given = g.operand(starts) if g.draw.chance(0.8) else None
    return g.emit(name, v, update, given, axis=axis, mode="circular" if circular else None)


# -------------------------------------------------------------------------------------- choose
@generates("TopK")
def top_k(g: Growth, name: str) -> list[Held]:
    v = g.tensor(g.types(name), rank=range(1, 5), where=lambda v: v.size > 0)
    axis = some_axis(g, v.rank)
    k = g.draw.integer(1, v.shape[axis])
    axis = axis if g.opset >= 11 else axis % v.rank
    if g.opset < 10:
        return g.emit(name, v, outputs=2, k=k, axis=axis)
    largest = g.draw.pick([None, 0, 1]) if g.opset >= 11 else None
    return g.emit(name, v, g.ints([k]), outputs=2, axis=axis, largest=largest)


@generates("ReverseSequence")
def reverse_sequence(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(2, 5), where=lambda v: v.size > 0)
    time = g.draw.integer(0, 1)
    lengths = g.draw.rng.integers(1, v.shape[time] + 1, v.shape[1 - time]).astype(np.int64)
    return g.emit(name, v, g.operand(lengths), time_axis=time, batch_axis=1 - time)
