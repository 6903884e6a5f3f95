"""The derivation rules of Ansor (section 4.1) for CPUs, and how to add others.

    state = (trees and steps so far, the node that is next)      from the output backwards
    rule(state) -> successors                                    none: the rule does not apply

Rules are tried in order; an exclusive one that applies keeps the rest from being tried.  Rules
from outside the package come first:

    @derivation_rule("my rule")
    def mine(state: State) -> Iterable[State]:
        ...

A successor either looks at the node before (`state.past()`) or at the same node again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from whet.core.errors import check
from whet.schedule.derive.dag import Node, axis_order
from whet.schedule.derive.factoring import rfactor
from whet.schedule.derive.state import Chain, State, UnderivableError
from whet.schedule.derive.tiling import box_level, fused_tiles, own_tiles
from whet.schedule.derive.trees import Band, Leaf, chain_from, leaves
from whet.schedule.program.steps import Hole

Successors = Callable[[State], Iterable[State]]

CPU_STRUCTURE = "SSRSRS"
"""Levels of tiles, outermost first: S over elements, R over what is reduced."""
FOLLOW_LEVELS = (1, 2)
"""After how many levels over elements a reader joins the tiles of what it reads."""


@dataclass(frozen=True)
class SketchRule:
    """A named way to go on from a state."""

    name: str
    successors: Successors
    is_exclusive: bool = False

    def apply(self, state: State) -> list[State]:
        try:
            found = list(self.successors(state))
        except UnderivableError:
            return []
        return [replace(s, rules=(*s.rules, self.name)) for s in found]


RULES: list[SketchRule] = []
"""All rules in the order in which they are tried."""


def derivation_rule(name: str, *, exclusive: bool = False) -> Callable[[Successors], Successors]:
    """Decorator that adds a rule before all others."""

    def add(successors: Successors) -> Successors:
        check(all(r.name != name for r in RULES), "WH2121", f"there is already a rule '{name}'")
        RULES.insert(0, SketchRule(name, successors, exclusive))
        return successors

    return add


# ---------------------------------------------------------------------------- Ansor's own rules
def always_inline(state: State) -> Iterator[State]:
    """Rule 2: a cheap elementwise node is written into its readers."""
    if state.dag.is_strictly_inlinable(state.node):
        yield state.inline(state.node.name).past()


def simplify_constant_tensor(state: State) -> Iterator[State]:
    """Loops that index a matrix of constants become code, innermost, so that the matrix's zeros
    and ones fold away (Winograd's transforms); the others get two levels."""
    node = state.node
    unrolled = state.dag.constant_loops(node)
    if not unrolled or not state.is_untouched(node):
        return
    free = [v for v in axis_order(node) if v not in unrolled]
    fixed = [v for v in node.space if v in unrolled]
    chains = [Chain(node.extents[v], (f"{v}.1",), may_overlap=True) for v in free]
    sizes = [*((Hole(f"{v}.1"),) for v in free), *(() for _ in fixed)]
    order = [f"{v}.{n}" for n in (0, 1) for v in free] + [f"{v}.0" for v in fixed]
    state = state.tile([v.name for v in (*free, *fixed)], sizes, order)
    for name in [f"{v}.0" for v in fixed] + [v.name for v in node.reduced if v in unrolled]:
        state = state.mark(name, "unroll")
    yield replace(state, chains=(*state.chains, *chains), tiled=state.tiled | {node.name}).past()


def add_rfactor(state: State) -> Iterator[State]:
    """Rule 6: partial results of a long reduction, on threads, in lanes, or both.

    Ansor fuses all reduced loops first; here one of them is split, the outermost for threads and
    the innermost for lanes, which keeps the addresses linear.
    """
    node = state.node
    fresh = node.name not in state.cached | state.factored
    if not fresh or not state.dag.needs_rfactor(node, state.cores):
        return
    if not state.dag.has_data_reuse(node):
        # In lanes: where the node is computed does not matter, so its place is chosen first.
        yield replace(state, factored=state.factored | {node.name})
    if node.space_size > 16 * state.cores:
        return  # elements alone keep the threads busy; Ansor asks this of tiled nodes only
    staged = _on_threads(state, node)
    yield staged.past()
    part = next(r for r in staged.storage if r not in state.storage)
    yield replace(staged, factored=staged.factored | {part}).past()


def _on_threads(state: State, node: Node) -> State:
    loop = node.reduced[0]
    hole = f"{loop}.1"
    state = state.tile([loop.name], [(Hole(hole),)], [f"{loop}.0", f"{loop}.1"])
    state = rfactor(state, f"{loop}.0", "stage")
    chain = Chain(node.extents[loop], (hole,), may_overlap=False)
    return replace(state, chains=(*state.chains, chain), tiled=state.tiled | {node.name})


def add_cache_write(state: State) -> Iterator[State]:
    """Rule 5: a tile is kept in a scratch buffer, which makes the copy out its reader."""
    node = state.node
    if node.name in state.cached or not state.dag.has_data_reuse(node):
        return
    if state.fusible_reader(node) is None and node.reduced:
        yield replace(state, cached=state.cached | {node.name})


def tiling_with_fusion(state: State) -> Iterator[State]:
    """Rule 4: tiles whose reader, or the copy out of the scratch buffer, follows them."""
    node = state.node
    if not state.dag.has_data_reuse(node):
        return
    for level in FOLLOW_LEVELS:
        reader = state.fusible_reader(node)
        if node.name in state.cached:
            yield own_tiles(state, node, CPU_STRUCTURE, level, cached=True).past()
        elif reader is not None:
            yield fused_tiles(state, node, reader, CPU_STRUCTURE, level).past()


def multi_level_tiling(state: State) -> Iterator[State]:
    """Rule 3: levels of tiles, as the structure says."""
    if state.dag.has_data_reuse(state.node) and state.node.name not in state.cached:
        level = box_level(CPU_STRUCTURE)
        yield own_tiles(state, state.node, CPU_STRUCTURE, level, cached=False).past()


def compute_location(state: State) -> Iterator[State]:
    """A node inside a loop of its readers (in Ansor a part of the annotation).

    Offered are, outside of reductions, the last loop of each level of a tiled reader and every
    loop but the innermost of others.
    """
    node = state.node
    if node.name in state.dag.outputs or not node.is_plain or not state.is_untouched(node):
        return
    for loop in _locations(state, node):
        try:
            made = state.compute_at(node.name, loop)
        except UnderivableError:
            continue
        # Windows of overlapping tiles are not shown to agree, so such tiles stay on one thread.
        readers = {r.name for r in state.dag.readers[node.name]} & state.tiled
        yield replace(made, in_place=made.in_place | readers).past()


def _locations(state: State, node: Node) -> list[str]:
    for root in state.trees:
        touches = [t for x in leaves((root,)) for t in x.touches if t.buffer == node.name]
        if not isinstance(root, Band) or not touches or any(t.is_write for t in touches):
            continue
        chain = [b for b in chain_from(root) if not b.reduces]
        if chain and isinstance(chain[-1].body[0], Leaf):
            chain.pop()
        levels: dict[str, str] = {}
        for band in chain:
            axis, _, level = band.title.rpartition(".")
            levels[level if axis else band.title] = band.name
        return list(levels.values())[:2]
    return []


def skip(state: State) -> Iterator[State]:
    """Rule 1: the node stays as it is."""
    if not (state.dag.has_data_reuse(state.node) and state.node.name in state.cached):
        yield state.past()


RULES += [
    SketchRule("always inline", always_inline, is_exclusive=True),
    SketchRule("simplify constant tensor", simplify_constant_tensor, is_exclusive=True),
    SketchRule("reduction factorization", add_rfactor),
    SketchRule("add cache write", add_cache_write),
    SketchRule("tiling with fusion", tiling_with_fusion),
    SketchRule("multi-level tiling", multi_level_tiling, is_exclusive=True),
    SketchRule("compute location", compute_location),
    SketchRule("skip", skip),
]
