"""Sliding windows: the geometry that convolution and pooling share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.types import MAX_ELEMENTS, Array, Shape
from whet.ir.expr import Axis, Expr, Scalar, all_of, as_expr, const, equal, select
from whet.ir.tensor import Tensor, reduce_axis
from whet.ops.base import Op, require


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel extents with strides, padding and dilations, one entry per spatial axis.

    Output position o and kernel position k meet at input position
    o * stride + k * dilation - begin; `pads` lists the begins, then the ends.
    """

    kernel: Shape
    strides: Shape
    pads: Shape
    dilations: Shape

    def check(self, op: Op, spatial: Shape) -> None:
        """Raise an operator error unless there are sound entries for every spatial axis."""
        rank = len(spatial)
        lengths = (len(self.kernel), len(self.strides), len(self.dilations), len(self.pads) / 2)
        require(all(n == rank for n in lengths), op,
                f"kernel, strides, dilations and pads do not describe {rank} spatial axes",
                code="WH1104")  # fmt: skip
        require(min((*self.kernel, *self.strides, *self.dilations), default=1) >= 1, op,
                "kernel, strides and dilations must be positive", code="WH1104")  # fmt: skip
        require(min(self.pads, default=0) >= 0, op, f"negative pads {list(self.pads)}",
                code="WH1104")  # fmt: skip
        padded = [i + b + e for i, b, e in zip(spatial, self.begins, self.ends)]
        require(math.prod(padded) <= MAX_ELEMENTS, op, f"impossible pads {list(self.pads)}",
                code="WH1107")  # fmt: skip

    @property
    def begins(self) -> Shape:
        return self.pads[: len(self.kernel)]

    @property
    def ends(self) -> Shape:
        return self.pads[len(self.kernel) :]

    @property
    def spans(self) -> Shape:
        """Input positions from the first to the last that a window covers."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations))

    def outputs(self, op: Op, spatial: Shape, ceil_mode: bool = False) -> Shape:
        """The number of windows that fit along each axis.

        With `ceil_mode` the last window may run over the end, as long as it starts before
        the end padding.
        """
        found = []
        for i, s, b, e, span in zip(spatial, self.strides, self.begins, self.ends, self.spans):
            room = i + b + e - span
            count = (-(-room // s) if ceil_mode else room // s) + 1
            if ceil_mode and (count - 1) * s >= i + b:
                count -= 1
            require(count >= 1, op, f"a window of {span} does not fit into {i} + {b} + {e}")
            found.append(count)
        return tuple(found)

    def overrun(self, spatial: Shape, outputs: Shape) -> Shape:
        """The distance by which the last window ends behind the input's last element (negative: it
        ends before)."""
        return tuple(
            (o - 1) * s + span - b - i
            for i, o, s, b, span in zip(spatial, outputs, self.strides, self.begins, self.spans)
        )

    # ------------------------------------------------------------------------------- arrays
    def pad(self, x: Array, outputs: Shape, fill: float) -> Array:
        """The array with its last axes padded so that all windows lie inside."""
        spatial = x.shape[x.ndim - len(self.kernel) :]
        overrun = self.overrun(spatial, outputs)
        if not any(self.begins) and max(overrun, default=0) <= 0:
            return x
        border = [(b, max(e, 0)) for b, e in zip(self.begins, overrun)]
        lead = [(0, 0)] * (x.ndim - len(border))
        return np.pad(x, [*lead, *border], constant_values=fill)

    def taps(self, padded: Array, outputs: Shape) -> Iterator[Array]:
        """For each kernel position, in row-major order, what the windows see there."""
        for k in np.ndindex(self.kernel):
            lead = (slice(None),) * (padded.ndim - len(k))
            yield padded[(*lead, *self.positions(k, outputs))]

    def positions(self, k: Sequence[int], outputs: Shape) -> tuple[slice, ...]:
        """The places of kernel position k in the padded input, for all outputs."""
        return tuple(
            slice(i * d, i * d + (o - 1) * s + 1, s)
            for i, d, o, s in zip(k, self.dilations, outputs, self.strides)
        )

    def view(self, padded: Array, outputs: Shape) -> Array:
        """All windows as one view: [..., *kernel, *outputs]."""
        rank = len(self.kernel)
        lead = padded.ndim - rank
        steps = padded.strides[lead:]
        return np.lib.stride_tricks.as_strided(
            padded,
            (*padded.shape[:lead], *self.kernel, *outputs),
            (
                *padded.strides[:lead],
                *(step * d for step, d in zip(steps, self.dilations)),
                *(step * s for step, s in zip(steps, self.strides)),
            ),
            writeable=False,
        )

    def overlap_add(self, columns: Array, image: Shape) -> Array:
        """The reverse of `view`: [..., *kernel, *outputs] added up into [..., *image]."""
        rank = len(self.kernel)
        lead = columns.shape[: columns.ndim - 2 * rank]
        outputs = columns.shape[columns.ndim - rank :]
        overrun = self.overrun(image, outputs)
        extents = [b + i + max(e, 0) for b, i, e in zip(self.begins, image, overrun)]
        total = np.zeros((*lead, *extents), columns.dtype)
        every = (slice(None),) * len(lead)
        for k in np.ndindex(self.kernel):
            total[(*every, *self.positions(k, outputs))] += columns[(*every, *k)]
        return total[(*every, *(slice(b, b + i) for b, i in zip(self.begins, image)))]

    # -------------------------------------------------------------------------- expressions
    def kernel_indices(self) -> tuple[Expr, ...]:
        """One index per kernel axis: a reduction axis, or 0 where the extent is 1."""
        return tuple(reduction(extent, f"k{n}") for n, extent in enumerate(self.kernel))

    def read(
        self,
        x: Tensor,
        lead: Sequence[Scalar],
        o: Sequence[Axis],
        k: Sequence[Expr],
        fill: float | int,
    ) -> Expr:
        """x where output o and kernel position k meet, or `fill` in the padding."""
        at = self.meeting(o, k)
        return select(self.inside(x.shape[len(lead) :], o, at), x[(*lead, *at)],
                      const(fill, x.dtype))  # fmt: skip

    def meeting(self, o: Sequence[Expr], k: Sequence[Expr]) -> list[Expr]:
        """The input position that output o sees at kernel position k."""
        return [
            i * s + j * d - b
            for i, j, s, d, b in zip(o, k, self.strides, self.dilations, self.begins)
        ]

    def inside(self, spatial: Shape, o: Sequence[Axis], at: Sequence[Expr]) -> Expr:
        """Whether a position lies in the input; only bounds that can be crossed are tested."""
        overrun = self.overrun(spatial, tuple(i.extent for i in o))
        tests: list[Expr] = []
        for index, extent, begin, over in zip(at, spatial, self.begins, overrun):
            if begin > 0:
                tests.append(as_expr(0) <= index)
            if over > 0:
                tests.append(index < extent)
        return all_of(tests)

    def source(
        self, outputs: Shape, at: Sequence[Expr], k: Sequence[Expr]
    ) -> tuple[Expr, list[Expr]]:
        """Which output sees image position `at` at kernel position k: (whether any, which).

        The reverse of `meeting`: at + begin - k * dilation must be a multiple of the stride.
        """
        tests: list[Expr] = []
        found: list[Expr] = []
        for i, j, s, d, b, count in zip(
            at, k, self.strides, self.dilations, self.begins, outputs, strict=True
        ):
            distance = i + b - j * d
            o = distance // s
            tests += [equal(distance % s, 0), as_expr(0) <= o, o < count]
            found.append(o)
        return all_of(tests), found


def reduction(extent: int, name: str) -> Expr:
    """A reduction axis, or the index 0 where there is nothing to reduce."""
    return as_expr(0) if extent == 1 else reduce_axis(extent, name)


def reduction_axes(*indices: Expr) -> tuple[Axis, ...]:
    """Those of the indices that are axes."""
    return tuple(i for i in indices if isinstance(i, Axis))
