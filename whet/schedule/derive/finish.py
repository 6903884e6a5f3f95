"""From a sketch to a structure: lanes, registers and unrolled loops for every nest (Ansor, 4.2).

    for k.1: for i.3: for j.3: C[...] += ...
        ->
    C_local in registers: for k.1: unroll i.3: unroll j.3.0: vector j.3.1: C_local[...] += ...

Ansor leaves accumulators to the compiler; here the sums of an innermost tile are in registers.
How many lanes there are, and the extents of all loops, stay holes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from whet.schedule.derive.factoring import rfactor
from whet.schedule.derive.state import Chain, State
from whet.schedule.derive.trees import Band, Leaf, Tree, bands, leaves, path_to
from whet.schedule.program.steps import Hole


def finish(state: State) -> State:
    """The structure of a sketch: every nest once, in the order of the text."""
    done: set[str] = set()
    while True:
        leaf = next((x for x in leaves(state.trees) if _innermost(state, x) not in done), None)
        if leaf is None:
            return state
        before = {_innermost(state, x) for x in leaves(state.trees)}
        done.add(_innermost(state, leaf))
        state = _finished(state, leaf)
        done |= {_innermost(state, x) for x in leaves(state.trees)} - before


def _around(state: State, leaf: Leaf) -> tuple[Tree, ...]:
    return path_to(state.trees, leaf) or ()


def _innermost(state: State, leaf: Leaf) -> str:
    """The name of the loop right around a statement, or what a statement without loops writes."""
    loops = [t for t in _around(state, leaf) if isinstance(t, Band)]
    return loops[-1].name if loops else f"{leaf.role} {leaf.written.buffer}"


def _perfect(around: Sequence[Tree]) -> list[Band]:
    """The loops at the end of a path that do nothing but what is inside, outermost first."""
    found: list[Band] = []
    for tree in reversed(around):
        if not isinstance(tree, Band) or (found and len(tree.body) > 1):
            break
        found.insert(0, tree)
    return found


def _finished(state: State, leaf: Leaf) -> State:
    chain = _perfect(_around(state, leaf))
    if not _around(state, leaf) and leaf.role == "start":
        return _scalar(state, leaf)
    if not chain or any(b.kind != "serial" for b in chain):
        return state
    inner = chain[-1].body
    if len(inner) > 1:
        return _reduction(state, chain) if _is_reduction(inner) else state
    reduced = [n for n, b in enumerate(chain) if b.reduces]
    if leaf.role != "update":
        return _in_lanes(state, leaf, chain, unrolled=False)[0]
    if not reduced or reduced[-1] == len(chain) - 1:
        return state
    return _register_tile(state, leaf, chain, reduced[-1])


def _is_reduction(body: Sequence[Tree]) -> bool:
    """A start value and loops, or one statement, that combine into it."""
    roles = [x.role for x in leaves(body)]
    return roles == ["start", "update"] and isinstance(body[0], Leaf) and len(body) == 2


# ---------------------------------------------------------------------------------------- lanes
def _vector_loop(state: State, leaf: Leaf, chain: Sequence[Band]) -> Band | None:
    """The loop along which what is written is closest together in memory."""
    stored = state.storage[leaf.written.buffer]
    places = {d: n for n, d in enumerate(stored.order)}
    found = [
        (places[d], n, band)
        for n, band in enumerate(chain)
        for d, index in enumerate(leaf.written.indices)
        if index.coefficient(band.name) == 1
    ]
    return max(found, key=lambda f: f[:2])[2] if found else None


def _lanes(state: State, band: Band, *, overlap: bool = True) -> tuple[State, Hole]:
    """The hole for the lanes of vectors along a loop: nests over the same tiles share it."""
    for n, chain in enumerate(state.chains):
        if isinstance(band.extent, Hole) and band.extent.name in chain.holes:
            if chain.has_lanes:
                return state, Hole(chain.holes[-1])
            hole = f"{chain.holes[0].rpartition('.')[0]}.lanes"
            longer = replace(chain, holes=(*chain.holes, hole), has_lanes=True)
            return replace(state, chains=(*state.chains[:n], longer, *state.chains[n + 1 :])), Hole(
                hole
            )
    hole = f"{band.name}.lanes"
    made = Chain(band.extent, (hole,), overlap, has_lanes=True)
    return replace(state, chains=(*state.chains, made)), Hole(hole)


def _in_lanes(
    state: State, leaf: Leaf, chain: Sequence[Band], *, unrolled: bool
) -> tuple[State, list[str]]:
    """A nest with vectors innermost, and the names of its loops afterwards."""
    vector = _vector_loop(state, leaf, chain)
    if vector is None:
        return state, [b.name for b in chain]
    state, hole = _lanes(state, vector)
    last = list(chain[chain.index(vector) :])
    names = [b.name for b in last]
    sizes = [(hole,) if b is vector else () for b in last]
    order = [f"{x}.0" for x in names if x != vector.name]
    order += [f"{vector.name}.0", f"{vector.name}.1"]
    fresh = dict(zip(_parts(names, sizes), state.names(_parts(names, sizes))))
    titles = {f"{b.name}.0": b.title for b in last}
    state = state.tile(names, sizes, order, titles, needs=vector.extent)
    state = state.mark(fresh[f"{vector.name}.1"], "vector")
    kept = [b.name for b in chain[: chain.index(vector)]] + [fresh[x] for x in order]
    for name in kept[:-1] if unrolled else ():
        state = state.mark(name, "unroll")
    return state, kept


def _parts(loops: Sequence[str], sizes: Sequence[Sequence[Hole]]) -> list[str]:
    """The parts that tiling makes, in the order in which it names them."""
    return [f"{x}.{n}" for x, chain in zip(loops, sizes) for n in range(len(chain) + 1)]


# ----------------------------------------------------------------------------------- reductions
def _register_tile(state: State, leaf: Leaf, chain: Sequence[Band], last: int) -> State:
    """The innermost tile of an update unrolled, its sums in registers while they grow."""
    state, _ = _in_lanes(state, leaf, chain[last + 1 :], unrolled=True)
    loop = chain[last].name
    state = replace(state, unrolls=(*state.unrolls, (f"{loop}.unroll", loop)))
    above = [b for b in chain[:last] if not b.reduces]
    if not above or not all(b.reduces for b in chain[chain.index(above[-1]) + 1 : last + 1]):
        return state
    return state.cache_write(leaf.written.buffer, above[-1].name, "register")


def _reduction(state: State, chain: Sequence[Band]) -> State:
    """A reduction that is not tiled: in lanes over elements, or over what is reduced."""
    body = chain[-1].body
    start, update = leaves(body)
    reduced = list(bands(body).values())
    if update.written.buffer in state.factored and reduced:
        return _factored(state, reduced[-1])
    space = [b for b in chain if not b.reduces]
    vector = _vector_loop(state, start, space)
    if vector is None or len(space) < len(chain):
        return state
    lanes, size = f"{vector.name}.lanes", f"{vector.name}.1"
    made = Chain(vector.extent, (size, lanes), may_overlap=True, has_lanes=True)
    state = replace(state, chains=(*state.chains, made))
    names = [b.name for b in chain[chain.index(vector) :]]
    sizes = [(Hole(size), Hole(lanes)) if x == vector.name else () for x in names]
    order = [f"{x}.0" for x in names if x != vector.name]
    order += [f"{vector.name}.{n}" for n in range(3)]
    fresh = dict(zip(_parts(names, sizes), state.names(_parts(names, sizes))))
    state = state.tile(names, sizes, order, {f"{b.name}.0": b.title for b in chain})
    outer, *tile = [fresh[f"{vector.name}.{n}"] for n in range(3)]
    again = state.names(tile)
    state = state.decompose(tile)
    if reduced:
        loops = [*again, *(b.name for b in reduced)]
        parts = [f"{x}.0" for x in loops]
        names_now = dict(zip(parts, state.names(parts)))
        state = state.tile(loops, [() for _ in loops], [*parts[2:], *parts[:2]])
        again = [names_now[x] for x in parts[:2]]
    for pair in (tile, again):
        state = state.mark(pair[0], "unroll").mark(pair[1], "vector")
    return state.cache_write(update.written.buffer, outer, "register")


def _scalar(state: State, start: Leaf) -> State:
    """A reduction to one number, which has no loops around it."""
    place = next(n for n, t in enumerate(state.trees) if t is start)
    reduced = list(bands(state.trees[place + 1 : place + 2]).values())
    is_factored = start.written.buffer in state.factored
    return _factored(state, reduced[-1]) if is_factored and reduced else state


def _factored(state: State, loop: Band) -> State:
    """Partial results of a reduction in lanes, combined at the end."""
    size, lanes = f"{loop.name}.1", f"{loop.name}.lanes"
    made = Chain(loop.extent, (size, lanes), may_overlap=False, has_lanes=True)
    state = replace(state, chains=(*state.chains, made))
    parts = [f"{loop.name}.0", f"{loop.name}.1"]
    inner = state.names(parts)[1]
    state = state.tile([loop.name], [(Hole(size),)], parts)
    before = set(state.bands)
    state = rfactor(state, inner, "local")
    first = next(b for b in state.bands if b not in before)
    for name in (first, inner):
        keys = [f"{name}.0", f"{name}.1"]
        fresh = state.names(keys)
        state = state.tile([name], [(Hole(lanes),)], keys)
        state = state.mark(fresh[0], "unroll").mark(fresh[1], "vector")
    return state
