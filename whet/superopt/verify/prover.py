"""Gate (a): a proof in first-order logic from the operators' laws.

Every law becomes up to two quantified implications, one per direction, each with its own side
as the trigger: an equation is used wherever either of its sides occurs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from whet.graph.attributes import Expression, ListOf, Literal
from whet.graph.laws import read_law
from whet.ops.base import Law
from whet.superopt.verify.assign import assignments
from whet.superopt.verify.axioms import Axiom, axioms_of, laws, operators, usable
from whet.superopt.verify.claims import Assignment, Claim
from whet.superopt.verify.extents import Fact, equal_extents, facts, ranks
from whet.superopt.verify.logic import (
    Language,
    NoTranslation,
    Translation,
    attribute_constant,
    list_name,
)
from whet.superopt.verify.outer import arguments
from whet.superopt.verify.solver import Answer, Problem

RESOURCES = 1_200_000
"""Steps of the solver before it gives up, about a third of a second: three times as many as any of
the shipped rules takes."""
FOR_FEWER = 60_000
"""Steps in which a proof from fewer axioms must be found: one that is there is found sooner than
from many, while to find that there is none may take for ever."""
ENOUGH = 12
"""Assignments from which facts about extents are drawn."""
ROUNDS = 2
"""How often the operators in play are widened by those of laws that apply to them."""


@dataclass(frozen=True)
class Proof:
    """Whether a proof was found, and the axioms it needs."""

    proved: bool
    axioms: tuple[str, ...] = ()
    problem: str = ""
    exhausted: bool = False
    """Whether there is no proof because everything was tried, and not because steps ran out."""


@dataclass(frozen=True)
class _Stated:
    """An axiom in the language, and the names of what must be known of its functions."""

    formulas: tuple[Any, ...]
    used: frozenset[str]


@dataclass(frozen=True)
class _Goals:
    """Formulas that must be impossible, output by output, and what may be assumed for each."""

    unequal: list[Any]
    assumed: list[Any]
    used: set[str]


class Prover:
    """Proves claims from laws; the laws are translated once per set of ranks."""

    def __init__(self, known: dict[str, Law] | None = None, resources: int = RESOURCES) -> None:
        self.resources = resources
        self.laws = {n: w for n, w in (known or laws()).items() if usable(w)}
        self.language = Language()
        self.translated: dict[Axiom, _Stated] = {}

    def prove(
        self, claim: Claim, at: Sequence[Assignment], known: Collection[str] | None = None
    ) -> Proof:
        """A proof that the sides agree; `at` are assignments at which both have types.

        What holds at a few shapes may be chance, and would make the assumptions false, so
        more are looked for if there are not enough.  Where a proof from the axioms `known` is
        said to exist, it is looked for first.
        """
        if len(at) < ENOUGH:
            at = tuple(dict.fromkeys((*at, *assignments(claim, ENOUGH, 0))))
        if not at:
            return Proof(False, problem="no shapes fit both sides")
        return self._proved_within(claim, at, known)

    def _proved_within(
        self, claim: Claim, at: Sequence[Assignment], known: Collection[str] | None
    ) -> Proof:
        """A proof of the claim, or of the equations of arguments from which it follows."""
        found = self._proved_at(claim, at, known)
        inner = () if found.proved else arguments(claim)
        used: set[str] = set()
        for smaller in inner:
            part = self._proved_within(smaller, at, known)
            if not part.proved:
                return found
            used.update(part.axioms)
        return Proof(True, tuple(sorted(used))) if inner else found

    def _proved_at(
        self, claim: Claim, at: Sequence[Assignment], known: Collection[str] | None
    ) -> Proof:
        """A proof that the sides agree, with what holds at the assignments for given."""
        try:
            goals = self._goals(claim, at)
        except NoTranslation as error:
            return Proof(False, problem=f"no translation of {error}")
        outputs = range(len(goals.unequal))
        relevant = self.relevant(claim, at[0])
        if known is not None:
            named = [a for a in relevant if a.name in known]
            problem = self._problem(goals, named)
            if all(problem.core(self.resources, named, n) is not None for n in outputs):
                return Proof(True, tuple(sorted({a.name for a in named})))
        # Among many axioms the solver's steps may end before a proof that a few of them give.
        inside = frozenset[str]().union(*(operators(t) for t in claim.sides))
        own = [a for a in relevant if a.operators <= inside]
        found = self._proved_from(own, goals)
        if found.proved or len(own) == len(relevant):
            return found
        return self._proved_from(relevant, goals)

    def _proved_from(self, axioms: Sequence[Axiom], goals: _Goals) -> Proof:
        """A proof of all outputs, and which of the axioms it needs."""
        problem = self._problem(goals, axioms)
        used: dict[str, None] = {}
        for n in range(len(goals.unequal)):
            answer = problem.answer(self.resources, axioms, n)
            if answer.core is None:
                return Proof(False, (), f"no proof of output {n}", answer.exhausted)
            used.update(dict.fromkeys(self._needed(problem, n, answer.core)))
        return Proof(True, tuple(sorted(used)))

    def relevant(self, claim: Claim, at: Assignment) -> list[Axiom]:
        """Axioms over operators that the claim uses, or that laws about those bring in."""
        every = ranks(claim.sides, at)
        wanted = frozenset(r for found in every.values() for r in found)
        wanted |= {r for _, r in claim.ranks}
        active = frozenset[str]().union(*(operators(t) for t in claim.sides))
        chosen: dict[Axiom, None] = {}
        for _ in range(ROUNDS):
            widened = active
            for name, law in self.laws.items():
                for axiom in self._applying(name, law, active, wanted):
                    chosen[axiom] = None
                    widened |= axiom.operators
            active = widened
        return list(chosen)

    def _applying(
        self, name: str, law: Law, active: frozenset[str], wanted: frozenset[int]
    ) -> Iterable[Axiom]:
        read = read_law(law)
        left, right = operators(read.left), operators(read.right)
        # A side that is a bare variable would match everything, so it starts nothing.
        starts = [side for side in (left, right) if side]
        if not any(side <= active for side in starts):
            return ()
        fitting = wanted | {0}
        return (a for a in axioms_of(name, law) if {r for _, r in a.ranks} <= fitting)

    # -------------------------------------------------------------------------------- axioms
    def translate(self, axiom: Axiom) -> _Stated:
        """The quantified formulas of an axiom: none if the language cannot say it."""
        if axiom not in self.translated:
            used: set[str] = set()
            try:
                formulas = tuple(self._formulas(axiom, used))
            except NoTranslation:
                formulas = ()
            self.translated[axiom] = _Stated(formulas, frozenset(used))
        return self.translated[axiom]

    def _formulas(self, axiom: Axiom, used: set[str]) -> Iterable[Any]:
        claim = axiom.claim
        tensors = {n: (self.language.tensor(n, r), r) for n, r in claim.ranks}
        attributes = {n: z3.Int(n) for n in claim.attributes}
        plain = Translation(self.language, tensors, attributes, ranks(claim.sides, axiom.at[0]))
        plain.used = used
        bound = [*(t for t, _ in tensors.values()), *attributes.values()]
        guards = [plain.guard(g) for g in claim.guards]
        sides = {"left": claim.left[0], "right": claim.right[0]}
        known = _facts(plain, facts(claim.sides, axiom.at))
        for name, trigger in sides.items():
            other = sides["right" if name == "left" else "left"]
            if name in axiom.partial:
                continue  # it would bring in terms that have no type
            reading = plain.abstracting()
            pattern = reading.terms(trigger)
            assert reading.abstracted is not None
            fresh = [f for f, _ in reading.abstracted]
            conditions = [f == value for f, value in reading.abstracted]
            free = _constants(pattern[0])
            if len(pattern) != 1 or not z3.is_app(pattern[0]) or pattern[0].num_args() == 0:
                continue
            if not {str(v) for v in (*bound, *fresh)} <= free:
                continue
            same = [a == b for a, b in zip(pattern, plain.terms(other), strict=True)]
            body = z3.Implies(z3.And([*guards, *conditions]), z3.And([*same, *known]))
            quantified = [*bound, *fresh]
            if quantified:
                yield z3.ForAll(quantified, body, patterns=[pattern[0]])
            else:
                yield body

    # --------------------------------------------------------------------------------- goals
    def _goals(self, claim: Claim, at: Sequence[Assignment]) -> _Goals:
        tensors = {n: (self.language.tensor(f"the {n}", r), r) for n, r in claim.ranks}
        values = dict(at[0].attributes)
        attributes = {
            n: attribute_constant(self.language, f"the {n}", v) for n, v in values.items()
        }
        reading = Translation(self.language, tensors, attributes, ranks(claim.sides, at[0]))
        reading.used = {list_name(len(v)) for v in values.values() if isinstance(v, tuple)}
        assumed = [reading.guard(g) for g in claim.guards]
        assumed += _facts(reading, facts(claim.sides, at))
        assumed += [
            self._extent(tensors, *a) == self._extent(tensors, *b) for a, b in equal_extents(at)
        ]
        left = [t for term in claim.left for t in reading.terms(term)]
        right = [t for term in claim.right for t in reading.terms(term)]
        if len(left) != len(right) or any(a.sort() != b.sort() for a, b in zip(left, right)):
            raise NoTranslation("sides with different outputs")
        return _Goals([a != b for a, b in zip(left, right)], assumed, reading.used)

    def _extent(self, tensors: Mapping[str, tuple[Any, int]], name: str, axis: int) -> Any:
        return self.language.dim(*tensors[name], z3.IntVal(axis))

    def _problem(self, goals: _Goals, axioms: Sequence[Axiom]) -> Problem[Axiom]:
        stated = {axiom: self.translate(axiom) for axiom in axioms}
        used = goals.used.union(*(s.used for s in stated.values()))
        given = [*goals.assumed, *self.language.known_of(used)]
        return Problem(given, goals.unequal, {a: s.formulas for a, s in stated.items()})

    def _needed(self, problem: Problem[Axiom], goal: int, needed: Sequence[Axiom]) -> list[str]:
        """Of the axioms that the solver names those that the goal's refutation needs."""
        for axiom in sorted(needed, key=lambda a: a.law.law.numeric == "exact"):
            fewer = [a for a in needed if a is not axiom]
            if problem.core(FOR_FEWER, fewer, goal) is not None:
                needed = fewer
        return list(dict.fromkeys(a.name for a in needed))

    def contradiction(self, given: Sequence[Any], axioms: Sequence[Axiom]) -> Answer[Axiom]:
        """Axioms that make the given formulas contradictory, if there are any."""
        goals = _Goals([z3.And(*given)], [], set())
        return self._problem(goals, axioms).answer(self.resources, axioms, 0)


def _facts(reading: Translation, found: Sequence[Fact]) -> list[Any]:
    formulas: list[Any] = []
    for fact in found:
        term = reading.term(fact.term)
        rank = reading.ranks[fact.term][0]
        formula = reading.language.dim(term, rank, z3.IntVal(fact.axis)) == reading.value(
            fact.formula
        )
        if fact.attribute is not None:
            value = reading.value(_as_literal(fact.value))
            formula = z3.Implies(reading.attributes[fact.attribute] == value, formula)
        formulas.append(formula)
    return formulas


def _as_literal(value: Any) -> Expression:
    return ListOf(tuple(map(_as_literal, value))) if isinstance(value, tuple) else Literal(value)


def _constants(term: Any) -> set[str]:
    """The names of the constants in a formula."""
    found: set[str] = set()
    stack = [term]
    while stack:
        t = stack.pop()
        if z3.is_const(t) and t.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found.add(str(t))
        stack.extend(t.children())
    return found
