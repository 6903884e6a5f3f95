"""Gate (a): a proof in first-order logic from the operators' laws.

Every law becomes up to two quantified implications, one per direction, each with its own side
as the trigger: an equation is used wherever either of its sides occurs.  Model-based
instantiation is off, so that "no proof" is answered fast instead of never.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from whet.superopt.verify.logic import Language, NoTranslation, Translation, attribute_constant

RESOURCES = 6_000_000
"""Steps of the solver before it gives up, about two seconds: a clock would give other answers on
another or a busy machine."""
ENOUGH = 12
"""Assignments from which facts about extents are drawn."""
ROUNDS = 2
"""How often the operators in play are widened by those of laws that apply to them."""

SOLVER = f"z3 {z3.get_version_string()}"


@dataclass(frozen=True)
class Proof:
    """Whether a proof was found, and the axioms it needs."""

    proved: bool
    axioms: tuple[str, ...] = ()
    problem: str = ""


class Prover:
    """Proves claims from laws; the laws are translated once per set of ranks."""

    def __init__(self, known: dict[str, Law] | None = None, resources: int = RESOURCES) -> None:
        self.resources = resources
        self.laws = {n: w for n, w in (known or laws()).items() if usable(w)}
        self.language = Language()
        self.translated: dict[Axiom, tuple[Any, ...]] = {}

    def prove(self, claim: Claim, at: Sequence[Assignment]) -> Proof:
        """A proof that the sides agree; `at` are assignments at which both have types.

        What holds at a few shapes may be chance, and would make the assumptions false, so
        more are looked for if there are not enough.
        """
        if len(at) < ENOUGH:
            at = assignments(claim, ENOUGH, 0)
        if not at:
            return Proof(False, problem="no shapes fit both sides")
        axioms = self.relevant(claim, at[0])
        try:
            goals, assumed = self._goals(claim, at)
        except NoTranslation as error:
            return Proof(False, problem=f"no translation of {error}")
        used: dict[str, None] = {}
        for n, goal in enumerate(goals):
            core = self._refute(goal, assumed, axioms)
            if core is None:
                return Proof(False, problem=f"no proof of output {n}")
            used.update(dict.fromkeys(core))
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
                    widened |= operators(axiom.law.left) | operators(axiom.law.right)
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
    def translate(self, axiom: Axiom) -> tuple[Any, ...]:
        """The quantified formulas of an axiom: none if the language cannot say it."""
        if axiom not in self.translated:
            try:
                self.translated[axiom] = tuple(self._formulas(axiom))
            except NoTranslation:
                self.translated[axiom] = ()
        return self.translated[axiom]

    def _formulas(self, axiom: Axiom) -> Iterable[Any]:
        claim = axiom.claim
        tensors = {n: (self.language.tensor(n, r), r) for n, r in claim.ranks}
        attributes = {n: z3.Int(n) for n in claim.attributes}
        plain = Translation(self.language, tensors, attributes, ranks(claim.sides, axiom.at[0]))
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
    def _goals(self, claim: Claim, at: Sequence[Assignment]) -> tuple[list[Any], list[Any]]:
        """What must be unsatisfiable for every output, and what may be assumed."""
        tensors = {n: (self.language.tensor(f"the {n}", r), r) for n, r in claim.ranks}
        values = dict(at[0].attributes)
        attributes = {
            n: attribute_constant(self.language, f"the {n}", v) for n, v in values.items()
        }
        reading = Translation(self.language, tensors, attributes, ranks(claim.sides, at[0]))
        assumed = [reading.guard(g) for g in claim.guards]
        assumed += _facts(reading, facts(claim.sides, at))
        assumed += [
            self._extent(tensors, *a) == self._extent(tensors, *b) for a, b in equal_extents(at)
        ]
        left = [t for term in claim.left for t in reading.terms(term)]
        right = [t for term in claim.right for t in reading.terms(term)]
        if len(left) != len(right) or any(a.sort() != b.sort() for a, b in zip(left, right)):
            raise NoTranslation("sides with different outputs")
        return [a != b for a, b in zip(left, right)], assumed

    def _extent(self, tensors: Mapping[str, tuple[Any, int]], name: str, axis: int) -> Any:
        return self.language.dim(*tensors[name], z3.IntVal(axis))

    def _refute(
        self, goal: Any, assumed: Sequence[Any], axioms: Sequence[Axiom]
    ) -> list[str] | None:
        """The axioms from which the goal is impossible; None if it may be possible.

        The solver names some that it needs; those that turn out to be superfluous are dropped.
        """
        given = [*assumed, goal]
        needed = self.core(given, axioms)
        if needed is None:
            return None
        for axiom in sorted(needed, key=lambda a: a.law.law.numeric == "exact"):
            fewer = [a for a in needed if a is not axiom]
            if self.core(given, fewer) is not None:
                needed = fewer
        return list(dict.fromkeys(a.name for a in needed))

    def core(self, given: Sequence[Any], axioms: Sequence[Axiom]) -> list[Axiom] | None:
        """Axioms that make the given formulas contradictory, or None."""
        solver = _solver(self.resources)
        tracked: dict[str, Axiom] = {}
        for axiom in axioms:
            for formula in self.translate(axiom):
                label = f"axiom {len(tracked)}"
                tracked[label] = axiom
                solver.assert_and_track(formula, label)
        for formula in (*given, *self.language.background):
            solver.add(formula)
        if solver.check() != z3.unsat:
            return None
        return list(dict.fromkeys(tracked[str(c)] for c in solver.unsat_core()))


def _solver(resources: int) -> Any:
    solver = z3.SimpleSolver()
    solver.set("rlimit", resources)
    solver.set("auto_config", False)
    solver.set("mbqi", False)
    solver.set("random_seed", 0)
    return solver


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
