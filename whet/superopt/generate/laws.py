"""Laws of operators as candidates for rules.

A law is an equation that an operator's class states and that tests found no fault with
(`whet.superopt.verify.axioms`).  As a rule it also passes the gates by itself:

    avg_pool(conv(x, w, ...), ...) = conv(avg_pool(x, ...), w, ...) when dim(w, 2) == 1
    ->  rule law-avg_pool-conv-...  with x activation 4, w weight 4

It becomes a candidate for each of the ranks that networks have and at which it is used: one whose
operands are activations but for filters, numbers and vectors, one where all are constants that
often are, and one for each of these alone.  Laws that differ only in the part of a split that they
speak of are one rule with several outputs.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from whet.graph.attributes import Expression, Infix, ListOf, Literal, Measure
from whet.graph.laws import read_law
from whet.graph.terms import Apply, Term, Variable, subterms, tensor_names
from whet.ops import weights
from whet.ops.base import REGISTRY, Law
from whet.superopt.rules.rule import Rule, Variable as Input
from whet.superopt.verify.axioms import axioms_of, usable
from whet.superopt.verify.report import Report

OF_WEIGHTS = {name for name, cls in REGISTRY.items() if cls.__module__ == weights.__name__}
"""Operators that rules compute filters with, and that networks do not contain."""
WINDOWS = {"conv", "conv_transpose", "avg_pool", "max_pool", "lp_pool"}
AMONG_VOLUMES = {"add", "mul", "relu", "maximum", "minimum", "concat", "split", "slice"}
RANKS_OF_WINDOWS, RANK_OF_VOLUMES = (4, 5), 5
RANKS = (2, 3, 4)
"""The ranks of the largest operand that networks have."""
FILTERS = (("conv", 1), ("conv_transpose", 1))
"""Operands that are constants of the model."""
OFTEN_CONSTANT = (*FILTERS, *((op, 1) for op in ("matmul", "add", "sub", "mul", "div", "maximum",
                                                 "minimum", "prelu", "pad")))  # fmt: skip
"""Operands that may be, and often are."""
LITERAL = ("perm", "axis", "axes")
"""Attributes whose numbers name axes: they belong to a law, where others are an example's."""
_PART = re.compile(r"\)\[(\d+)\]")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b(?![(=])")
"""A name that is no operator's and no attribute's."""


@dataclass(frozen=True, slots=True)
class LawCandidates:
    """Rules to be proved, and laws that become none, each with the reason."""

    rules: tuple[Rule, ...]
    left_out: tuple[tuple[str, str], ...]


def law_candidates(known: Mapping[str, Law]) -> LawCandidates:
    """The laws as rules, without repetitions."""
    rules: dict[str, Rule] = {}
    left_out: list[tuple[str, str]] = []
    for names in _of_one_split(known):
        made, problem = _rules(names, [known[n] for n in names])
        left_out += [(n, problem) for n in names if problem]
        for rule in made:
            rules.setdefault(meaning(rule), rule)
    return LawCandidates(tuple(rules.values()), tuple(left_out))


def without_repetitions(rules: Sequence[Rule], known: Collection[Rule]) -> tuple[Rule, ...]:
    """The rules that say something that those known do not say in other words."""
    said = {meaning(rule) for rule in known}
    return tuple(rule for rule in rules if meaning(rule) not in said)


def as_stated(reports: Sequence[Report]) -> tuple[Report, ...]:
    """The reports on laws: one that holds only with further guards is not the law."""
    return tuple(
        dataclasses.replace(r, outcome="unproved", hint="it is proved with further guards only")
        if r.added_guards
        else r
        for r in reports
    )


def _of_one_split(known: Mapping[str, Law]) -> Iterator[tuple[str, ...]]:
    """The laws that differ only in the part of a split, together; others alone.

    split(relu(x), ...)[0] = relu(split(x, ...)[0]),  split(relu(x), ...)[1] = ...
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for name, law in known.items():
        parts = set(_PART.findall(law.text))
        left, right = map(str, (read_law(law).left, read_law(law).right))
        everywhere = len(parts) == 1 and _PART.search(left) and _PART.search(right)
        text = _PART.sub(")[]", law.text) if everywhere else law.text
        found.setdefault((text, *law.when, str(law.example)), []).append(name)
    return map(tuple, found.values())


def _rules(names: tuple[str, ...], laws: Sequence[Law]) -> tuple[list[Rule], str]:
    """The rules of laws that belong together, or why there are none."""
    read = [read_law(law) for law in laws]
    if not usable(laws[0]):
        return [], "it speaks of elements"
    left, right = tuple(r.left for r in read), tuple(r.right for r in read)
    if left == right:
        return [], "both sides are the same"
    if _operators((*left, *right)) & OF_WEIGHTS:
        return [], "networks do not contain its operators"
    if "cast" in _operators((*left, *right)):
        return [], "it speaks of element types, and rules of tensors of any"
    if _is_example((*left, *right), read[0].guards):
        return [], "it is stated for the numbers of an example"
    if not all(axioms_of(name, law) for name, law in zip(names, laws)):
        return [], "the gates have no elements of the types that it needs"
    made = []
    at = [axiom.ranks for axiom in axioms_of(names[0], laws[0])]
    for ranks in (r for r in at if _is_usual((*left, *right), max((n for _, n in r), default=0))):
        for constant in _constants(left, right, dict(ranks)):
            inputs = tuple(Input(n, r, "weight" if n in constant else "activation")
                           for n, r in ranks)  # fmt: skip
            sides = (tuple(map(str, left)), tuple(map(str, right)))
            rule = Rule("", inputs, *sides, laws[0].when, laws[0].numeric, stated_by=names)
            made.append(_named(rule))
    return made, "" if made else "networks have no values of these ranks"


def _named(rule: Rule) -> Rule:
    """The rule under the operators of its left side."""
    ops = (t.op for side in rule.left for t in reversed([*subterms(side)]) if isinstance(t, Apply))
    named = "-".join(itertools.islice(dict.fromkeys(ops), 3))
    return dataclasses.replace(rule, name=f"law-{named}-{rule.hash[:8]}")


def _operators(terms: Sequence[Term]) -> set[str]:
    return {t.op for term in terms for t in subterms(term) if isinstance(t, Apply)}


def _is_usual(terms: Sequence[Term], rank: int) -> bool:
    """Whether networks apply these operators to values of this rank."""
    ops = _operators(terms)
    if ops & WINDOWS:
        return rank in RANKS_OF_WINDOWS
    if rank == RANK_OF_VOLUMES:
        return ops <= AMONG_VOLUMES
    return rank in RANKS


def _is_example(terms: Sequence[Term], guards: Sequence[Expression]) -> bool:
    """Whether the law is about the numbers of its example: extents, strides, sizes."""
    applied = (t for term in terms for t in subterms(term) if isinstance(t, Apply))
    for name, value in ((k, e) for t in applied for k, e in t.attributes):
        items = value.items if isinstance(value, ListOf) else (value,)
        numbers = (e.value for e in items if isinstance(e, Literal))
        if name not in LITERAL and any(type(v) is int and v > 1 for v in numbers):
            return True
    return any(
        isinstance(g, Infix) and g.op == "==" and isinstance(g.left, Measure)
        and g.left.kind == "dim" and isinstance(g.right, Literal) and g.right.value != 1
        for g in guards
    )  # fmt: skip


def _constants(
    left: Sequence[Term], right: Sequence[Term], ranks: Mapping[str, int]
) -> Iterator[frozenset[str]]:
    """The variables that are constants: filters, numbers and vectors, and then also those that
    often are, one by one and all."""
    sides = [(_names(side), side) for side in (left, right)]
    often = {
        name
        for name in ranks
        if all(name not in names or name in _beneath(side, OFTEN_CONSTANT) for names, side in sides)
    }
    small = {name for name in often if ranks[name] < max(ranks.values())}
    always = _beneath(left, FILTERS) | _beneath(right, FILTERS) | small
    more = [frozenset({name}) for name in sorted(often - always)]
    for found in dict.fromkeys(frozenset(always | some) for some in (set(), *more, often)):
        if found != set(ranks):
            yield found


def _names(terms: Sequence[Term]) -> set[str]:
    return {n for t in terms for n in tensor_names(t)}


def _beneath(terms: Sequence[Term], places: Collection[tuple[str, int]]) -> set[str]:
    """The variables all of whose uses are in operands at these places."""
    inside: set[str] = set()
    outside: set[str] = set()

    def visit(term: Term, constant: bool) -> None:
        if isinstance(term, Variable):
            (inside if constant else outside).add(term.name)
        elif isinstance(term, Apply):
            for n, inner in enumerate(term.inputs):
                visit(inner, constant or (term.op, n) in places)

    for term in terms:
        visit(term, False)
    return inside - outside


def meaning(rule: Rule) -> str:
    """The rule's claim in names that do not depend on those of its variables, nor on the order of
    its sides."""
    return min(_in_order(rule, rule.lhs, rule.rhs), _in_order(rule, rule.rhs, rule.lhs))


def _in_order(rule: Rule, first: Sequence[str], second: Sequence[str]) -> str:
    """The claim with variables numbered as they appear."""
    roles = {v.name: f"{v.role[0]}{v.rank}" for v in rule.variables}
    numbers: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        word = found.group()
        if word in ("true", "false", "inf", "nan", "and", "or", "None"):
            return word
        return numbers.setdefault(word, f"{roles.get(word, 'attribute')}.{len(numbers)}")

    texts = [_WORD.sub(numbered, t) for t in (*first, "=", *second)]
    guards = sorted(_WORD.sub(numbered, g) for g in rule.when)
    return "; ".join((*texts, "when", *guards))
