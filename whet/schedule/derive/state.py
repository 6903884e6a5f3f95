"""The state of a derivation: trees, the steps that made them, and the node that is next.

Every method is a primitive: it gives the state after one more step, with the same effect on the
trees that the primitive has on a program.  Nothing is changed in place, so that one state may
have several successors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

from whet.ir.affine import substitute
from whet.ir.expr import Expr, Read
from whet.ir.program import LoopKind, Scope, Store
from whet.schedule.derive.dag import Dag, Node
from whet.schedule.derive.sizes import Size, Stride, ceil, plus, times
from whet.schedule.derive.trees import (
    Band,
    Index,
    Leaf,
    Local,
    SizedBuffer,
    Touch,
    Tree,
    bands,
    exchange,
    leaves,
    map_leaves,
    nested,
    path_to,
    renamed,
    touched,
    walk,
)
from whet.schedule.program.access import map_expr
from whet.schedule.program.steps import Hole, TransformStep


class UnderivableError(Exception):
    """A step that the trees cannot follow: the rule that wanted it does not apply."""


@dataclass(frozen=True)
class Move:
    """A step, taken where a size is more than 1: loops of extent 1 may be gone by then."""

    step: TransformStep
    needs: Size | None = None


@dataclass(frozen=True)
class Chain:
    """The tile sizes of one loop, largest first: each divides the one before.

    Where tiles may overlap the first need not divide the extent.  The last may be the lanes of
    vectors.
    """

    extent: Size
    holes: tuple[str, ...]
    may_overlap: bool
    has_lanes: bool = False


@dataclass(frozen=True, eq=False)
class State:
    dag: Dag
    cores: int
    trees: tuple[Tree, ...]
    storage: dict[str, SizedBuffer]
    position: int
    moves: tuple[Move, ...] = ()
    chains: tuple[Chain, ...] = ()
    inlined: frozenset[str] = frozenset()
    cached: frozenset[str] = frozenset()
    """Nodes whose tiles are kept in a scratch buffer and stored at the end."""
    factored: frozenset[str] = frozenset()
    """Nodes whose reduction keeps partial results side by side."""
    tiled: frozenset[str] = frozenset()
    in_place: frozenset[str] = frozenset()
    """Nodes whose tiles must not overlap on several threads."""
    unrolls: tuple[tuple[str, str], ...] = ()
    """Holes that say whether a reduced loop is unrolled, with the loop."""
    rules: tuple[str, ...] = ()
    """The rules that led here."""

    # ------------------------------------------------------------------------------ looking
    @property
    def node(self) -> Node:
        return self.dag.nodes[self.position]

    @cached_property
    def bands(self) -> dict[str, Band]:
        return bands(self.trees)

    def past(self) -> State:
        """The state with the next node to look at."""
        return replace(self, position=self.position - 1)

    def is_untouched(self, node: Node) -> bool:
        """Whether the loops of a node are as in the naive program, at the root."""
        roots = {t.name for t in self.trees if isinstance(t, Band)}
        return bool(node.space) and node.space[0].name in roots

    def fusible_reader(self, node: Node) -> Node | None:
        """The reader whose loops can be tiled together with the node's (HasFusibleConsumer)."""
        reader = self.dag.only_reader(node, self.inlined)
        if reader is None or not reader.is_plain or (reader.reduced and node.reduced):
            return None
        return reader if self.is_untouched(reader) and reader.name not in self.tiled else None

    def _taken(self) -> set[str]:
        scratch = {t.buffer for t in walk(self.trees) if isinstance(t, Local)}
        return set(self.storage) | scratch | set(self.bands)

    def names(self, hints: Sequence[str]) -> list[str]:
        """Names that are not used yet, as primitives invent them."""
        taken, found = self._taken(), []
        for hint in hints:
            name, count = hint, 0
            while name in taken:
                count += 1
                name = f"{hint}_{count}"
            taken.add(name)
            found.append(name)
        return found

    def find(self, loop: str) -> Band:
        if loop not in self.bands:
            raise UnderivableError(loop)
        return self.bands[loop]

    def after(self, step: TransformStep, trees: Sequence[Tree], needs: Size | None = None) -> State:
        return replace(self, trees=tuple(trees), moves=(*self.moves, Move(step, needs)))

    # -------------------------------------------------------------------------------- loops
    def tile(
        self,
        loops: Sequence[str],
        sizes: Sequence[Sequence[int | Hole]],
        order: Sequence[str],
        titles: dict[str, str] | None = None,
        needs: Size | None = None,
    ) -> State:
        """Perfectly nested loops in levels (see the primitive)."""
        found = sorted((self.find(x) for x in loops), key=lambda b: self._depth(b))
        for outer, inner in pairwise(found):
            if outer.body != (inner,):
                raise UnderivableError(inner.name)
        keys = [f"{x}.{n}" for x, chain in zip(loops, sizes) for n in range(len(chain) + 1)]
        fresh = dict(zip(keys, self.names(keys)))
        parts: dict[str, Band] = {}
        values: dict[str, Index] = {}
        for name, chain in zip(loops, sizes):
            old = self.bands[name]
            steps: list[Size] = [*chain, 1]
            counts = [ceil(old.extent, steps[0]), *(ceil(a, b) for a, b in pairwise(steps))]
            for n, count in enumerate(counts if chain else [old.extent]):
                key = f"{name}.{n}"
                title = (titles or {}).get(key, old.title if not chain else fresh[key])
                parts[key] = Band(fresh[key], count, old.reduces, (), title)
            if chain and not old.reduces:
                steps[0] = Stride(old.extent, steps[0])
            terms = tuple((fresh[f"{name}.{n}"], s) for n, s in enumerate(steps if chain else [1]))
            values[name] = Index(terms)

        def change(leaf: Leaf) -> Leaf:
            return replace(leaf, touches=tuple(t.mapped(place) for t in leaf.touches))

        def place(index: Index) -> Index:
            for name, value in values.items():
                index = index.substituted(name, value)
            return index

        body = map_leaves(found[-1].body, change)
        made = nested([parts[k] for k in order], body)
        step = TransformStep(
            "tile", loops=tuple(loops), sizes=tuple(map(tuple, sizes)), order=tuple(order)
        )
        return self.after(step, exchange(self.trees, found[0], made), needs)

    def _depth(self, band: Band) -> int:
        return len(path_to(self.trees, band) or ())

    def decompose(self, loops: Sequence[str]) -> State:
        """The start value of a reduction in a nest of its own."""
        found = [self.find(x) for x in loops]
        fresh = self.names([b.name for b in found])
        first = nested(found, found[-1].body[:1])
        rest = renamed(nested(found, found[-1].body[1:]), dict(zip(loops, fresh)))
        step = TransformStep("decompose", loops=tuple(loops))
        return self.after(step, exchange(self.trees, found[0], (*first, *rest)))

    def mark(self, loop: str, kind: LoopKind) -> State:
        """A loop that is unrolled or a vector, where it has more than one step."""
        old = self.find(loop)
        step = TransformStep("vectorize" if kind == "vector" else "unroll", loop=loop)
        trees = exchange(self.trees, old, (replace(old, kind=kind),))
        return self.after(step, trees, old.extent)

    # ------------------------------------------------------------------------------- stages
    def inline(self, buffer: str) -> State:
        """A node written into its readers."""
        root = self._root(buffer)
        (leaf,) = leaves((root,))
        axes = [i.terms[0][0] if i.terms else None for i in leaf.written.indices]

        def change(reader: Leaf) -> Leaf:
            touches: list[Touch] = []
            operations = dict(reader.operations)
            for t in reader.touches:
                if t.buffer != buffer or t.is_write:
                    touches.append(t)
                    continue
                places = {a: i for a, i in zip(axes, t.indices) if a is not None}
                touches += [r.mapped(partial(_composed, places=places)) for r in leaf.touches[:-1]]
                for name, count in leaf.operations:
                    operations[name] = operations.get(name, 0.0) + count
            store = reader.store
            if store is not None and leaf.store is not None:
                store = inlined_store(store, leaf.store)
            return replace(
                reader, touches=tuple(touches), operations=tuple(operations.items()), store=store
            )

        trees = map_leaves([t for t in self.trees if t is not root], change)
        storage = {n: r for n, r in self.storage.items() if n != buffer}
        made = self.after(TransformStep("inline", buffer=buffer), trees)
        return replace(made, storage=storage, inlined=self.inlined | {buffer})

    def _root(self, buffer: str) -> Tree:
        found = [t for t in self.trees if any(x.written.buffer == buffer for x in leaves((t,)))]
        if len(found) != 1:
            raise UnderivableError(buffer)
        return found[0]

    def _region(
        self, touches: Sequence[Touch], body: Sequence[Tree]
    ) -> tuple[list[Index], tuple[Size, ...]]:
        """Where the touched box begins, and its shape, while the loops of a body run."""
        inside = bands(body)
        starts: list[Index] = []
        shape: list[Size] = []
        for dim in range(len(touches[0].indices)):
            indices = [t.indices[dim] for t in touches]
            outer = [dict(i.without(list(inside)).terms) for i in indices]
            reaches = [_reach(i, inside) for i in indices]
            fixed = all(o == outer[0] for o in outer) and all(r == reaches[0] for r in reaches)
            if not fixed or not all(i.linear for i in indices):
                raise UnderivableError("not a box of fixed size")
            low = min(i.offset for i in indices)
            extent = plus(reaches[0], 1 + max(i.offset for i in indices) - low)
            starts.append(Index(tuple(outer[0].items()), low))
            shape.append(extent)
        return starts, tuple(shape)

    def compute_at(self, buffer: str, loop: str) -> State:
        """A node computed in a loop of its readers, for what they read there."""
        root, target = self._root(buffer), self.find(loop)
        reads = [t for t in touched(target.body, buffer) if not t.is_write]
        elsewhere = [t for t in touched(self.trees, buffer) if not t.is_write]
        own = [t for t in touched((root,), buffer) if not t.is_write]
        if not reads or len(reads) + len(own) != len(elsewhere) or not isinstance(root, Band):
            raise UnderivableError(f"{buffer} is not read in {loop} alone")
        starts, shape = self._region(reads, target.body)
        axes = [i.terms[0][0] if i.terms else None for i in leaves((root,))[-1].written.indices]
        inside = list(bands(target.body))

        def produce(tree: Tree) -> Tree:
            match tree:
                case Leaf():
                    return replace(tree, touches=tuple(map(moved, tree.touches)))
                case Band(name=name, body=body):
                    extent = shape[axes.index(name)] if name in axes else tree.extent
                    return replace(tree, extent=extent, body=tuple(map(produce, body)))
            raise UnderivableError(buffer)

        def moved(touch: Touch) -> Touch:
            if touch.buffer == buffer:
                return touch
            starting = {a: Index(((a, 1), *s.terms), s.offset)
                        for a, s in zip(axes, starts) if a is not None}  # fmt: skip
            return touch.mapped(lambda i: _composed(i, starting))

        def local(leaf: Leaf) -> Leaf:
            return replace(leaf, touches=tuple(
                Touch(buffer, _relative(t.indices, starts, inside), t.is_write)
                if t.buffer == buffer else t for t in leaf.touches))  # fmt: skip

        body = (Local(buffer, (produce(root), *map_leaves(target.body, local))),)
        trees = exchange([t for t in self.trees if t is not root], target,
                         (replace(target, body=body),))  # fmt: skip
        old = self.storage[buffer]
        storage = {**self.storage, buffer: SizedBuffer(shape, old.element_bytes, None, old.order)}
        made = self.after(TransformStep("compute_at", buffer=buffer, loop=loop), trees)
        return replace(made, storage=storage)

    def cache_write(self, buffer: str, loop: str, scope: Scope = "memory") -> State:
        """What an iteration writes of a buffer, in a scratch buffer that is stored at its end."""
        target = self.find(loop)
        touches = touched(target.body, buffer)
        inside = list(bands(target.body))
        starts, shape = self._region(touches, target.body)
        writer = next(x for x in leaves(target.body) if x.written.buffer == buffer)
        around = [b for b in path_to(target.body, writer) or () if isinstance(b, Band)
                  and any(i.coefficient(b.name) != 0 for i in writer.written.indices)]  # fmt: skip
        starts_here = writer.role == "start" and writer.written == touches[0]
        hints = [b.name for b in around] * (1 if starts_here else 2)
        name, *fresh = self.names([f"{buffer}_local", *hints])
        place = _relative(writer.written.indices, starts, inside)
        there = Touch(buffer, writer.written.indices, True)
        here = Touch(name, place, True)
        body: list[Tree] = []
        if not starts_here:
            load = Leaf("copy", (replace(there, is_write=False), here), ())
            names = dict(zip([b.name for b in around], fresh))
            body += renamed(nested(around, (load,)), names)

        def local(leaf: Leaf) -> Leaf:
            return replace(leaf, touches=tuple(
                Touch(name, _relative(t.indices, starts, inside), t.is_write)
                if t.buffer == buffer else t for t in leaf.touches))  # fmt: skip

        body += map_leaves(target.body, local)
        store = Leaf("copy", (replace(here, is_write=False), there), ())
        names = dict(zip([b.name for b in around], fresh[-len(around) :] if around else []))
        body += renamed(nested(around, (store,)), names)
        old = self.storage[buffer]
        storage = {
            **self.storage,
            name: SizedBuffer(shape, old.element_bytes, None, old.order, scope),
        }
        step = TransformStep("cache_write", buffer=buffer, loop=loop, scope=scope)
        new = replace(target, body=(Local(name, tuple(body)),))
        return replace(self.after(step, exchange(self.trees, target, (new,))), storage=storage)

    def rewrite_layout(self, buffer: str, order: Sequence[int]) -> State:
        """A constant stored with its axes in another order."""
        (name,) = self.names([f"{buffer}_packed"])
        old = self.storage[buffer]

        def change(leaf: Leaf) -> Leaf:
            return replace(leaf, touches=tuple(
                Touch(name, tuple(t.indices[n] for n in order), t.is_write)
                if t.buffer == buffer else t for t in leaf.touches))  # fmt: skip

        shape = tuple(old.shape[n] for n in order)
        packed = SizedBuffer(shape, old.element_bytes, None, tuple(range(len(shape))))
        storage = {n: r for n, r in self.storage.items() if n != buffer} | {name: packed}
        step = TransformStep("rewrite_layout", buffer=buffer, order=tuple(order))
        return replace(self.after(step, map_leaves(self.trees, change)), storage=storage)


def inlined_store(reader: Store, define: Store) -> Store:
    """A statement of the naive program with a tensor that it reads written into it."""

    def value(e: Expr) -> Expr:
        def change(x: Expr) -> Expr | None:
            if isinstance(x, Read) and x.tensor is define.buffer:
                places = dict(zip(define.indices, map(value, x.indices)))
                return substitute(define.value, places)
            return None

        return map_expr(e, change)

    return Store(reader.buffer, reader.indices, value(reader.value))


def _composed(index: Index, places: dict[str, Index]) -> Index:
    """An index over the axes of one nest as an index over the loops of another."""
    terms: dict[str, Size] = {}
    offset, linear = index.offset, index.linear
    for name, step in index.terms:
        by = places.get(name, Index(((name, 1),)))
        linear = linear and by.linear
        for other, factor in by.terms:
            terms[other] = plus(terms.get(other, 0), times(step, factor))
        offset += step * by.offset if isinstance(step, int) else 0
    return Index(tuple(terms.items()), offset, linear)


def _reach(index: Index, inside: Mapping[str, Band]) -> Size:
    """How far an index moves while the loops inside run."""
    total: Size = 0
    for loop, step in index.terms:
        if loop in inside and inside[loop].extent != 1:
            if isinstance(step, int) and step < 0:
                raise UnderivableError("a loop that runs backwards")
            total = plus(total, times(step, plus(inside[loop].extent, -1)))
    return total


def _relative(
    indices: Sequence[Index], starts: Sequence[Index], inside: Sequence[str]
) -> tuple[Index, ...]:
    """Positions in a box that begins at a place."""
    return tuple(
        Index(i.only(inside).terms, i.offset - s.offset, i.linear) for i, s in zip(indices, starts)
    )
