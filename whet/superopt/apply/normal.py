"""The normal form of graphs in a search: data movement in one form, constants computed later.

    concat(concat(x, y), z)                  ->   concat(x, y, z)
    split(concat(x, y))                      ->   x, y
    slice(concat(x, y), within y)            ->   slice(y)
    concat(slice(x, 0:2), slice(x, 2:6))     ->   slice(x, 0:6)
    slice(split(x)[1])                       ->   slice(x)

A part of a split and a slice of one axis are both a `Run`: consecutive places of a base along an
axis.  Runs of runs are runs of the base, and neighbours join.  All of this moves elements without
changing them; the equations are laws of the three operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whet.graph.graph import Computed, Constant, Node, Result, Value, compute_later
from whet.graph.passes.simplify import SimplifyingBuilder
from whet.ops.base import Op
from whet.ops.movement import Concat, Slice, Split


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The places start..stop of an axis of a value."""

    base: Value
    axis: int
    start: int
    stop: int

    @property
    def is_whole(self) -> bool:
        return self.stop - self.start == self.base.tensor_type.shape[self.axis]


def maker(value: Value) -> Node | None:
    """The node that computes the value, also where the result is a constant."""
    return value.node if isinstance(value, (Result, Computed)) else None


def run_of(value: Value) -> Run | None:
    """The run that the value is, if it is one."""
    node = maker(value)
    if node is None:
        return None
    base = node.inputs[0] if node.inputs else None
    if isinstance(node.op, Split) and isinstance(value, (Result, Computed)) and base is not None:
        start = sum(node.op.sizes[: value.index])
        return Run(base, node.op.axis, start, start + node.op.sizes[value.index])
    if isinstance(node.op, Slice) and base is not None:
        return _sliced(node.op, base)
    return None


def _sliced(op: Slice, base: Value) -> Run | None:
    """The run of a slice that cuts one axis with step 1."""
    shape = base.tensor_type.shape
    if any(step != 1 for step in op.steps):
        return None
    cut = [n for n, d in enumerate(shape) if (op.starts[n], op.stops[n]) != (0, d)]
    if len(cut) != 1:
        return None
    (axis,) = cut
    return Run(base, axis, op.starts[axis], op.stops[axis])


class NormalBuilder(SimplifyingBuilder):
    """A builder that keeps data movement in normal form and computes no constant."""

    def results(self, op: Op, *values: Value) -> tuple[Value, ...]:
        if isinstance(op, Concat):
            return (self._concat(op.axis, values),)
        if isinstance(op, Slice):
            run = _sliced(op, values[0])
            if run is not None:
                return (self.run(run),)
        if isinstance(op, Split):
            return self._split(op, values[0])
        return super().results(op, *values)

    def fold(self, node: Node) -> tuple[Value, ...] | None:
        if not node.op.folds or not all(isinstance(v, Constant) for v in node.inputs):
            return None
        return compute_later(node.op, *node.inputs)

    # ------------------------------------------------------------------------------- movement
    def run(self, run: Run) -> Value:
        """The run as a value: of its innermost base, or of the parts that it covers."""
        if run.is_whole:
            return run.base
        inner = run_of(run.base)
        if inner is not None and inner.axis == run.axis:
            start = inner.start + run.start
            return self.run(Run(inner.base, run.axis, start, inner.start + run.stop))
        node = maker(run.base)
        if node is not None and isinstance(node.op, Concat) and node.op.axis == run.axis:
            parts = tuple(self._covered(node.inputs, run))
            return self._concat(run.axis, parts)
        return self._sliced(run)

    def _covered(self, parts: Sequence[Value], run: Run) -> Iterable[Value]:
        """The pieces of concatenated parts that lie in the run."""
        at = 0
        for part in parts:
            extent = part.tensor_type.shape[run.axis]
            start, stop = max(run.start, at), min(run.stop, at + extent)
            if start < stop:
                yield self.run(Run(part, run.axis, start - at, stop - at))
            at += extent

    def _sliced(self, run: Run) -> Value:
        shape = run.base.tensor_type.shape
        starts = tuple(run.start if n == run.axis else 0 for n in range(len(shape)))
        stops = tuple(run.stop if n == run.axis else d for n, d in enumerate(shape))
        return super().results(Slice(starts, stops, (1,) * len(shape)), run.base)[0]

    def _concat(self, axis: int, values: Sequence[Value]) -> Value:
        parts: list[Value] = []
        for value in values:
            node = maker(value)
            joined = node is not None and isinstance(node.op, Concat) and node.op.axis == axis
            parts += node.inputs if joined and node is not None else (value,)
        joined_parts: list[Value] = []
        for part in parts:
            if not part.tensor_type.shape[axis]:
                continue
            both = self._neighbours(axis, joined_parts[-1], part) if joined_parts else None
            if both is not None:
                joined_parts[-1] = both
            else:
                joined_parts.append(part)
        if len(joined_parts) == 1:
            return joined_parts[0]
        return super().results(Concat(axis), *(joined_parts or values))[0]

    def _neighbours(self, axis: int, left: Value, right: Value) -> Value | None:
        """The two as one run, if they follow each other in one base."""
        a, b = run_of(left), run_of(right)
        if a is None or b is None or a.base is not b.base or a.axis != axis or b.axis != axis:
            return None
        return self.run(Run(a.base, axis, a.start, b.stop)) if a.stop == b.start else None

    def _split(self, op: Split, value: Value) -> tuple[Value, ...]:
        """The parts; those of a concat or of another run are found where they come from."""
        node = maker(value)
        moved = run_of(value) is not None or (
            node is not None and isinstance(node.op, Concat) and node.op.axis == op.axis
        )
        if not moved or isinstance(value, Constant):
            return super().results(op, value)
        starts = [sum(op.sizes[:n]) for n in range(len(op.sizes))]
        return tuple(
            self.run(Run(value, op.axis, start, start + size))
            for start, size in zip(starts, op.sizes)
        )
