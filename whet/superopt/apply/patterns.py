"""Rules as patterns: one side is looked for, the other takes its place.

A rule can be read in both directions; a direction is a pattern if what is looked for has all
tensors of what replaces it.  Patterns are found by the operator of their first term and of its
inputs, so that at a node only those are tried that may fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from whet.graph.attributes import Evaluator, compiled
from whet.graph.laws import read_law
from whet.graph.terms import Apply, Number, Term, Variable, subterms, tensor_names
from whet.ops.base import REGISTRY, Numeric
from whet.superopt.rules.rule import Role, Rule


@dataclass(frozen=True, eq=False)
class Pattern:
    """One direction of a rule."""

    rule: Rule
    source: tuple[Term, ...]
    target: tuple[Term, ...]
    backward: bool

    @property
    def name(self) -> str:
        return f"{self.rule.name}, backward" if self.backward else self.rule.name

    @property
    def numeric(self) -> Numeric:
        return self.rule.numeric

    @cached_property
    def roles(self) -> dict[str, tuple[int, Role]]:
        """The rank and the role of every tensor variable."""
        return {v.name: (v.rank, v.role) for v in self.rule.variables}

    @cached_property
    def conditions(self) -> tuple[Evaluator, ...]:
        """Guards, and equations between extents that the proof took from types."""
        return tuple(map(compiled, self.rule.conditions))

    @cached_property
    def regroups(self) -> bool:
        """Whether both sides apply one operator equally often: another order, and no other work."""
        used = [[t.op for s in side for t in subterms(s) if isinstance(t, Apply)]
                for side in (self.source, self.target)]  # fmt: skip
        return len(used[0]) > 1 and used[0] == used[1] and len(set(used[0])) == 1


class Patterns:
    """All patterns, by the operators that they begin with."""

    def __init__(self, rules: Iterable[Rule], numerics: Numeric = "real") -> None:
        allowed = [r for r in rules if r.numeric == "exact" or numerics == "real"]
        self.all = tuple(p for rule in allowed for p in directions(rule))
        self._by_root: dict[str, list[tuple[frozenset[str], Pattern]]] = {}
        for pattern in self.all:
            root = pattern.source[0]
            assert isinstance(root, Apply)
            needed = frozenset(t.op for t in root.inputs if isinstance(t, Apply))
            self._by_root.setdefault(root.op, []).append((needed, pattern))
        first = (p.source[0] for p in self.all if p.regroups)
        self.regrouped = frozenset(t.op for t in first if isinstance(t, Apply))
        """Operators whose operands may be put in another order: sums, products."""

    @cached_property
    def core(self) -> Patterns:
        """Patterns of rules that no others imply: enough where rewrites are combined anyway."""
        return Patterns(dict.fromkeys(p.rule for p in self.all if p.rule.core))

    def at(self, op: str, inputs: frozenset[str]) -> Iterator[Pattern]:
        """Patterns that may fit a node of that operator whose inputs are made by these."""
        for needed, pattern in self._by_root.get(op, ()):
            if needed <= inputs:
                yield pattern


def directions(rule: Rule) -> Iterator[Pattern]:
    """The directions in which a rule can be used on graphs."""
    for source, target, backward in ((rule.left, rule.right, False), (rule.right, rule.left, True)):
        known = {n for t in source for n in tensor_names(t)}
        if not all(isinstance(t, Apply) for t in source) or _only_weights(rule, source):
            continue
        if len(source) == 1 and swapped(source[0], target[0]) in commutative():
            continue  # matches are found modulo it
        if {n for t in target for n in tensor_names(t)} <= known and _binds(source) >= known:
            yield Pattern(rule, source, target, backward)


def _binds(source: tuple[Term, ...]) -> set[str]:
    """The tensors that stand in the terms themselves, not in attributes alone."""
    return {t.name for s in source for t in subterms(s) if isinstance(t, Variable)}


def _only_weights(rule: Rule, source: tuple[Term, ...]) -> bool:
    """Whether the terms speak of constants alone, which are computed once and for all."""
    weights = {v.name for v in rule.variables if v.role == "weight"}
    return any(
        all(n in weights for n in tensor_names(s)) for s in source if not isinstance(s, Number)
    )


@lru_cache(maxsize=1)
def commutative() -> frozenset[str]:
    """Operators of two inputs that may change places, by their laws."""
    found = set()
    for operator in REGISTRY.values():
        laws = operator.axioms if isinstance(operator.axioms, tuple) else ()
        found |= {swapped(read_law(w).left, read_law(w).right) for w in laws if not w.when}
    return frozenset(op for op in found if op is not None)


def swapped(left: Term, right: Term) -> str | None:
    """The operator that both sides apply to two variables, if they do so in both orders."""
    if not isinstance(left, Apply) or not isinstance(right, Apply):
        return None
    if left.op != right.op or left.attributes != right.attributes:
        return None
    two = len(left.inputs) == 2 and all(isinstance(t, Variable) for t in left.inputs)
    if not two or left.inputs[0] == left.inputs[1] or left.inputs != right.inputs[::-1]:
        return None
    return left.op
