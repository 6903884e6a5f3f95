"""Loop nests whose extents depend on holes: what primitives do to a program, without numbers.

A tree has the loops, scratch buffers and statements of a program under the same names, so a step
of a trace has the same meaning for both.  Indices are linear forms over loops; what else a
program has (conditions, offsets that depend on data) is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whet.ir.affine import affine, free_symbols
from whet.ir.expr import Const, Expr, Read, Var
from whet.ir.program import Buffer, Loop, LoopKind, Program, Scope, Stmt, Store
from whet.schedule.derive.sizes import Size, plus, times
from whet.schedule.space.statements import operations_of, reads_of, step_of

Role = Literal["define", "start", "update", "copy"]


@dataclass(frozen=True)
class Index:
    """A position in one dimension: steps of loops, by their names, and an offset."""

    terms: tuple[tuple[str, Size], ...]
    offset: int = 0
    linear: bool = True

    def coefficient(self, loop: str) -> Size:
        return dict(self.terms).get(loop, 0)

    def only(self, loops: Sequence[str]) -> Index:
        """The part that moves with these loops."""
        return Index(tuple(t for t in self.terms if t[0] in loops), 0, self.linear)

    def without(self, loops: Sequence[str]) -> Index:
        return Index(tuple(t for t in self.terms if t[0] not in loops), self.offset, self.linear)

    def substituted(self, loop: str, by: Index) -> Index:
        """The index with a loop's variable replaced."""
        step = self.coefficient(loop)
        if step == 0:
            return self
        terms = dict(t for t in self.terms if t[0] != loop)
        for name, factor in by.terms:
            terms[name] = plus(terms.get(name, 0), times(step, factor))
        offset = self.offset + (step * by.offset if isinstance(step, int) else 0)
        return Index(tuple(terms.items()), offset, self.linear and by.linear)


@dataclass(frozen=True)
class Touch:
    """A read or write of a buffer."""

    buffer: str
    indices: tuple[Index, ...]
    is_write: bool

    def mapped(self, change: Callable[[Index], Index]) -> Touch:
        return replace(self, indices=tuple(map(change, self.indices)))


@dataclass(frozen=True)
class Leaf:
    """A statement."""

    role: Role
    touches: tuple[Touch, ...]
    operations: tuple[tuple[str, float], ...]
    store: Store | None = None
    """The statement of the naive program; None for copies."""

    @property
    def written(self) -> Touch:
        return self.touches[-1]


@dataclass(frozen=True)
class Band:
    """A loop; `title` is what people call it."""

    name: str
    extent: Size
    reduces: bool
    body: tuple[Tree, ...]
    title: str
    kind: LoopKind = "serial"


@dataclass(frozen=True)
class Local:
    """A scratch buffer and what happens while it lives."""

    buffer: str
    body: tuple[Tree, ...]


Tree = Leaf | Band | Local


@dataclass(frozen=True)
class SizedBuffer:
    """A buffer: shape, order of the axes in memory, and strides where they are given."""

    shape: tuple[Size, ...]
    element_bytes: int
    strides: tuple[int, ...] | None = None
    order: tuple[int, ...] = ()
    scope: Scope = "memory"

    def steps(self) -> tuple[Size, ...]:
        """Elements between neighbours along every axis."""
        if self.strides is not None:
            return self.strides
        steps: list[Size] = [1] * len(self.shape)
        step: Size = 1
        for n in reversed(self.order):
            steps[n], step = step, times(step, self.shape[n])
        return tuple(steps)

    def bytes(self) -> Size:
        total: Size = self.element_bytes
        for extent in self.shape:
            total = times(total, extent)
        return total


# ----------------------------------------------------------------------------------- structure
def walk(trees: Sequence[Tree]) -> Iterator[Tree]:
    for tree in trees:
        yield tree
        if not isinstance(tree, Leaf):
            yield from walk(tree.body)


def leaves(trees: Sequence[Tree]) -> list[Leaf]:
    return [t for t in walk(trees) if isinstance(t, Leaf)]


def bands(trees: Sequence[Tree]) -> dict[str, Band]:
    return {t.name: t for t in walk(trees) if isinstance(t, Band)}


def map_leaves(trees: Sequence[Tree], change: Callable[[Leaf], Leaf]) -> tuple[Tree, ...]:
    return tuple(
        change(t) if isinstance(t, Leaf) else replace(t, body=map_leaves(t.body, change))
        for t in trees
    )


def exchange(trees: Sequence[Tree], old: Tree, new: Sequence[Tree]) -> tuple[Tree, ...]:
    """The trees with one replaced."""
    done: list[Tree] = []
    for tree in trees:
        if tree is old:
            done += new
        elif isinstance(tree, Leaf):
            done.append(tree)
        else:
            body = exchange(tree.body, old, new)
            same = len(body) == len(tree.body) and all(a is b for a, b in zip(body, tree.body))
            done.append(tree if same else replace(tree, body=body))
    return tuple(done)


def path_to(trees: Sequence[Tree], target: Tree) -> tuple[Tree, ...] | None:
    """What is around a tree, outermost first."""
    for tree in trees:
        if tree is target:
            return ()
        if not isinstance(tree, Leaf):
            inner = path_to(tree.body, target)
            if inner is not None:
                return (tree, *inner)
    return None


def chain_from(band: Band) -> tuple[Band, ...]:
    """A loop and those nested perfectly in it."""
    found = [band]
    while len(found[-1].body) == 1 and isinstance(found[-1].body[0], Band):
        found.append(found[-1].body[0])
    return tuple(found)


def touched(trees: Sequence[Tree], buffer: str) -> list[Touch]:
    return [t for leaf in leaves(trees) for t in leaf.touches if t.buffer == buffer]


def nested(loops: Sequence[Band], body: Sequence[Tree]) -> tuple[Tree, ...]:
    """The loops, outermost first, around a body."""
    inner = tuple(body)
    for loop in reversed(loops):
        inner = (replace(loop, body=inner),)
    return inner


def renamed(trees: Sequence[Tree], names: Mapping[str, str]) -> tuple[Tree, ...]:
    """The trees with loops called otherwise."""

    def index(i: Index) -> Index:
        terms = tuple((names.get(n, n), s) for n, s in i.terms)
        return Index(terms, i.offset, i.linear)

    def visit(tree: Tree) -> Tree:
        match tree:
            case Leaf():
                return replace(tree, touches=tuple(t.mapped(index) for t in tree.touches))
            case Band(name=name, body=body):
                return replace(tree, name=names.get(name, name), body=tuple(map(visit, body)))
            case Local(body=body):
                return replace(tree, body=tuple(map(visit, body)))
        raise AssertionError(type(tree))

    return tuple(map(visit, trees))


# --------------------------------------------------------------------------------- from programs
def sized_buffer(buffer: Buffer) -> SizedBuffer:
    strides = buffer.element_strides
    order = tuple(sorted(range(len(strides)), key=lambda n: -strides[n]))
    return SizedBuffer(buffer.shape, buffer.dtype.itemsize, strides, order)


def trees_of(program: Program) -> tuple[Tree, ...]:
    """The naive program of a task as trees."""
    return tuple(_tree(s, ()) for s in program.body)


def _tree(stmt: Stmt, around: tuple[Var, ...]) -> Tree:
    match stmt:
        case Loop(var=var, extent=Const(value=extent), body=body, kind=kind):
            inner = tuple(_tree(s, (*around, var)) for s in body)
            written = {n for t in leaves(inner) for i in t.written.indices for n, _ in i.terms}
            reduces = var.name not in written
            return Band(var.name, int(extent), reduces, inner, var.name, kind)
        case Store():
            return _leaf(stmt, around)
    raise AssertionError(type(stmt))


def _leaf(store: Store, around: tuple[Var, ...]) -> Leaf:
    touches = [Touch(r.tensor.name, _indices(r.indices, around), False) for r in reads_of(store)]
    touches.append(Touch(store.buffer.name, _indices(store.indices, around), True))
    own = any(isinstance(r, Read) and r.tensor is store.buffer for r in reads_of(store))
    role: Role = "update" if own else "start" if isinstance(store.value, Const) else "define"
    return Leaf(role, tuple(touches), tuple(operations_of(store).items()), store)


def _indices(indices: Sequence[Expr], around: Sequence[Var]) -> tuple[Index, ...]:
    return tuple(_index(i, around) for i in indices)


def _index(index: Expr, around: Sequence[Var]) -> Index:
    form = affine(index)
    linear = all(isinstance(a, Var) for a, _ in form.terms)
    symbols = free_symbols(index)
    terms = tuple((v.name, step_of(index, v)) for v in around if v in symbols)
    return Index(tuple(t for t in terms if t[1]), form.constant, linear)
