"""Multi-level tiling of a node (Ansor, rules 3 and 4), as steps.

structure SSRSRS, level 2:

for i.0: for j.0: for i.1: for j.1:            the first two levels, of the node or its reader
  start values
  for k.0: for i.2: for j.2: for k.1: for i.3: for j.3:  update
  for i.4: for j.4:  reader, or the copy out of the scratch buffer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet.core.errors import check
from whet.ir.expr import Var
from whet.schedule.derive.dag import Node, axis_order
from whet.schedule.derive.state import Chain, State
from whet.schedule.program.steps import Hole


@dataclass(frozen=True)
class Levels:
    """A structure like SSRSRS, cut after some of its levels over elements."""

    structure: str
    level: int

    def __post_init__(self) -> None:
        check(set(self.structure) <= set("SR") and self.structure[: self.level] == "S" * self.level
              and self.level >= 1 and self.structure.endswith("S"), "WH2102",
              f"'{self.structure}' is no structure of tiles to join after {self.level} levels",
              hint="it begins and ends with S, like SSRSRS")  # fmt: skip

    @property
    def space(self) -> int:
        return self.structure.count("S")

    @property
    def reduced(self) -> int:
        return self.structure.count("R")

    @property
    def inner(self) -> str:
        return self.structure[self.level :]


def box_level(structure: str) -> int:
    """How many levels over elements come before the first reduced one."""
    return structure.index("R") if "R" in structure else len(structure) - 1


def fused_tiles(state: State, node: Node, reader: Node, structure: str, level: int) -> State:
    """The reader in tiles, and the node in tiles of tiles inside them."""
    levels = Levels(structure, level)
    pairs = _paired(node, reader)
    axes = [v for v in axis_order(node) if v in pairs]
    state = _with_chains(state, node, levels, overlap=True)
    outer = [pairs[v] for v in axes]
    state, last = _outer_tiles(state, axes, outer, levels)
    state = state.compute_at(node.name, last)
    box = [v.name for v in node.space]
    state = _inner_tiles(state, node, box, [v.name for v in axes], levels)
    return replace(state, tiled=state.tiled | {node.name, reader.name})


def own_tiles(state: State, node: Node, structure: str, level: int, *, cached: bool) -> State:
    """The node in tiles, kept in a scratch buffer each if `cached`."""
    levels = Levels(structure, level)
    axes = list(axis_order(node))
    state = _with_chains(state, node, levels, overlap=True)
    state, last = _outer_tiles(state, axes, axes, levels)
    if node.reduced and not cached:
        state = replace(state, in_place=state.in_place | {node.name})
    box = [f"{v}.{level}" for v in axes]
    state = _inner_tiles(state, node, box, box, levels, kept_at=last if cached else None)
    return replace(state, tiled=state.tiled | {node.name})


def _paired(node: Node, reader: Node) -> dict[Var, Var]:
    """The loops of a node with those of its elementwise reader over the same axes."""
    pairs = zip(node.stores[-1].indices, reader.stores[-1].indices)
    return {a: b for a, b in pairs if isinstance(a, Var) and isinstance(b, Var)}


def _with_chains(state: State, node: Node, levels: Levels, *, overlap: bool) -> State:
    chains = [Chain(node.extents[v], _holes(v, levels.space), overlap) for v in axis_order(node)]
    chains += [Chain(node.extents[v], _holes(v, levels.reduced), False) for v in node.reduced]
    return replace(state, chains=(*state.chains, *(c for c in chains if c.holes)))


def _holes(axis: Var, levels: int) -> tuple[str, ...]:
    return tuple(f"{axis}.{n}" for n in range(1, levels))


def _outer_tiles(
    state: State, axes: Sequence[Var], loops: Sequence[Var], levels: Levels
) -> tuple[State, str]:
    """The first levels around boxes, and the last loop around a box."""
    sizes = [tuple(Hole(h) for h in _holes(v, levels.space)[: levels.level]) for v in axes]
    parts = range(levels.level + 1)
    order = [f"{v}.{n}" for n in parts for v in loops]
    titles = {f"{b}.{n}": f"{a}.{n if n < levels.level else levels.space}"
              for a, b in zip(axes, loops) for n in parts}  # fmt: skip
    taken = state.names(order)
    state = state.tile([v.name for v in loops], sizes, order, titles)
    return state, taken[order.index(f"{loops[-1]}.{levels.level - 1}")]


def _inner_tiles(
    state: State,
    node: Node,
    box: Sequence[str],
    ordered: Sequence[str],
    levels: Levels,
    kept_at: str | None = None,
) -> State:
    """A box in the levels that are left; `ordered` are its loops in the order of memory.

    With `kept_at` it is in a scratch buffer during that loop.
    """
    axes = axis_order(node)
    loops = list(ordered)
    if node.reduced:
        fresh = dict(zip(box, state.names(list(box))))
        state = state.decompose(box)
        loops = [fresh[b] for b in ordered]
    if kept_at is not None:
        state = state.cache_write(node.name, kept_at)
    space = dict(zip(loops, axes))
    sizes = [tuple(Hole(h) for h in _holes(space[b], levels.space)[levels.level :]) for b in loops]
    sizes += [tuple(Hole(h) for h in _holes(v, levels.reduced)) for v in node.reduced]
    order: list[str] = []
    titles: dict[str, str] = {}
    count = {"S": 0, "R": 0}
    for letter in levels.inner:
        n = count[letter]
        count[letter] += 1
        parts = loops if letter == "S" else [v.name for v in node.reduced]
        order += [f"{x}.{n}" for x in parts]
        titles |= {f"{x}.{n}": f"{space[x]}.{levels.level + n}" if letter == "S" else f"{x}.{n}"
                   for x in parts}  # fmt: skip
    return state.tile([*loops, *(v.name for v in node.reduced)], sizes, order, titles)
