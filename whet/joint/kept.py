"""Searches whose results are kept: a model that was searched once is rewritten at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from whet.build.backend import backend_of
from whet.build.keys import program_key
from whet.core.caching import FileCache
from whet.core.digest import digest_text
from whet.core.errors import GraphError
from whet.core.target import Target
from whet.graph.graph import Graph
from whet.joint.recipe import follow_recipe, form_digest, write_recipe
from whet.ops.base import Numeric

if TYPE_CHECKING:
    from whet.joint.clocks import Clock
    from whet.superopt.apply.match import Matcher
    from whet.superopt.apply.patterns import Patterns
    from whet.tasks.price import Price

KIND = "rewrites"
"""The kind of entries in the cache."""
WORTH_SEARCHING = 20e-6
"""Graphs that are expected to take less seconds are left alone: the time of a call is more."""
_SEARCHED: dict[str, Rewritten] = {}
"""Outcomes of this process: a graph that is made again is the same, also without a cache."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Rewrites that were taken together: which, in how many places, and the model's price before
    and after, in seconds."""

    rules: Mapping[str, int]
    places: int
    before: float
    after: float
    recipe: str | None = None
    """The model after them, as `Rewritten.recipe`."""
    engine: str = "backtracking"
    """The engine that found them."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The outcome of a search; `recipe` is None where the graph stays as it is."""

    recipe: str | None
    before: float
    after: float
    taken: tuple[Taken, ...]
    states: int

    def write(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def read(data: bytes) -> Rewritten:
        """Raises: `ValueError`, `KeyError` or `TypeError` for what is none."""
        found: dict[str, Any] = json.loads(data)
        taken = tuple(Taken(**t) for t in found.pop("taken"))
        return Rewritten(taken=taken, **found)


UNCHANGED = Rewritten(None, 0.0, 0.0, (), 0)


def cheaper_graph(
    graph: Graph,
    target: Target,
    threads: int,
    numerics: Numeric,
    cache: FileCache,
    seconds: float,
) -> tuple[Graph, Rewritten]:
    """The graph that is expected to be fastest, and how it was found.

    What was found before, here or by a search with measurements, is used again.
    """
    if len(graph.nodes) < 2:
        return graph, UNCHANGED
    key = _key(graph, target, threads, numerics)
    known = _SEARCHED.get(key) or _known(cache.get(KIND, key))
    if known is None:
        _SEARCHED[key] = UNCHANGED  # should the search fail, it fails once
        try:
            known = search(graph, target, threads, numerics, seconds)
        except MemoryError:  # whoever makes room for such values says so
            return graph, UNCHANGED
        cache.put(KIND, key, known.write())
    _SEARCHED[key] = known
    return rewritten_graph(graph, known), known


def remember(
    graph: Graph,
    target: Target,
    threads: int,
    numerics: Numeric,
    cache: FileCache,
    found: Rewritten,
) -> None:
    """Keeps an outcome for all later compilations of the graph."""
    key = _key(graph, target, threads, numerics)
    _SEARCHED[key] = found
    cache.put(KIND, key, found.write())


def rewritten_graph(graph: Graph, found: Rewritten) -> Graph:
    """The graph that was found, with the elements of its constants; as it is, if the recipe is one
    for another graph."""
    if found.recipe is None:
        return graph
    try:
        return follow_recipe(found.recipe, graph)
    except GraphError:
        return graph


def _key(graph: Graph, target: Target, threads: int, numerics: Numeric) -> str:
    return digest_text(form_digest(graph), target.to_json(), str(threads), numerics, program_key())


def _known(data: bytes | None) -> Rewritten | None:
    try:
        return None if data is None else Rewritten.read(data)
    except (ValueError, KeyError, TypeError):
        return None


def search(
    graph: Graph,
    target: Target,
    threads: int,
    numerics: Numeric,
    seconds: float,
    price: Price | None = None,
    checked: float | None = None,
    clock: Clock | None = None,
) -> Rewritten:
    """The outcome of one search, by analytic prices unless others are given.

    Blocks of up to `checked` seconds are compared with what they replace on numbers.  Without a
    clock, short searches count work.
    """
    from whet.joint.superoptimize import (  # unless it is known
        CHECKED_SECONDS,
        Superoptimizer,
        clock_for,
        engines_for,
    )
    from whet.tasks.price import no_evidence

    backend = backend_of(target)
    if price is None:
        price = backend.price(target, threads, numerics, no_evidence, graph.constant_bytes)
    kind: Numeric = "real" if numerics == "real" else "exact"
    limit = CHECKED_SECONDS if checked is None else checked
    matcher = lambda: shared_matcher(kind)
    engines = engines_for(seconds)
    search = Superoptimizer(
        price, backend.holds, matcher, seconds, checked=limit, engines=engines,
        clock=clock or clock_for(seconds),
    )  # fmt: skip
    found = search.run(graph, WORTH_SEARCHING)
    if found is None:
        return UNCHANGED
    changed = found.outputs is not graph.outputs
    recipe = write_recipe(graph, found.outputs) if changed else None
    taken = tuple(
        Taken(a.rules, a.times, a.before, a.after, write_recipe(graph, a.outputs), a.engine)
        for a in found.applied
        if recipe is not None
    )
    return Rewritten(recipe, found.before, found.after, taken, found.states)


@lru_cache(maxsize=2)
def shared_patterns(numerics: Numeric) -> Patterns:
    """The shipped rules as patterns, read once."""
    from whet.superopt.apply.patterns import Patterns
    from whet.superopt.rules.files import shipped

    return Patterns(shipped(), numerics)


def shared_matcher(numerics: Numeric) -> Matcher:
    """A matcher for one search: what it remembers of values ends with it."""
    from whet.superopt.apply.match import Matcher

    return Matcher(shared_patterns(numerics))
