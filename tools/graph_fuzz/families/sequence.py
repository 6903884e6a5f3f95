"""Sequences and optionals: made, changed and taken apart again."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tools.graph_fuzz.families.subgraphs import grow_body
from tools.graph_fuzz.growth import Growth, Held, Opaque
from tools.graph_fuzz.registry import generates
from tools.graph_fuzz.schemas import TO_ONNX
from whet.core.dtypes import f32


def _items(g: Growth, count: int) -> list[Held]:
    first = g.tensor([d for d in g.types("SequenceConstruct") if d.bits >= 8])
    return [first, *(g.same(first.dtype, first.shape) for _ in range(count - 1))]


def _construct(g: Growth, count: int) -> tuple[Opaque, Held]:
    items = _items(g, count)
    return g.emit("SequenceConstruct", *items), items[0]


def _position(g: Growth, count: int) -> Held:
    return g.constant(np.asarray(g.draw.integer(-count, count - 1), np.int64))


def _taken(g: Growth, sequence: Opaque, count: int) -> Held:
    """A tensor of the sequence, or all of them joined."""
    way = g.draw.pick(["at", "at", "concat", "length"])
    if way == "at":
        return g.emit("SequenceAt", sequence, _position(g, count))
    if way == "concat":
        return g.emit("ConcatFromSequence", sequence, axis=0, new_axis=1)
    return g.emit("SequenceLength", sequence)


@generates("SequenceConstruct", "SequenceAt", "SequenceLength", "ConcatFromSequence")
def construct(g: Growth, name: str) -> Held:
    count = g.draw.integer(1, 3)
    sequence, first = _construct(g, count)
    if name == "SequenceConstruct":
        return _taken(g, sequence, count)
    if name == "SequenceLength":
        return g.emit(name, sequence)
    if name == "SequenceAt":
        return g.emit(name, sequence, _position(g, count))
    joined = first.rank > 0 and g.draw.chance(0.5)
    return g.emit(name, sequence, axis=g.draw.integer(0, first.rank - 1) if joined else 0,
                  new_axis=0 if joined else 1)  # fmt: skip


@generates("SequenceEmpty", "SequenceInsert")
def insert(g: Growth, name: str) -> Held:
    if name == "SequenceEmpty":
        v = g.tensor((f32,))
        sequence = g.emit(name, dtype=g.draw.pick([None, TO_ONNX[f32]]))
        return _taken(g, g.emit("SequenceInsert", sequence, v), 1)
    count = g.draw.integer(1, 3)
    sequence, first = _construct(g, count)
    at = _position(g, count) if g.draw.chance(0.6) else None
    longer = g.emit(name, sequence, g.same(first.dtype, first.shape), at)
    return _taken(g, longer, count + 1)


@generates("SequenceErase")
def erase(g: Growth, name: str) -> Held:
    count = g.draw.integer(2, 4)
    sequence, _ = _construct(g, count)
    at = _position(g, count) if g.draw.chance(0.6) else None
    return _taken(g, g.emit(name, sequence, at), count - 1)


@generates("SplitToSequence")
def split_to_sequence(g: Growth, name: str) -> Held:
    v = g.tensor(g.types(name), rank=range(1, 5), where=lambda v: v.size > 0)
    axis = g.draw.integer(0, v.rank - 1)
    extent = v.shape[axis]
    way = g.draw.pick(["ones", "size", "sizes"])
    if way == "ones":
        parts = g.emit(name, v, axis=axis, keepdims=g.draw.pick([None, 0, 1]))
        return g.emit("SequenceAt", parts, _position(g, extent))
    if way == "size":
        size = g.draw.integer(1, extent)
        parts = g.emit(name, v, g.ints(size), axis=axis)
        return g.emit("SequenceAt", parts, _position(g, -(-extent // size)))
    cut = g.draw.integer(1, extent)
    sizes = [cut, extent - cut] if cut < extent else [extent]
    parts = g.emit(name, v, g.ints(sizes), axis=axis)
    return g.emit("SequenceAt", parts, _position(g, len(sizes)))


@generates("SequenceMap")
def sequence_map(g: Growth, name: str) -> Held:
    count = g.draw.integer(1, 3)
    sequence, first = _construct(g, count)
    body = grow_body(g, [first.array], give=1)
    del body.graph.input[1:]
    return _taken(g, g.emit(name, sequence, body=body.graph), count)


@generates("Optional", "OptionalGetElement", "OptionalHasElement")
def optional(g: Growth, name: str) -> Held:
    v = g.tensor([d for d in g.types("Optional", "V") if d.bits >= 8])
    declared = helper.make_tensor_type_proto(TO_ONNX[v.dtype], v.shape)
    if name == "OptionalHasElement" and g.draw.chance(0.3):
        return g.emit(name, g.emit("Optional", type=declared))
    held = g.emit("Optional", v)
    if name == "OptionalHasElement":
        return g.emit(name, held)
    return g.emit("OptionalGetElement", held)
