"""The kind of a node, told from its tensor expressions alone: nothing here knows operator names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from whet.core.types import Shape, TensorType
from whet.graph.graph import Node, Value
from whet.ir.affine import affine, free_symbols, interval
from whet.ir.expr import Axis, Binary, Expr, Read, Reduce, Select
from whet.ir.tensor import Compute, Placeholder, Tensor, stages, subexpressions
from whet.ops.base import Op
from whet.tasks.guards import is_guard
from whet.tasks.phases import split_phases

KNOWN = 4096
"""Structures that are remembered, with what was found out about them."""


@dataclass(frozen=True, eq=False)
class Structure:
    """The tensor expressions of an operator on inputs of given types."""

    inputs: tuple[Placeholder, ...]
    outputs: tuple[Tensor, ...]

    @cached_property
    def computes(self) -> tuple[Compute, ...]:
        return tuple(s for s in stages(self.outputs) if isinstance(s, Compute))

    @cached_property
    def reduces(self) -> tuple[Reduce, ...]:
        return tuple(
            e for s in self.computes for e in subexpressions(s.body) if isinstance(e, Reduce)
        )

    @cached_property
    def is_movement(self) -> bool:
        """Every output element is one input element, whatever its value."""
        return all(isinstance(s.body, Read) and _static_read(s.body) for s in self.computes)

    @property
    def is_pointwise(self) -> bool:
        """No reductions."""
        return not self.reduces

    @cached_property
    def contraction(self) -> tuple[Compute, Reduce, Read, Read] | None:
        """The stage, reduction and two reads of a sum of products, if this is one."""
        if len(self.computes) != 1 or len(self.reduces) != 1:
            return None
        (stage,), (reduce,) = self.computes, self.reduces
        value = reduce.value
        if isinstance(value, Select) and is_guard(value):
            value = value.then
        if reduce.kind != "sum" or not (isinstance(value, Binary) and value.op == "mul"):
            return None
        reads = [_only_read(value.left), _only_read(value.right)]
        if reads[0] is None or reads[1] is None:
            return None
        return stage, reduce, reads[0], reads[1]


def transposed_last_axis(s: Structure) -> tuple[int, int] | None:
    """For a transposition: which axis of its input becomes the last, and which its last becomes.

    y[i, j, l, m] = x[i, l, m, j]   ->   2, 1          None for what is no transposition
    """
    if len(s.computes) != 1 or not s.is_movement:
        return None
    (stage,) = s.computes
    read = stage.body
    if not isinstance(read, Read) or set(read.indices) != set(stage.axes) or not stage.axes:
        return None
    axes: list[Expr] = list(stage.axes)
    return read.indices.index(axes[-1]), axes.index(read.indices[-1])


def structure_of(node: Node) -> Structure | None:
    """The node's tensor expressions; None for operators that have none."""
    return _structure(node.op, tuple(v.tensor_type for v in node.inputs))


@lru_cache(maxsize=KNOWN)
def _structure(op: Op, types: tuple[TensorType, ...]) -> Structure | None:
    if op.compute is None:
        return None
    inputs = tuple(Placeholder(f"x{n}", t.shape, t.dtype) for n, t in enumerate(types))
    return Structure(inputs, op.compute_tensors(inputs))


@lru_cache(maxsize=KNOWN)
def transposition_of(s: Structure) -> tuple[int, ...] | None:
    """For every axis of the result the axis of the input that it is, if it is nothing else."""
    if len(s.computes) != 1 or len(s.inputs) != 1:
        return None
    (stage,) = s.computes
    if not isinstance(stage.body, Read) or stage.body.tensor is not s.inputs[0]:
        return None
    indices = stage.body.indices
    if len(indices) != len(stage.axes) or any(a not in indices for a in stage.axes):
        return None
    return tuple(indices.index(a) for a in stage.axes)


def _static_read(read: Read) -> bool:
    """True when the position does not depend on data."""
    return not any(isinstance(e, Read) for i in read.indices for e in subexpressions(i))


def _only_read(e: Expr) -> Read | None:
    reads = [x for x in subexpressions(e) if isinstance(x, Read)]
    return reads[0] if len(reads) == 1 else None


@lru_cache(maxsize=KNOWN)
def vector_axis_of_contraction(
    s: Structure, constants: frozenset[Tensor]
) -> tuple[int, Read, int] | None:
    """Which output axis should be contiguous, and for the other operand: its read and its axis.

    The output's should be one that only one factor has: the weights, if one is constant, since
    they can be stored to fit (for a convolution this gives the output channels).  The other
    operand's is the longest reduced axis that indexes it alone.  None if that is a scalar.
    """
    found = s.contraction
    if found is None:
        return None
    stage, reduce, left, right = found
    windows = [r for r in (left, right) if _is_window(r)]
    if len(windows) > 1:
        return None
    best: tuple[int, Read] | None = None
    for number, axis in enumerate(stage.axes):
        in_left, in_right = axis in _direct_symbols(left), axis in _direct_symbols(right)
        if axis.extent == 1 or in_left == in_right:
            continue
        own, other = (right, left) if in_right else (left, right)
        if windows:
            # In a convolution the contiguous axis must leave the image as the other factor.
            suits = other is windows[0]
        else:
            suits = own.tensor in constants or not constants & {left.tensor, right.tensor}
        if suits:
            best = (number, other)
    if best is None or not best[1].indices:
        return None
    number, other = best
    inner = [
        (axis.extent, dim)
        for dim, index in enumerate(other.indices)
        for axis in [_alone(index)]
        if axis is not None and axis in reduce.axes
    ]
    return number, other, max(inner)[1] if inner else len(other.indices) - 1


@lru_cache(maxsize=KNOWN)
def has_dense_window(s: Structure) -> bool:
    """True for a sum of products over a window in which all channels mix: a convolution."""
    found = s.contraction
    if found is None:
        return False
    _, _, left, right = found
    return sum(map(_is_window, (left, right))) == 1 and bool(
        vector_axis_of_contraction(s, frozenset())
    )


@lru_cache(maxsize=KNOWN)
def axes_without_gaps(s: Structure) -> Mapping[Tensor, int]:
    """Contiguous axes for a stage whose phases leave gaps along its last axis.

    Lanes must then run along the longest axis that is not split (for a depthwise transposed
    convolution the channels), in the output and in all inputs that move with it.
    """
    if len(s.computes) != 1:
        return {}
    (stage,) = s.computes
    steps = split_phases(stage)[0].steps
    whole = [n for n, step in enumerate(steps) if step == 1]
    if not whole or steps[-1] == 1:
        return {}
    number = max(whole, key=lambda n: stage.axes[n].extent)
    found: dict[Tensor, int] = {stage: number}
    for e in subexpressions(stage.body):
        if isinstance(e, Read):
            for dim, index in enumerate(e.indices):
                if stage.axes[number] in free_symbols(index):
                    found[e.tensor] = dim
    return found


def _is_window(read: Read) -> bool:
    """True when an index moves with a spatial and a reduced axis at once."""
    return any(
        {a.role for a in free_symbols(i) if isinstance(a, Axis) and a.extent > 1} == {"S", "R"}
        and _alone(i) is None
        for i in read.indices
    )


def _direct_symbols(read: Read) -> set[Expr]:
    """Axes that move the read at every step; one that only selects a group does not count."""
    found: set[Expr] = set()
    stack: list[Expr] = list(read.indices)
    while stack:
        e = stack.pop()
        if isinstance(e, Binary) and e.op == "floordiv" and isinstance(e.left, Axis):
            continue
        if isinstance(e, Axis):
            found.add(e)
        stack.extend(e.children())
    return found


def _alone(index: Expr) -> Axis | None:
    """The axis that an index is, up to a constant or a group offset."""
    terms = affine(index).terms
    reduced = [a for a, c in terms if isinstance(a, Axis) and c == 1 and a.role == "R"]
    groups = [a for a, _ in terms if isinstance(a, Binary) and a.op == "floordiv"]
    alone = len(reduced) == 1 and len(terms) == 1 + len(groups)
    return reduced[0] if alone else None


@lru_cache(maxsize=KNOWN)
def zero_border(s: Structure, tensor: Placeholder) -> tuple[tuple[int, int], ...] | None:
    """The distance by which reads leave the input where zero is meant, per axis; None if never."""
    needed = [(0, 0)] * tensor.rank
    for stage in (p.stage for c in s.computes for p in split_phases(c)):
        extents: dict[Expr, int] = {a: a.extent for a in stage.axes}
        for e in subexpressions(stage.body):
            if isinstance(e, Reduce):
                extents.update({a: a.extent for a in e.axes})
        for e in subexpressions(stage.body):
            if not (isinstance(e, Select) and isinstance(e.then, Read) and is_guard(e)):
                continue
            if e.then.tensor is not tensor:
                continue
            for n, (index, extent) in enumerate(zip(e.then.indices, tensor.shape)):
                bounds = interval(index, extents)
                if bounds is None:
                    return None
                low, high = max(0, -bounds[0]), max(0, bounds[1] - extent + 1)
                needed[n] = (max(needed[n][0], low), max(needed[n][1], high))
    return tuple(needed) if any(low or high for low, high in needed) else None


@lru_cache(maxsize=KNOWN)
def reads_in_place(s: Structure, position: int) -> bool:
    """True when the input is read only at the position that is being computed."""
    tensor = s.inputs[position]
    return all(
        e.indices == stage.axes
        or all(i is a or a.extent == 1 for i, a in zip(e.indices, stage.axes))
        for stage in s.computes
        for e in subexpressions(stage.body)
        if isinstance(e, Read) and e.tensor is tensor
    )


def in_place(node: Node, inside: set[Value], shape: Shape) -> bool:
    """True for an element-wise node that reads these values only where it writes."""
    s = structure_of(node)
    if s is None or not s.is_pointwise or len(s.computes) != 1:
        return False
    if any(
        v.tensor_type.shape != shape for v in (*node.results, *inside.intersection(node.inputs))
    ):
        return False
    return all(reads_in_place(s, n) for n, v in enumerate(node.inputs) if v in inside)


@lru_cache(maxsize=KNOWN)
def ranges_of(s: Structure) -> tuple[tuple[int, ...] | None, ...]:
    """For every result that is a range of what it reads, the axes of which it is only a part.

    split(x, axis=1, sizes=[2, 3]) of x[4, 5]   ->   [(1,), (1,)]         None for other results
    """
    found: list[tuple[int, ...] | None] = []
    for stage in s.outputs:
        if not (isinstance(stage, Compute) and isinstance(stage.body, Read)):
            return (None,) * len(s.outputs)
        read = stage.body
        alike = len(read.indices) == len(stage.shape) and all(
            affine(index).terms == ((axis, 1),) or axis.extent == extent == 1
            for index, axis, extent in zip(read.indices, stage.axes, read.tensor.shape)
        )
        pairs = enumerate(zip(stage.shape, read.tensor.shape))
        found.append(tuple(n for n, (part, whole) in pairs if part < whole) if alike else None)
    return tuple(found)
