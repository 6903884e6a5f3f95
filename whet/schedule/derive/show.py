"""Sketches as text, the way the paper prints them.

for i.0 in range(TILE_I0):
    for j.0 in range(TILE_J0):
        C[...] += A[...] * B[...]
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from whet.ir.expr import Expr, Select
from whet.ir.program import Store
from whet.schedule.derive.state import State
from whet.schedule.derive.trees import Band, Leaf, Local, Tree
from whet.schedule.program.primitives.dependence import as_update
from whet.schedule.program.steps import Hole


def show_sketch(state: State) -> str:
    """The loops of a sketch, tile sizes by name; start values are left out, as in the paper."""
    caches = {t: f"{t.removesuffix('_local')}.cache" for t in state.storage if t.endswith("_local")}
    return "\n".join(_lines(state.trees, 0, False, caches))


def _lines(trees: Sequence[Tree], depth: int, tiled: bool, caches: dict[str, str]) -> list[str]:
    found: list[str] = []
    pad = "    " * depth
    for tree in trees:
        match tree:
            case Local(body=body):
                found += _lines(body, depth, tiled, caches)
            case Band(body=body):
                inner = _lines(body, depth + 1, tiled or "." in tree.title, caches)
                if inner:
                    title = _plain(tree.title)
                    found += [f"{pad}for {title} in range({_extent(tree)}):", *inner]
            case Leaf(role="start"):
                continue
            case Leaf():
                found.append(pad + _statement(tree, tiled, caches))
    return found


def _plain(title: str) -> str:
    """The name of an axis without the number that tells it from others of that name."""
    return re.sub(r"_\d+(?=\.|$)", "", title)


def _extent(band: Band) -> str:
    """TILE_I0 for the first level of i, products for whole boxes; a number for a whole loop."""
    axis, _, level = _plain(band.title).rpartition(".")
    if not axis:
        return str(band.extent)
    first = int(level)
    if isinstance(band.extent, Hole):
        first = int(band.extent.name.rpartition(".")[2])
    last = max(first, int(level) - 1) if first < int(level) else int(level)
    return " * ".join(f"TILE_{axis.upper()}{n}" for n in range(first, last + 1))


def _statement(leaf: Leaf, tiled: bool, caches: dict[str, str]) -> str:
    written = caches.get(leaf.written.buffer, leaf.written.buffer)
    if leaf.store is None:
        read = leaf.touches[0].buffer
        return f"{written}[...] = {caches.get(read, read)}[...]"
    text = _value(leaf.store, tiled)
    if leaf.role == "update":
        update = as_update(leaf.store)
        assert update is not None
        sign = {"sum": "+", "prod": "*"}.get(update.kind, update.kind)
        return f"{written}[...] {sign}= {_elided(_shown(update.value))}"
    place = "..." if tiled else ", ".join(map(str, leaf.store.indices))
    return re.sub(r"\b([a-z])_\d+\b", r"\1", f"{written}[{place}] = {text}")


def _value(store: Store, tiled: bool) -> str:
    shown = _shown(store.value)
    return _elided(shown) if tiled else shown


def _shown(e: Expr) -> str:
    """An expression with choices written as in Python."""
    if isinstance(e, Select):
        return f"{_shown(e.then)} if {e.condition} else {_shown(e.other)}"
    return str(e)


def _elided(text: str) -> str:
    """A[i, k] * B[k, j]  ->  A[...] * B[...]"""
    return re.sub(r"\[[^\[\]]*\]", "[...]", text)
