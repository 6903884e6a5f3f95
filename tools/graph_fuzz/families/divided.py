"""Contractions whose result is split, with what becomes of the parts."""

from __future__ import annotations

from tools.graph_fuzz.growth import Growth, Held, Impossible
from whet.core.dtypes import f32

MOST_TERMS = 1 << 16
"""Products of numbers in one contraction."""


def parts_of_contraction(g: Growth) -> list[Held]:
    """Columns of a product or channels of a convolution in parts, mostly of whole vectors."""
    is_image = g.draw.chance(0.5)
    x = g.tensor([f32], rank=4 if is_image else [2, 3], where=lambda v: 0 < v.size <= 600)
    axis = 1 if is_image else x.rank - 1
    unit, depth = g.draw.pick([16, 16, 16, 8, 4, 3]), x.shape[axis]
    sizes = [unit * g.draw.integer(1, 3) for _ in range(g.draw.integer(2, 3))]
    columns = sum(sizes)
    if x.size * columns > MOST_TERMS:
        raise Impossible
    if is_image:
        weights = g.scaled(f32, (columns, depth, 1, 1), depth)
        whole = g.emit("Conv", x, weights, kernel_shape=[1, 1])
    else:
        whole = g.emit("MatMul", x, g.scaled(f32, (depth, columns), depth))
    count = len(sizes)
    if g.opset < 13:
        made = g.emit("Split", whole, outputs=count, axis=axis, split=sizes)
    else:
        made = g.emit("Split", whole, g.ints(sizes), outputs=count, axis=axis)
    return [_finished(g, part, axis) for part in made]


def _finished(g: Growth, part: Held, axis: int) -> Held:
    """The part as it is, or after a bias, an activation or a window with zeros around."""
    if g.draw.chance(0.5):
        shape = tuple(d if n == axis else 1 for n, d in enumerate(part.shape))
        part = g.emit("Add", part, g.same(f32, shape))
    if g.draw.chance(0.5):
        part = g.emit(g.draw.pick(["Relu", "Sigmoid", "Tanh"]), part)
    if axis == 1 and part.rank == 4 and part.size <= 2000 and g.draw.chance(0.3):
        channels = part.shape[1]
        weights = g.scaled(f32, (g.draw.pick([3, 8, 16]), channels, 3, 3), 9 * channels)
        part = g.emit("Conv", part, weights, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return part
