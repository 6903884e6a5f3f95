"""Recurrences: one step, applied along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from whet.core.dtypes import f32
from whet.core.types import Array, TensorType
from whet.ops.arithmetic import Abs, Add
from whet.ops.base import Body, Builder, NoAlgebra, Sample, operator, require
from whet.ops.movement import Concat, Reshape, Slice
from whet.ops.shared.control import Control, op_body

MAX_FOLDED_STEPS = 4096
"""Longer scans of constants wait until they are run: importing a model must not take minutes."""


@operator("scan", "*values")
class Scan(Control):
    """Runs `body` `length` times.

    The values are `states` initial states, then one value for each of `input_axes`, of which
    every step sees one slice, then values that every step sees whole.  The body takes states,
    slices and whole values, and gives the next states and one slice for each of `output_axes`.
    Results are the last states and the slices put together.  A reversed input is read from its
    end, a reversed output is written from its end.
    """

    body: Body
    length: int
    states: int
    input_axes: tuple[int, ...] = ()
    output_axes: tuple[int, ...] = ()
    reverse_inputs: tuple[bool, ...] = ()
    reverse_outputs: tuple[bool, ...] = ()
    """Empty means that none is reversed."""

    @property
    def first_whole(self) -> int:
        return self.states + len(self.input_axes)

    @property
    def backward_inputs(self) -> tuple[bool, ...]:
        """For each scanned input, whether it is read from its end."""
        return self.reverse_inputs or (False,) * len(self.input_axes)

    @property
    def backward_outputs(self) -> tuple[bool, ...]:
        """For each output, whether it is written from its end."""
        return self.reverse_outputs or (False,) * len(self.output_axes)

    @property
    def is_kept(self) -> bool:
        return self.length > 1

    @property
    def folds(self) -> bool:
        return self.length <= MAX_FOLDED_STEPS

    def infer(self, *values: TensorType) -> tuple[TensorType, ...]:
        scanned = len(self.input_axes)
        for flags, axes in (
            (self.reverse_inputs, self.input_axes),
            (self.reverse_outputs, self.output_axes),
        ):
            require(len(flags) in (0, len(axes)), self, "a flag per scanned axis is needed",
                    code="WH1104")  # fmt: skip
        require(self.length >= 0 and 0 <= self.states <= len(values) - scanned, self,
                f"{self.states} states and {scanned} scanned inputs", *values,
                code="WH1101")  # fmt: skip
        seen = list(values)
        for n, axis in enumerate(self.input_axes, self.states):
            whole = values[n]
            require(0 <= axis < whole.rank and whole.shape[axis] == self.length, self,
                    f"axis {axis} of a scanned input is not {self.length} long", whole)  # fmt: skip
            seen[n] = whole.with_shape(_without(whole.shape, axis))
        require(tuple(seen) == self.body.input_types, self,
                f"the body takes {', '.join(map(str, self.body.input_types))}", *seen)  # fmt: skip
        given = self.body.output_types
        require(given[: self.states] == tuple(seen[: self.states])
                and len(given) == self.states + len(self.output_axes), self,
                "the body does not give the states back", *given)  # fmt: skip
        stacked = []
        for axis, slice_type in zip(self.output_axes, given[self.states :]):
            require(0 <= axis <= slice_type.rank, self, f"no output axis {axis}", slice_type,
                    code="WH1104")  # fmt: skip
            shape = slice_type.shape
            stacked.append(slice_type.with_shape((*shape[:axis], self.length, *shape[axis:])))
        return (*given[: self.states], *stacked)

    def reference(self, *values: Array) -> tuple[Array, ...]:
        first_whole = self.first_whole
        states, whole = tuple(values[: self.states]), tuple(values[first_whole:])
        scanned = [
            np.moveaxis(np.flip(v, axis) if backward else v, axis, 0)
            for v, axis, backward in zip(
                values[self.states : first_whole], self.input_axes, self.backward_inputs
            )
        ]
        stacked = [
            np.empty((self.length, *t.shape), t.dtype.numpy)
            for t in self.body.output_types[self.states :]
        ]
        for step in range(self.length):
            results = self.body.run((*states, *(v[step] for v in scanned), *whole))
            states = results[: self.states]
            for out, piece in zip(stacked, results[self.states :], strict=True):
                out[step] = piece
        return (
            *states,
            *(
                np.moveaxis(out[::-1] if backward else out, 0, axis)
                for out, axis, backward in zip(stacked, self.output_axes, self.backward_outputs)
            ),
        )

    def expand(self, b: Builder, *values: Any) -> tuple[Any, ...]:
        """The steps written out one after the other."""
        first_whole = self.first_whole
        states, whole = values[: self.states], values[first_whole:]
        scanned = list(
            zip(values[self.states : first_whole], self.input_axes, self.backward_inputs)
        )
        pieces: list[list[Any]] = [[] for _ in self.output_axes]
        for step in range(self.length):
            slices = (
                _piece(b, v, axis, self.length - 1 - step if backward else step)
                for v, axis, backward in scanned
            )
            results = self.body.build(b, *states, *slices, *whole)
            states = results[: self.states]
            for kept, value, axis in zip(pieces, results[self.states :], self.output_axes):
                shape = b.type(value).shape
                kept.append(b(Reshape((*shape[:axis], 1, *shape[axis:])), value))
        outputs = self.infer(*(b.type(v) for v in values))[self.states :]
        flags = self.backward_outputs
        return (
            *states,
            *(
                b(Concat(axis), *(kept[::-1] if backward else kept))
                if kept
                else b.constant(np.zeros(out.shape, out.dtype.numpy))
                for kept, axis, backward, out in zip(pieces, self.output_axes, flags, outputs)
            ),
        )

    axioms = NoAlgebra("its steps depend on each other")

    @classmethod
    def samples(cls) -> tuple[Sample, ...]:
        state = TensorType((3,), f32)
        total = cls(op_body(Add(), state, state), 4, 1, (0,))
        each = cls(op_body(Abs(), state), 2, 0, (1,), (1,), (True,), (False,))
        return (
            Sample(total, (state, TensorType((4, 3), f32))),
            Sample(each, (TensorType((3, 2), f32),)),
        )

    @classmethod
    def sample(cls, rng: np.random.Generator) -> Sample:
        width, length = (int(n) for n in rng.integers(1, 6, 2))
        piece = TensorType((width,), f32)
        axis, out_axis = (int(n) for n in rng.integers(2, size=2))
        flags = tuple(bool(n) for n in rng.integers(2, size=2))
        op = cls(op_body(Add(), piece, piece), length, 0, (axis,), (out_axis,),
                 flags[:1], flags[1:])  # fmt: skip
        shape = (width, length) if axis else (length, width)
        return Sample(op, (TensorType(shape, f32), piece))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _piece(b: Builder, value: Any, axis: int, at: int) -> Any:
    """Slice number `at` along the axis, without the axis."""
    shape = b.type(value).shape
    starts, stops = [0] * len(shape), list(shape)
    starts[axis], stops[axis] = at, at + 1
    cut = b(Slice(tuple(starts), tuple(stops), (1,) * len(shape)), value)
    return b(Reshape(_without(shape, axis)), cut)
