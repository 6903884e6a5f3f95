"""Kinds of values: shape, where its axes were joined, and activation or weight.

`concat` remembers where it joined two values, as a tree per axis, and `split` cuts only there:
otherwise every tensor could be cut anywhere.  Which axes of a result carry on the trees of
which input axes is read off the operator's tensor expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from whet.core.dtypes import f32
from whet.core.types import Shape
from whet.ir.expr import Axis, Read
from whet.ir.tensor import Compute, placeholder, stages, subexpressions
from whet.ops.base import Op
from whet.ops.movement import Concat, Split
from whet.superopt.rules.rule import Role

Link = tuple[int, int]
"""Input number and axis."""


@dataclass(frozen=True, slots=True)
class Join:
    """An axis that a concat made: `left` positions, then the rest, each perhaps joined too."""

    left: int
    before: Join | None = None
    after: Join | None = None


Tree = Join | None


@dataclass(frozen=True, slots=True)
class Kind:
    """Facts that the generator knows of a value beside its elements."""

    shape: Shape
    trees: tuple[Tree, ...]
    role: Role

    @property
    def size(self) -> int:
        size = 1
        for d in self.shape:
            size *= d
        return size


def plain(shape: Shape, role: Role) -> Kind:
    return Kind(shape, (None,) * len(shape), role)


@cache
def axis_links(op: Op, shapes: tuple[Shape, ...]) -> tuple[tuple[tuple[Link, ...], ...], ...]:
    """For every output and axis: the input axes that are read at exactly the same position."""
    return tuple(spatial for spatial, _ in _links(op, shapes))


@cache
def contracted_links(op: Op, shapes: tuple[Shape, ...]) -> tuple[tuple[Link, ...], ...]:
    """The input axes that are summed over together, one entry per axis of the sum."""
    return tuple(links for _, reduced in _links(op, shapes) for links in reduced)


def _links(
    op: Op, shapes: tuple[Shape, ...]
) -> list[tuple[tuple[tuple[Link, ...], ...], tuple[tuple[Link, ...], ...]]]:
    """By output: the links of its axes, and those of the axes that it reduces."""
    inputs = tuple(placeholder(s, f32, f"in{n}") for n, s in enumerate(shapes))
    outputs = op.compute_tensors(inputs)
    if len(stages(outputs)) > len(inputs) + len(outputs):
        return [(((),) * t.rank, ()) for t in outputs]
    found = []
    for output in outputs:
        assert isinstance(output, Compute)
        links: dict[Axis, dict[Link, None]] = {axis: {} for axis in output.axes}
        for e in subexpressions(output.body):
            if isinstance(e, Read):
                for n, index in enumerate(e.indices):
                    if isinstance(index, Axis):
                        source = next(k for k, t in enumerate(inputs) if t is e.tensor)
                        links.setdefault(index, {})[source, n] = None
        spatial = tuple(tuple(links.pop(axis)) for axis in output.axes)
        found.append((spatial, tuple(tuple(v) for v in links.values())))
    return found


def result_kinds(op: Op, kinds: Sequence[Kind], shapes: Sequence[Shape]) -> tuple[Kind, ...]:
    """The kinds of the outputs, which have the given shapes."""
    role: Role = "activation" if any(k.role == "activation" for k in kinds) else "weight"
    links = axis_links(op, tuple(k.shape for k in kinds))
    made = []
    for n, shape in enumerate(shapes):
        trees = [_agreed([kinds[i].trees[a] for i, a in found]) for found in links[n]]
        if isinstance(op, Concat):
            a, b = kinds
            trees = [_agreed([a.trees[x], b.trees[x]]) for x in range(len(shape))]
            trees[op.axis] = Join(a.shape[op.axis], a.trees[op.axis], b.trees[op.axis])
        elif isinstance(op, Split):
            cut = kinds[0].trees[op.axis]
            assert cut is not None, "split without a join"
            trees = list(kinds[0].trees)
            trees[op.axis] = cut.after if n else cut.before
        made.append(Kind(shape, tuple(trees), role))
    return tuple(made)


def _agreed(trees: Sequence[Tree]) -> Tree:
    """The tree that all have; none if they differ or there are none."""
    return trees[0] if trees and all(t == trees[0] for t in trees) else None
