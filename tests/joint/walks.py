"""Random walks over graphs: rewrites one after the other, whatever they cost."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np

from whet.core.types import Array
from whet.graph.graph import Graph
from whet.graph.interpret import interpret
from whet.joint.recipe import follow_recipe, write_recipe
from whet.superopt.apply.axis_rules import merge_rewrites, part_rewrites, slice_rewrites
from whet.superopt.apply.match import Matcher
from whet.superopt.apply.rewrite import CycleError, Part, Rewrite, applied

CLOSE = 1e-6
"""Relative to the largest element, in double precision, where weights were folded in single."""


def all_rewrites(part: Part, matcher: Matcher | None) -> Iterator[Rewrite]:
    yield from slice_rewrites(part)
    yield from merge_rewrites(part)
    yield from part_rewrites(part)
    if matcher is not None:
        yield from matcher.rewrites(part)


def walk(
    graph: Graph, matcher: Matcher | None, rng: random.Random, steps: int
) -> tuple[Graph, list[str]]:
    """The graph after random rewrites, and their names."""
    part = Part(graph.inputs, graph.outputs)
    names: list[str] = []
    for _ in range(steps):
        found = list(all_rewrites(part, matcher))
        if not found:
            break
        by_rule: dict[str, list[Rewrite]] = {}
        for rewrite in found:
            by_rule.setdefault(rewrite.rule, []).append(rewrite)
        chosen = rng.choice(by_rule[rng.choice(sorted(by_rule))])
        try:
            part = applied(part, [chosen])
        except CycleError:
            raise AssertionError(f"{chosen} makes a cycle") from None
        names.append(chosen.rule)
    recipe = write_recipe(graph, part.outputs)
    assert recipe is not None
    return follow_recipe(recipe, graph), names


def inputs_for(graph: Graph, rng: np.random.Generator, tokens: int = 1000) -> list[Array]:
    """Mild random inputs."""
    arrays: list[Array] = []
    for value in graph.inputs:
        t = value.tensor_type
        if t.dtype.is_integer:
            arrays.append(rng.integers(0, tokens, t.shape).astype(t.dtype.numpy))
        else:
            arrays.append(rng.standard_normal(t.shape).astype(t.dtype.numpy))
    return arrays


def differ(before: Graph, after: Graph, arrays: Sequence[Array]) -> float:
    """The largest difference of outputs in double precision, relative to the largest element."""
    worst = 0.0
    for a, b in zip(
        interpret(before, arrays, precise=True), interpret(after, arrays, precise=True)
    ):
        if a.shape != b.shape or a.dtype != b.dtype:
            return np.inf
        if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            scale = max(float(np.nanmax(np.abs(a))), 1e-30)
            worst = max(worst, float(np.nanmax(np.abs(a - b))) / scale)
            if (np.isnan(a) != np.isnan(b)).any():
                return np.inf
    return worst
