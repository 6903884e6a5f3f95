"""Reduction factorization on trees, both variants (Ansor, rule 6; see the primitive)."""

from __future__ import annotations

from dataclasses import replace

from whet.schedule.derive.sizes import Size
from whet.schedule.derive.state import State, UnderivableError
from whet.schedule.derive.trees import (
    Band,
    Index,
    Leaf,
    Local,
    SizedBuffer,
    Touch,
    Tree,
    exchange,
    leaves,
    map_leaves,
    nested,
    path_to,
    renamed,
)
from whet.schedule.program.primitives.reductions import Variant
from whet.schedule.program.steps import TransformStep


def rfactor(state: State, loop: str, variant: Variant) -> State:
    """A loop of a reduction made free: a partial result for each of its steps."""
    band = state.find(loop)
    return _local(state, band) if variant == "local" else _stage(state, band)


def _pair(state: State, loop: Band) -> tuple[tuple[Tree, ...], Leaf, Tree]:
    """What is around a reduction, its start value, and the nest that the loop lies in."""
    around = path_to(state.trees, loop) or ()
    chain: list[Tree] = [*around, loop]
    for n, tree in enumerate(chain):
        block = state.trees if n == 0 else chain[n - 1].body  # type: ignore[union-attr]
        place = next(m for m, t in enumerate(block) if t is tree)
        before = block[place - 1] if place else None
        if isinstance(before, Leaf) and before.role == "start":
            return tuple(chain[:n]), before, tree
    raise UnderivableError(loop.name)


def _local(state: State, loop: Band) -> State:
    """Partial results in a scratch buffer beside each other."""
    _, start, nest = _pair(state, loop)
    update = leaves((nest,))[-1]
    buffer = update.written.buffer
    name, first, last = state.names([f"{buffer}_part", "r", "r"])

    def at(loop_name: str, write: bool) -> Touch:
        return Touch(name, (Index(((loop_name, 1),)),), write)

    def moved(leaf: Leaf) -> Leaf:
        reads = [at(loop.name, False) if t.buffer == buffer else t for t in leaf.touches[:-1]]
        return replace(leaf, touches=(*reads, at(loop.name, True)))

    zero = replace(start, touches=(at(first, True),))
    own = replace(update.written, is_write=False)
    combine = _combination(update)
    final = Leaf("update", (own, at(last, False), update.written), combine)
    body: tuple[Tree, ...] = (
        Band(first, loop.extent, False, (zero,), first),
        *map_leaves((nest,), moved),
        start,
        Band(last, loop.extent, True, (final,), last),
    )
    body = _freed(body, loop.name)
    trees = exchange(exchange(state.trees, start, ()), nest, (Local(name, body),))
    storage = {
        **state.storage,
        name: SizedBuffer((loop.extent,), state.storage[buffer].element_bytes, None, (0,)),
    }
    made = state.after(TransformStep("rfactor", loop=loop.name, variant="local"), trees)
    return replace(made, storage=storage)


def _stage(state: State, loop: Band) -> State:
    """Partial results as a stage of their own."""
    around, start, nest = _pair(state, loop)
    loops = [t for t in around if isinstance(t, Band)]
    update = leaves((nest,))[-1]
    buffer = update.written.buffer
    name, last, *fresh = state.names([f"{buffer}_part", "r", *(b.name for b in loops)])

    def at(loop_name: str, write: bool) -> Touch:
        return Touch(name, (Index(((loop_name, 1),)), *update.written.indices), write)

    def moved(leaf: Leaf) -> Leaf:
        reads = [at(loop.name, False) if t.buffer == buffer else t for t in leaf.touches[:-1]]
        return replace(leaf, touches=(*reads, at(loop.name, True)))

    inside = _without(map_leaves((nest,), moved), loop.name)
    zero = replace(start, touches=(at(loop.name, True),))
    parts = nested([replace(loop, reduces=False), *loops], (zero, *inside))
    own = replace(update.written, is_write=False)
    final = Leaf("update", (own, at(last, False), update.written), _combination(update))
    whole: tuple[Tree, ...] = (start, Band(last, loop.extent, True, (final,), last))
    whole = renamed(nested(loops, whole), dict(zip([b.name for b in loops], fresh)))
    old = loops[0] if loops else nest
    trees = state.trees if loops else exchange(state.trees, start, ())
    trees = exchange(trees, old, (*parts, *whole))
    stored = state.storage[buffer]
    shape: tuple[Size, ...] = (loop.extent, *stored.shape)
    order = (0, *(n + 1 for n in range(len(stored.shape))))
    made = state.after(TransformStep("rfactor", loop=loop.name, variant="stage"), trees)
    storage = {**state.storage, name: SizedBuffer(shape, stored.element_bytes, None, order)}
    return replace(made, storage=storage)


def _combination(update: Leaf) -> tuple[tuple[str, float], ...]:
    """The operations of combining two partial results: one of the update's own kind."""
    names = [n for n, _ in update.operations]
    kind = next((n for n in names if n.endswith(("mad", "addsub"))), names[0] if names else "")
    return ((kind.replace("mad", "addsub"), 1.0),) if kind else ()


def _freed(trees: tuple[Tree, ...], loop: str) -> tuple[Tree, ...]:
    """The trees with one loop that is no longer reduced."""
    done: list[Tree] = []
    for tree in trees:
        if isinstance(tree, Leaf):
            done.append(tree)
        elif isinstance(tree, Band) and tree.name == loop:
            done.append(replace(tree, reduces=False))
        else:
            done.append(replace(tree, body=_freed(tree.body, loop)))
    return tuple(done)


def _without(trees: tuple[Tree, ...], loop: str) -> tuple[Tree, ...]:
    """The trees with one loop taken away from around its body."""
    done: list[Tree] = []
    for tree in trees:
        if isinstance(tree, Band) and tree.name == loop:
            done += tree.body
        elif isinstance(tree, Leaf):
            done.append(tree)
        else:
            done.append(replace(tree, body=_without(tree.body, loop)))
    return tuple(done)
