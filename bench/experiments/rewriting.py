"""Named rewrites applied to graphs: by shipped rules, along carried axes, or as the search does.

Everything works on parts; `finished` makes a graph of one, with the new weights computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from harness.pairs import price_of
from harness.tuning import native_engine
from whet.build.backend import backend_of
from whet.graph.graph import Constant, Graph, Result, Value
from whet.joint.kept import shared_matcher
from whet.joint.recipe import follow_recipe, write_recipe
from whet.joint.superoptimize import Superoptimizer
from whet.superopt.apply.axis_rules import merge_rewrites
from whet.superopt.apply.match import Matcher
from whet.superopt.apply.patterns import Patterns, directions
from whet.superopt.apply.rewrite import CycleError, Part, Rewrite, applied, disjoint
from whet.superopt.rules.files import shipped
from whet.tasks.layout import ChooseLayouts, choose_layouts

MOST_ROUNDS = 20
"""Times that a rewrite is applied wherever it fits."""

Rewrites = Callable[[Part], Iterable[Rewrite]]


def whole(graph: Graph) -> Part:
    return Part(graph.inputs, graph.outputs)


def finished(graph: Graph, part: Part) -> Graph:
    """The graph that the part has become."""
    recipe = write_recipe(graph, part.outputs)
    assert recipe is not None, "a rewrite made arrays of its own"
    return follow_recipe(recipe, graph)


def rule_rewrites(pattern: str) -> Rewrites:
    """All that one direction of a shipped rule allows; `pattern` is the name of the direction."""
    rules = [rule for rule in shipped() if any(p.name == pattern for p in directions(rule))]
    assert rules, f"no rule {pattern} is shipped"
    matcher = Matcher(Patterns(rules))
    return lambda part: (r for r in matcher.rewrites(part) if r.rule == pattern)


def merges(part: Part, of_weight: bool) -> Iterator[Rewrite]:
    """Products and convolutions put together: those of one weight, or those of one input."""
    for rewrite in merge_rewrites(part):
        nodes = [v.node for v in rewrite.old if isinstance(v, Result)]
        shared: set[Value] = set.intersection(*(set(node.inputs) for node in nodes))
        heavy = nodes[0].op.name in ("matmul", "conv")
        if heavy and shared and all(isinstance(v, Constant) == of_weight for v in shared):
            yield rewrite


def once(part: Part, rewrites: Rewrites) -> Part | None:
    """The part with the rewrites applied wherever they do not overlap; None if there are none."""
    chosen = disjoint(rewrites(part))
    if not chosen:
        return None
    try:
        return applied(part, chosen)
    except CycleError:  # each makes none by itself
        return applied(part, chosen[:1])


def everywhere(part: Part, rewrites: Rewrites) -> Part | None:
    """The same, again and again until there are none; None if there were none at first."""
    made = once(part, rewrites)
    for _ in range(MOST_ROUNDS):
        more = None if made is None else once(made, rewrites)
        if more is None:
            break
        made = more
    return made


@dataclass(frozen=True)
class Search:
    """The graph that a search has found, and how far it got."""

    graph: Graph
    states: int
    cut_off: bool
    """Whether its time was up before it was done."""

    def __str__(self) -> str:
        return f"{self.states} graphs priced" + (", then its time was up" if self.cut_off else "")


def searched(
    graph: Graph, threads: int, seconds: float, layouts: ChooseLayouts = choose_layouts
) -> Search:
    """The graph that the search finds with all its rewrites, by prices with such layouts.

    The first search on a graph spends its time on what later ones find done: those that are
    compared with each other must all have had one before.
    """
    holds = backend_of(native_engine().target).holds
    search = Superoptimizer(
        price_of(graph, threads), holds, lambda: shared_matcher("real"), seconds, layouts=layouts
    )
    found = search.run(graph)
    cut_off = search.left <= 0
    if found is None or found.outputs == graph.outputs:
        return Search(graph, search.states, cut_off)
    made = finished(graph, Part(graph.inputs, found.outputs))
    return Search(made, search.states, cut_off)
