"""Guards that may save a refuted rule."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from whet.graph.attributes import read_expression
from whet.superopt.rules.rule import Rule
from whet.superopt.verify.assign import holds
from whet.superopt.verify.identity import Counterexample

TRIED = 40
"""Guards that a refuted rule is retried with."""


def equal_shapes(rule: Rule) -> list[str]:
    """`shape(x) == shape(y)` for all inputs of one rank."""
    pairs = itertools.combinations(rule.variables, 2)
    return [f"shape({a.name}) == shape({b.name})" for a, b in pairs if a.rank == b.rank]


def inner_axes(rule: Rule) -> list[str]:
    """Equations between the axes of activations and weights that products sum over."""
    pairs = itertools.combinations(rule.variables, 2)
    return [f"dim({a.name}, 1) == dim({b.name}, {0 if a.rank == 2 else 1})"
            for a, b in pairs if a.rank == b.rank > 1 and a.role != b.role]  # fmt: skip


def candidate_guards(rule: Rule, wrong: Counterexample) -> Iterator[tuple[str, ...]]:
    """Guards that exclude the counterexample: one, then two, then three at a time."""
    attributes, shapes = dict(wrong.at.attributes), dict(wrong.at.shapes)
    # What is tried does not depend on the counterexample, so that another seed finds the same.
    for guards in itertools.islice(_guards(rule, attributes), TRIED):
        if not all(holds(read_expression(g), attributes, shapes) for g in guards):
            yield guards


def _guards(rule: Rule, attributes: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    inner = inner_axes(rule)
    equal = equal_shapes(rule)
    equal += [f"dim({v.name}, 0) == dim({v.name}, 1)" for v in rule.variables if v.rank == 2]
    ones = [f"{n} == 1" for n, v in attributes.items() if type(v) is int]
    lists = {n: len(v) for n, v in attributes.items() if isinstance(v, tuple)}
    plain = [f"{n} == [{', '.join('1' * k)}]" for n, k in lists.items()]
    zeros = [f"{n} == [{', '.join('0' * k)}]" for n, k in lists.items()]
    yield from ((g,) for g in (*ones, *inner, *equal, *plain, *zeros))
    yield from itertools.combinations(inner, 2)
    for n in (2, 3):
        yield from itertools.combinations([*ones, *equal], n)
