"""The core: rules that do not follow from smaller ones.

A rule is derivable when E-matching with the rules kept so far proves it.  Rules are looked at in
order of size, so that what is kept at the end proves all the others.  Backtracking search wants
all rules (a derivation may pass through expensive graphs), equality saturation wants the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.core.executor import Progress
from whet.superopt.prune.terms import Found, Lexicon, Term, size_of, variables

EFFORT = 500_000
"""Where the solver gives up, in its own unit of work: unlike a time it is the same in every run."""


class _Theory:
    """Kept rules as universally quantified equations in a solver."""

    def __init__(self, lexicon: Lexicon) -> None:
        import z3

        self.z3, self.lexicon = z3, lexicon
        self.sort = z3.DeclareSort("T")
        self.functions: dict[tuple[int, int, int], Any] = {}
        self.solver = z3.SimpleSolver()
        self.solver.set("rlimit", EFFORT)
        self.solver.set(mbqi=False, auto_config=False)

    def term(self, term: Term, names: str) -> Any:
        if isinstance(term, int):
            return self.z3.Const(f"{names}{term}", self.sort)
        key = (self.lexicon.labels[term[0]], term[1], len(term) - 2)
        if key not in self.functions:
            name = f"f{key[0]}_{key[1]}"
            self.functions[key] = self.z3.Function(name, *[self.sort] * (key[2] + 1))
            if self.lexicon.commutative(term[0]):
                self._add_commutativity(self.functions[key])
        return self.functions[key](*(self.term(t, names) for t in term[2:]))

    def _add_commutativity(self, function: Any) -> None:
        x, y = (self.z3.Const(n, self.sort) for n in ("cx", "cy"))
        left = function(x, y)
        self.solver.add(self.z3.ForAll([x, y], left == function(y, x), patterns=[left]))

    def proves(self, rule: Found) -> bool:
        for left, right in zip(rule.left, rule.right):
            a, b = self.term(left, "c"), self.term(right, "c")
            self.solver.push()
            self.solver.add(a != b)
            answer = self.solver.check()
            self.solver.pop()
            if answer != self.z3.unsat:
                return False
        return True

    def add(self, rule: Found) -> None:
        for left, right in zip(rule.left, rule.right):
            a, b = self.term(left, "v"), self.term(right, "v")
            here, there = set(variables(left)), set(variables(right))
            # A side is a trigger if matching it binds all variables.
            patterns = [
                side
                for side, term, own in ((a, left, here), (b, right, there))
                if own >= here | there and not isinstance(term, int)
            ]
            bound = [self.z3.Const(f"v{v}", self.sort) for v in sorted(here | there)]
            if not bound:
                self.solver.add(a == b)
            elif patterns:
                self.solver.add(self.z3.ForAll(bound, a == b, patterns=patterns))


def core(rules: Sequence[Found], lexicon: Lexicon, progress: Progress | None = None) -> list[int]:
    """The positions of the rules that the smaller ones do not prove."""
    theory = _Theory(lexicon)

    def rank(n: int) -> tuple[int, int, int]:
        rule = rules[n]
        return rule.size, size_of(rule.left) + size_of(rule.right), n

    kept = []
    for done, n in enumerate(sorted(range(len(rules)), key=rank), start=1):
        if not theory.proves(rules[n]):
            theory.add(rules[n])
            kept.append(n)
        if progress is not None:
            progress(done, len(rules))
    return sorted(kept)
