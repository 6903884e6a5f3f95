"""Sequences and optionals: they exist only while a model is imported.

A sequence is a tuple of values, an optional is its element or None; so these operators leave
nothing in the graph but the concatenations and splits between sequences and tensors.
"""

from __future__ import annotations

from whet.core.dtypes import bool_, i64
from whet.frontend.onnx.mapping import Context, Converted, maps, normalized_axis
from whet.graph.graph import Value
from whet.ops.movement import Concat, Reshape, Split

MAX_ITEMS = 4096
"""A longer sequence would only be a way to write an endless graph."""


@maps("SequenceEmpty")
def sequence_empty(c: Context) -> Converted:
    return ((),)


@maps("SequenceConstruct")
def sequence_construct(c: Context) -> Converted:
    return (tuple(c.input(n) for n in range(len(c.inputs))),)


def _position(c: Context, index: int, length: int, *, end: bool = False) -> int:
    """The place in a sequence that an input names; `end` allows the place behind the last."""
    position = c.const_int(index)
    limit = length + 1 if end else length
    if not -length <= position < limit:
        c.unsupported(f"position {position} is outside a sequence of {length} items")
    return position + length if position < 0 else position


@maps("SequenceAt")
def sequence_at(c: Context) -> Converted:
    items = c.sequence(0)
    return items[_position(c, 1, len(items))]


@maps("SequenceInsert")
def sequence_insert(c: Context) -> Converted:
    items = c.sequence(0)
    at = len(items) if c.optional(2) is None else _position(c, 2, len(items), end=True)
    return ((*items[:at], c.input(1), *items[at:]),)


@maps("SequenceErase")
def sequence_erase(c: Context) -> Converted:
    items = c.sequence(0)
    at = len(items) - 1 if c.optional(1) is None else _position(c, 1, len(items))
    return (items[:at] + items[at + 1 :],)


@maps("SequenceLength")
def sequence_length(c: Context) -> Converted:
    return c.constant(len(c.sequence(0)), i64)


@maps("ConcatFromSequence")
def concat_from_sequence(c: Context) -> Converted:
    items = c.sequence(0)
    if not items:
        c.unsupported("an empty sequence cannot be concatenated")
    rank = items[0].tensor_type.rank
    if c.attr("new_axis", 0):
        axis = normalized_axis(c.attr("axis"), rank + 1)
        return stack(c, items, axis)
    return c(Concat(normalized_axis(c.attr("axis"), rank)), *items)


def stack(c: Context, items: tuple[Value, ...], axis: int) -> Value:
    """The items side by side along a new axis."""

    def widened(item: Value) -> Value:
        shape = item.tensor_type.shape
        return c(Reshape((*shape[:axis], 1, *shape[axis:])), item)

    return c(Concat(axis), *map(widened, items))


@maps("SplitToSequence")
def split_to_sequence(c: Context) -> Converted:
    shape = c.type(0).shape
    c.require_types(len(shape) > 0, "a scalar cannot be split")
    axis = normalized_axis(c.attr("axis", 0), len(shape))
    extent = shape[axis]
    if c.optional(1) is None:
        sizes: tuple[int, ...] = (1,) * extent if extent <= MAX_ITEMS else ()
    elif c.type(1).rank == 0:
        (chunk,) = c.const_ints(1)
        count = -(-extent // chunk) if chunk > 0 else MAX_ITEMS + 1
        sizes = tuple(min(chunk, extent - n * chunk) for n in range(min(count, MAX_ITEMS + 1)))
    else:
        sizes = c.const_ints(1)
    if not 0 < len(sizes) <= MAX_ITEMS or sum(sizes) != extent or min(sizes) < 0:
        c.unsupported(f"an axis of {extent} cannot be split this way")
    parts = c.results(Split(axis, sizes), c.input(0))
    if c.optional(1) is None and not c.attr("keepdims", 1):
        flat = (*shape[:axis], *shape[axis + 1 :])
        parts = tuple(c(Reshape(flat), part) for part in parts)
    return (parts,)


@maps("SequenceMap")
def sequence_map(c: Context) -> Converted:
    """The body is applied to item n of every sequence, and to the tensors as they are."""
    length = len(c.sequence(0))
    lists: list[list[Converted]] = [[] for _ in range(c.n_outputs)]
    for n in range(length):
        args = [v[n] if isinstance(v, tuple) and n < len(v) else v for v in c.inputs]
        for found, result in zip(lists, c.run_subgraph(c.attr("body"), args)):
            found.append(result)
    return tuple(tuple(items) for items in lists)


# ----------------------------------------------------------------------------------- optionals
@maps("Optional")
def optional(c: Context) -> Converted:
    return (c.inputs[0] if c.inputs else None,)


@maps("OptionalHasElement")
def optional_has_element(c: Context) -> Converted:
    return c.constant(bool(c.inputs) and c.inputs[0] is not None, bool_)


@maps("OptionalGetElement")
def optional_get_element(c: Context) -> Converted:
    if c.inputs[0] is None:
        c.unsupported("the optional has no element")
    return (c.inputs[0],)
