"""Explanations of what a search has found: step by step the rules, why they hold, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from whet.graph.graph import Graph, Node
from whet.joint.difference import Compared, Difference, carried_names, compared
from whet.joint.kept import Rewritten, Taken
from whet.joint.recipe import follow_recipe
from whet.ops.base import Law, Numeric
from whet.superopt.apply.axis_rules import STATEMENTS
from whet.superopt.rules.files import shipped
from whet.superopt.rules.rule import Rule

BACKWARD = ", backward"
"""The end of the name of a rule that was used from right to left."""


@dataclass(frozen=True, slots=True)
class RuleUse:
    """A rule, what it says, and why it holds."""

    rule: str
    count: int
    """How often it was used in one place."""
    statement: str
    source: Literal["generated", "axis law"]
    proof: tuple[str, ...]
    numeric: Numeric


@dataclass(frozen=True, eq=False)
class Explained:
    """Rewrites that were taken together."""

    uses: tuple[RuleUse, ...]
    nodes: tuple[str, ...]
    """What the model calls the nodes that were replaced."""
    places: int
    before: float
    after: float
    """The price of the model, in seconds."""
    error: float
    """The distance of both sides on random inputs in double precision, relative to the largest
    element; only constants that are computed ahead are in single precision."""
    difference: Difference
    graphs: tuple[Graph, Graph]
    """The model before and after, with the names of its nodes."""

    @property
    def numeric(self) -> Numeric:
        return "exact" if all(use.numeric == "exact" for use in self.uses) else "real"


def explained(graph: Graph, outcome: Rewritten) -> Iterator[Explained]:
    """The steps of a search on the graph, in order."""
    before = graph
    for taken in outcome.taken:
        if taken.recipe is None:
            continue
        made = follow_recipe(taken.recipe, graph)
        found = compared(before, made)
        names = carried_names(found.difference, before.names)
        after = Graph(made.inputs, made.outputs, made.output_names, _of(made, names))
        yield _step(taken, found, before, after)
        before = after


def _of(graph: Graph, names: Mapping[Node, str]) -> dict[Node, str]:
    return {node: names[node] for node in graph.nodes if node in names}


def _step(taken: Taken, found: Compared, before: Graph, after: Graph) -> Explained:
    part = found.difference
    return Explained(
        tuple(rule_use(rule, count) for rule, count in taken.rules.items()),
        tuple(dict.fromkeys(before.names[n] for n in part.before if n in before.names)),
        taken.places,
        taken.before,
        taken.after,
        found.error,
        part,
        (before, after),
    )


def rule_use(name: str, count: int) -> RuleUse:
    """A rule with all that is known about it, by its name."""
    rule = _generated().get(name.removesuffix(BACKWARD))
    if rule is None:
        law, _, op = name.partition("-")
        proof = (f"read off the tensor expression of {op}",)
        return RuleUse(name, count, STATEMENTS[law].format(op=op), "axis law", proof, "exact")
    sides = (rule.rhs, rule.lhs) if name.endswith(BACKWARD) else (rule.lhs, rule.rhs)
    statement = "  ->  ".join(", ".join(side) for side in sides)
    if rule.when:
        statement += f"  when {', '.join(rule.when)}"
    return RuleUse(name, count, statement, "generated", tuple(_proof(rule)), rule.numeric)


def _proof(rule: Rule) -> Iterator[str]:
    """The laws of the certificate, with what they say."""
    assert rule.certificate is not None
    for name in rule.certificate.axioms:
        law = _laws().get(name)
        yield f"{name}: {law.text}" if law is not None else name


@lru_cache(maxsize=1)
def _generated() -> Mapping[str, Rule]:
    return {rule.name: rule for rule in shipped(certified=True)}


@lru_cache(maxsize=1)
def _laws() -> Mapping[str, Law]:
    from whet.superopt.verify.axioms import laws
    from whet.superopt.verify.lemmas import LEMMAS

    return {**laws(), **LEMMAS}
