"""Windows that slide over an image one plane at a time: depthwise convolutions and pools.

    y[c, i, j] = sum(select(0 <= 2 * i + p - 1 and ..., x[c, 2 * i + p - 1, 2 * j + q - 1], 0.0)
                     * w[c, p, q] for p in 3, q in 3)

is a window on the axes i and j with step 2 and taps from -1 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.ir.affine import Affine, affine, free_symbols, interval
from whet.ir.expr import Axis, Binary, Cast, Const, Expr, Read, Reduce, Select
from whet.ir.tensor import Compute, Tensor, subexpressions
from whet.tasks.guards import conjuncts, is_bounds_check, zero_annihilates

WIDEST_BORDER = 8
"""Columns beside an image that fit between two rows of a copy of it, whatever the lanes."""
LONGEST_STEP = 2
"""Neighbouring windows up to this far apart are read as vectors."""

MOST_SLIDES = 2
"""Axes along which windows are read in place: down and across."""


@dataclass(frozen=True, eq=False)
class Slide:
    """An index step * axis + tap, where the tap depends on reduced axes alone."""

    dim: int
    axis: Axis
    step: int
    tap: Expr
    low: int
    high: int
    """The smallest and the largest tap."""

    def beside(self, extent: int) -> int:
        """The steps by which windows leave an image of this extent on either side."""
        last = self.axis.extent - 1 + self.high // self.step
        return max(0, -(self.low // self.step), last - extent // self.step + 1)

    def starts(self, size: int) -> list[int]:
        """The starts of tiles of `size` positions; the last is moved back to end at the edge."""
        width = self.axis.extent
        return [max(0, min(k * size, width - size)) for k in range(-(-width // size))]

    def ends(self, size: int, extent: int) -> tuple[int, int]:
        """The number of tiles at either end that see more than an image of this extent."""
        starts = self.starts(size)
        left = sum(x * self.step + self.low < 0 for x in starts)
        right = sum((x + size - 1) * self.step + self.high >= extent for x in starts)
        return left, right

    def middle(self, size: int, extent: int) -> tuple[int, int]:
        """The first of the tiles that lie inside, and how many there are."""
        left, right = self.ends(size, extent)
        return left, max(0, -(-self.axis.extent // size) - left - right)


@dataclass(frozen=True, eq=False)
class Window:
    """The one read of an image, what stands for it outside, and how its indices slide."""

    read: Read
    place: Expr
    """The read together with its guard."""
    outside: Const | None
    slides: tuple[Slide, ...]

    def along(self, axis: Axis | None) -> Slide | None:
        """The way the window slides along an axis, if vectors along it can be read from a copy."""
        found = next((s for s in self.slides if s.axis is axis), None)
        if found is None or len(self.slides) > MOST_SLIDES or found.step > LONGEST_STEP:
            return None
        beside = found.beside(self.read.tensor.shape[found.dim])
        return found if beside <= WIDEST_BORDER else None


def sliding_window(stage: Compute) -> Window | None:
    """The window of a stage, if its reduction runs over the positions of one window alone."""
    reduces = [e for e in subexpressions(stage.body) if isinstance(e, Reduce)]
    if len(reduces) != 1 or reduces[0].kind.startswith("arg"):
        return None
    value = reduces[0].value
    guards = [e for e in subexpressions(value) if isinstance(e, Select)]
    if len(guards) > 1 or any(not _checks_bounds(g) for g in guards):
        return None
    for e in subexpressions(value):
        if isinstance(e, Read) and (not guards or e is guards[0].then):
            place = guards[0] if guards else e
            slides = _slides(e, stage, reduces[0])
            if slides and _only_read(e, stage):
                outside = guards[0].other if guards else None
                assert outside is None or isinstance(outside, Const)
                return Window(e, place, outside, slides)
    return None


def slides_along_rows(stage: Compute) -> bool:
    """True when lanes can run along the last axis of both the image and the result."""
    window = sliding_window(stage)
    longer = [a for a in stage.axes if a.extent > 1]
    if window is None or not longer:
        return False
    slide = window.along(longer[-1])
    return slide is not None and all(d == 1 for d in window.read.tensor.shape[slide.dim + 1 :])


def slides_over_vectors(stage: Compute, tensor: Tensor, lanes: int, along: int) -> bool:
    """True when the window slides over pixels that are vectors, and needs no zeros around them.

    Lanes run along axis `lanes` of the tensor and axis `along` of the result.
    """
    window = sliding_window(stage)
    if window is None or window.read.tensor is not tensor or len(window.slides) > MOST_SLIDES:
        return False
    fixed = window.read.indices[lanes] is stage.axes[along]
    one_axis = all(only_axis(s.tap) is not None for s in window.slides)
    return fixed and one_axis and outside_adds_nothing(window, stage)


def outside_adds_nothing(window: Window, stage: Compute) -> bool:
    """True for a sum of products with the image, which is 0 outside; other factors are finite."""
    (reduce,) = [e for e in subexpressions(stage.body) if isinstance(e, Reduce)]
    zero = window.outside is None or window.outside.value == 0
    product = reduce.kind == "sum" and _is_product_with(window.place, reduce.value)
    return zero and product and zero_annihilates(reduce.value)


def _is_product_with(factor: Expr, value: Expr) -> bool:
    match value:
        case Binary(op="mul", left=left, right=right):
            return _is_product_with(factor, left) or _is_product_with(factor, right)
        case Cast(value=inner):
            return _is_product_with(factor, inner)
    return value is factor


def only_axis(tap: Expr) -> Axis | None:
    """The one axis that a tap depends on; None if there are several."""
    axes = [a for a in free_symbols(tap) if isinstance(a, Axis) and a.extent > 1]
    return axes[0] if len(axes) == 1 else None


def _checks_bounds(e: Select) -> bool:
    return (
        isinstance(e.then, Read)
        and isinstance(e.other, Const)
        and all(is_bounds_check(c, e.then) for c in conjuncts(e.condition))
    )


def _only_read(read: Read, stage: Compute) -> bool:
    others = [e for e in subexpressions(stage.body) if isinstance(e, Read) and e is not read]
    return all(e.tensor is not read.tensor for e in others)


def _slides(read: Read, stage: Compute, reduce: Reduce) -> tuple[Slide, ...]:
    """The way the indices slide; nothing unless all reduced axes belong to such an index."""
    extents: dict[Expr, int] = {a: a.extent for a in (*stage.axes, *reduce.axes)}
    found: list[Slide] = []
    for dim, index in enumerate(read.indices):
        symbols = {a for a in free_symbols(index) if isinstance(a, Axis) and a.extent > 1}
        moved = symbols & set(reduce.axes)
        if not moved:
            bounds = interval(index, extents)
            if bounds is None or bounds[0] < 0 or bounds[1] >= read.tensor.shape[dim]:
                return ()
            continue
        slide = _slide(dim, affine(index), symbols - moved, extents)
        if slide is None:
            return ()
        found.append(slide)
    axes = [s.axis for s in found]
    taken = [a for s in found for a in free_symbols(s.tap) if isinstance(a, Axis)]
    complete = {a for a in reduce.axes if a.extent > 1} <= set(taken)
    apart = len(taken) == len(set(taken)) and len(axes) == len(set(axes))
    fixed = [i for n, i in enumerate(read.indices) if n not in {s.dim for s in found}]
    still = not any(a in free_symbols(i) for a in axes for i in fixed)
    return tuple(found) if complete and apart and still else ()


def _slide(dim: int, form: Affine, moving: set[Axis], extents: dict[Expr, int]) -> Slide | None:
    if len(moving) != 1:
        return None
    (axis,) = moving
    step = form.coefficient(axis)
    tap = Affine(tuple(t for t in form.terms if t[0] is not axis), form.constant).expr()
    bounds = interval(tap, extents)
    if step < 1 or axis in free_symbols(tap) or bounds is None or axis.role != "S":
        return None
    return Slide(dim, axis, step, tap, *bounds)
