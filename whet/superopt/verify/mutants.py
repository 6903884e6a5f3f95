"""Rules made false on purpose, to see that the gates notice.

A mutant changes one thing of one side of a rule: an operator, an operand, an attribute, the
order of operands; if that does not make enough of them, two things.  It counts only if it is
false beyond doubt, which is decided without the gates: both sides are computed by the operators'
NumPy meaning on small integers, where double precision is exact (but for averages, whose
rounding is far below any difference), on 200 shapes.  What agrees on all of them is no mutant.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from whet.core.executor import Executor, Progress
from whet.graph.attributes import Expression, ListOf, Literal
from whet.graph.terms import Apply, Term, Variable
from whet.superopt.rules.rule import Rule
from whet.superopt.verify.assign import search
from whet.superopt.verify.bounded import check_bounded
from whet.superopt.verify.gates import claim, shared_prover
from whet.superopt.verify.identity import Sides, check_identity
from whet.superopt.verify.prover import Prover

SHAPES = 200
PAIRED = 4
"""Second changes that are tried on top of each first one."""
RESOURCES = 600_000
"""Steps of the solver for a mutant, fewer than a rule gets: what is false uses up all that there
are, while the shipped rules take at most 400,000."""
GATES = ("prover", "identity", "bounded")
KIN = (("add", "mul", "sub", "maximum", "minimum"), ("relu", "neg", "abs", "tanh"),
       ("max_pool", "avg_pool"))  # fmt: skip
"""Operators that take each other's place."""


@dataclass(frozen=True)
class Mutant:
    """A false rule, with the shapes at which it was seen to be false."""

    rule: Rule
    change: str
    witness: str


@dataclass(frozen=True)
class Kills:
    """Which gates noticed a mutant."""

    mutant: Mutant
    prover: bool
    identity: bool
    bounded: bool

    @property
    def passed(self) -> bool:
        """Whether it got through all gates."""
        return not (self.prover or self.identity or self.bounded)


def mutants(rule: Rule, seed: int, limit: int) -> Iterator[Mutant]:
    """Up to `limit` false variants of the rule."""
    rng = np.random.default_rng(seed)
    seen = {(rule.lhs, rule.rhs)}
    made = 0
    for change, mutated in _shuffled_variants(rule, rng):
        if made >= limit:
            return
        text = (mutated.lhs, mutated.rhs)
        if text in seen:
            continue
        seen.add(text)
        witness = falsity(mutated, seed)
        if witness is not None:
            made += 1
            yield Mutant(mutated, change, witness)


def falsity(rule: Rule, seed: int, shapes: int = SHAPES) -> str | None:
    """An assignment at which the sides differ on integers; None if there is none among many."""
    tested = claim(rule)
    rng = np.random.default_rng(seed)
    for at in itertools.islice(search(tested, seed + 1), shapes):
        sides = Sides(tested, at)
        if sides.types_differ() is None and sides.numbers_differ(rng) is not None:
            return str(at)
    return None


def find_and_judge(
    rules: Sequence[Rule],
    wanted: int,
    seed: int,
    executor: Executor,
    progress: Progress | None = None,
) -> list[Kills]:
    """The gates' answers on at least `wanted` mutants, if the rules have so many."""
    shares = _shares(wanted, len(rules))
    tasks = [(r, seed, 0, n) for r, n in zip(rules, shares)]
    found = executor.map(judge_mutants, tasks, progress=progress)
    missing = wanted - sum(map(len, found))
    able = [n for n, kills in enumerate(found) if len(kills) == shares[n]]
    if missing > 0 and able:
        # Small rules have few variants: the others make up for them.
        more = zip(able, _shares(missing, len(able)))
        tasks = [(rules[n], seed, shares[n], shares[n] + k) for n, k in more if k]
        found += executor.map(judge_mutants, tasks, progress=progress)
    return [k for kills in found for k in kills]


def _shares(wanted: int, rules: int) -> list[int]:
    """The number of mutants of each rule: as even as can be, and `wanted` in all."""
    return [wanted * (n + 1) // rules - wanted * n // rules for n in range(rules)]


def judge_mutants(task: tuple[Rule, int, int, int]) -> tuple[Kills, ...]:
    """For an executor: what the gates say about mutants of a rule (rule, seed, from, to)."""
    rule, seed, first, end = task
    chosen = itertools.islice(mutants(rule, seed, end), first, None)
    return tuple(judge(m, _quick_prover(), seed) for m in chosen)


@functools.cache
def _quick_prover() -> Prover:
    """One for all mutants that a process judges: it keeps the axioms that it has translated."""
    return Prover(shared_prover().laws, RESOURCES)


def judge(mutant: Mutant, prover: Prover, seed: int = 0) -> Kills:
    """Ask every gate by itself."""
    tested = claim(mutant.rule)
    numeric = check_identity(tested, seed)
    symbolic = check_bounded(tested, seed)
    proof = prover.prove(tested, numeric.at)
    return Kills(mutant, not proof.proved, not numeric.passed, not symbolic.passed)


# ------------------------------------------------------------------------------------ variants
def _shuffled_variants(rule: Rule, rng: np.random.Generator) -> Iterator[tuple[str, Rule]]:
    """Single changes in random order, then pairs of changes."""
    singles = list(dict.fromkeys(_variants(rule)))
    order = [singles[int(n)] for n in rng.permutation(len(singles))]
    yield from order
    for change, mutated in order:
        twice = list(dict.fromkeys(_variants(mutated)))
        for n in rng.permutation(len(twice))[:PAIRED]:
            second, both = twice[int(n)]
            yield f"{change}; {second}", both


def _variants(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """(what is changed, the rule with it) for every single change of either side."""
    plain = dataclasses.replace(rule, certificate=None)
    names = {v.name: v.rank for v in rule.variables}
    for side, terms in (("rhs", rule.right), ("lhs", rule.left)):
        texts: tuple[str, ...] = getattr(rule, side)
        for n, term in enumerate(terms):
            for change, changed in _changes(term, names):
                mutated = (*texts[:n], str(changed), *texts[n + 1 :])
                yield f"{side}: {change}", dataclasses.replace(plain, **{side: mutated})  # type: ignore[arg-type]
    if len(rule.rhs) > 1:
        yield "outputs reordered", dataclasses.replace(plain, rhs=rule.rhs[::-1])


def _changes(term: Term, names: dict[str, int]) -> Iterator[tuple[str, Term]]:
    if isinstance(term, Variable):
        for other, rank in names.items():
            if other != term.name and rank == names[term.name]:
                yield f"{term} becomes {other}", Variable(other)
        return
    if not isinstance(term, Apply):
        return
    yield from _changed_operator(term)
    for n, (key, value) in enumerate(term.attributes):
        for changed in _changed_attribute(value):
            attributes = list(term.attributes)
            attributes[n] = (key, changed)
            text = f"{key}={value} becomes {changed}"
            yield text, dataclasses.replace(term, attributes=tuple(attributes))
    for n, inner in enumerate(term.inputs):
        for change, changed_inner in _changes(inner, names):
            inputs = (*term.inputs[:n], changed_inner, *term.inputs[n + 1 :])
            yield change, dataclasses.replace(term, inputs=inputs)


def _changed_operator(term: Apply) -> Iterator[tuple[str, Term]]:
    for kin in KIN:
        if term.op in kin:
            for other in kin:
                if other != term.op:
                    yield f"{term.op} becomes {other}", dataclasses.replace(term, op=other)
    if len(term.inputs) > 1:
        swapped = (term.inputs[1], term.inputs[0], *term.inputs[2:])
        yield f"operands of {term.op} swapped", dataclasses.replace(term, inputs=swapped)
        for n, kept in enumerate(term.inputs):
            yield f"{term.op} dropped, operand {n} kept", kept
    elif term.inputs and term.result is None:
        yield f"{term.op} dropped", term.inputs[0]
    if term.result is not None:
        yield "another output", dataclasses.replace(term, result=1 - min(term.result, 1))
    yield "doubled", Apply("add", (term, term))
    yield "relu added", Apply("relu", (term,))


def _changed_attribute(value: Expression) -> Iterator[Expression]:
    if isinstance(value, Literal) and type(value.value) is int:
        yield Literal(value.value + 1)
        if value.value:
            yield Literal(value.value - 1)
    elif isinstance(value, Literal) and isinstance(value.value, bool):
        yield Literal(not value.value)
    elif isinstance(value, ListOf):
        if len(value.items) > 1 and value.items[0] != value.items[1]:
            yield ListOf((value.items[1], value.items[0], *value.items[2:]))
        for n, item in enumerate(value.items):
            for changed in _changed_attribute(item):
                yield ListOf((*value.items[:n], changed, *value.items[n + 1 :]))


def tally(kills: Sequence[Kills]) -> list[list[str]]:
    """Rows of a table: kinds of changes with how many mutants each gate noticed; then all."""
    kinds: dict[str, list[Kills]] = {}
    for k in kills:
        kinds.setdefault(_kind(k.mutant.change), []).append(k)
    rows = [_row(kind, members) for kind, members in sorted(kinds.items())]
    return [*rows, _row("all", kills)]


def _row(name: str, kills: Sequence[Kills]) -> list[str]:
    noticed = [sum(getattr(k, gate) for k in kills) for gate in GATES]
    return [name, *map(str, (len(kills), *noticed, sum(k.passed for k in kills)))]


def _kind(change: str) -> str:
    """The kind of change, without its details."""
    if ";" in change:
        return "two changes"
    what = change.split(": ")[-1]
    for sign, kind in (("=", "attribute"), ("swapped", "operands swapped"),
                       ("dropped", "operator dropped"), ("output", "outputs"),
                       ("doubled", "doubled"), ("relu added", "relu added")):  # fmt: skip
        if sign in what:
            return kind
    first = what.split(" ")[0]
    return "operator" if any(first in kin for kin in KIN) else "operand"
