"""The laws as a whole: lemmas, contradictions, superfluous laws.

A set of equations is contradictory if it makes two different tensors equal.  TASO's authors
met that trap: a `split` that cuts where the last `concat` joined, together with the law that
concat is associative, makes all tensors equal.  Here a split says its sizes, so that the same
law is harmless; the check stays, for every law that is added (`whet rules laws`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import z3

from whet.graph.laws import read_law
from whet.graph.terms import Term, tensor_names
from whet.ops.base import Law
from whet.superopt.verify.assign import assignments
from whet.superopt.verify.axioms import Axiom, axioms_of, claim_of, operators, usable
from whet.superopt.verify.extents import ranks
from whet.superopt.verify.lemmas import LEMMAS
from whet.superopt.verify.logic import Language, NoTranslation, Translation
from whet.superopt.verify.prover import Proof, Prover

CONSTANTS = 3
SEEDS = 4000
"""Terms that a search for contradictions starts from."""
RESOURCES = 600_000
"""Steps of the solver for each question about a law, about a sixth of a second."""

Outcome = Literal["found", "none", "undecided"]


@dataclass(frozen=True)
class Finding:
    """The result of a search, with the laws behind what was found.

    `none` says that everything was tried; what a limit ended, or what has no words in the
    language of the prover, is `undecided`, and `problem` says why.
    """

    outcome: Outcome
    laws: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Checked:
    """A law among all others: whether it contradicts them, and whether it follows from them."""

    contradiction: Finding
    redundancy: Finding


LIMIT = Finding("undecided", (), "the solver's limit")


def with_lemmas(prover: Prover) -> Prover:
    """A prover that also knows the lemmas that this one proves."""
    proved = {name: w for name, w in LEMMAS.items() if _proof(prover, _own(name, w)).proved}
    return Prover({**prover.laws, **proved}, prover.resources)


def check_law(name: str, known: Mapping[str, Law]) -> Checked:
    """The findings about one of the laws."""
    if not usable(known[name]):
        silent = Finding("undecided", (), "it speaks of elements")
        return Checked(silent, silent)
    return Checked(contradiction(name, known), redundancy(name, known))


def _at_all_ranks(name: str, stated: Law) -> tuple[Axiom, ...]:
    """The law as axioms; one that did not survive testing, or was not tested, as it is stated."""
    return axioms_of(name, stated) or (_own(name, stated),)


def _own(name: str, stated: Law) -> Axiom:
    """The law at the ranks of its example."""
    read = read_law(stated)
    own = tuple((n, len(s)) for n, s in read.shapes.items())
    return Axiom(name, read, own, assignments(claim_of(read, own), 12, 0))


# ----------------------------------------------------------------------------------- redundancy
def redundancy(name: str, known: Mapping[str, Law]) -> Finding:
    """Whether a law follows from the others at all ranks at which it is used."""
    text = known[name].text
    rest = {n: w for n, w in known.items() if n != name and w.text != text}
    prover = Prover(rest, RESOURCES)
    used: set[str] = set()
    for axiom in _at_all_ranks(name, known[name]):
        proof = _proof(prover, axiom)
        if not proof.proved:
            limit = LIMIT if proof.problem.startswith("no proof") else None
            undecided = limit or Finding("undecided", (), proof.problem)
            return Finding("none") if proof.exhausted else undecided
        used.update(proof.axioms)
    return Finding("found", tuple(sorted(used)))


def _proof(prover: Prover, axiom: Axiom) -> Proof:
    return prover.prove(axiom.claim, axiom.at)


# -------------------------------------------------------------------------------- contradictions
def contradiction(name: str, known: Mapping[str, Law]) -> Finding:
    """Whether a law and others over its operators make different tensors equal.

    Terms are made by putting one law's side for a variable of another's, which is where laws
    meet; then three different tensors of one shape are assumed, for every rank.
    """
    prover = Prover(dict(known), RESOURCES)
    about = _operators(known[name])
    others = [
        axiom
        for n, w in prover.laws.items()
        if n != name and _operators(w) <= about
        for axiom in _at_all_ranks(n, w)
        if axiom.at
    ]
    undecided = None
    for own in _at_all_ranks(name, known[name]):
        if not own.at:
            return Finding("undecided", (), "no shapes fit both sides")
        wanted = {r for _, r in own.ranks} | {0}
        near = [a for a in others if {r for _, r in a.ranks} <= wanted]
        given = list(_different(prover.language, sorted(wanted)))
        seeds = itertools.islice(_meetings(prover, own, near), SEEDS)
        given += [_present(prover.language, t) for t in dict.fromkeys(seeds)]
        answer = prover.contradiction(given, [own, *near])
        if answer.core is not None:
            return Finding("found", tuple(sorted({a.name for a in answer.core})))
        if not answer.exhausted:
            undecided = LIMIT
    return undecided or Finding("none")


def _operators(stated: Law) -> frozenset[str]:
    read = read_law(stated)
    return operators(read.left) | operators(read.right)


def _constant(language: Language, number: int, rank: int) -> Any:
    return language.tensor(f"different {number} of rank {rank}", rank)


def _different(language: Language, every: Sequence[int]) -> Iterator[Any]:
    """Of every rank tensors that are different and of one shape."""
    for rank in every:
        constants = [_constant(language, n, rank) for n in range(CONSTANTS)]
        yield z3.Distinct(*constants)
        for axis in range(rank):
            first, *rest = (language.dim(c, rank, z3.IntVal(axis)) for c in constants)
            yield from (first == extent for extent in rest)


def _present(language: Language, term: Any) -> Any:
    """Says nothing but that there is such a term, so that laws apply to it."""
    return language.function(f"present/{term.sort()}", term.sort(), z3.BoolSort())(term)


def _meetings(prover: Prover, own: Axiom, near: Sequence[Axiom]) -> Iterator[Any]:
    """Sides of laws with sides of laws for one of their variables; one of both is the own."""
    pairs = [(own, own), *((own, a) for a in near), *((a, own) for a in near)]
    for outer, inner in pairs:
        for around, within in itertools.product(_sides(outer), _sides(inner)):
            for slot, rank in outer.ranks:
                if slot in tensor_names(around):
                    yield from _grounded(prover, outer, around, inner, within, slot, rank)


def _sides(axiom: Axiom) -> list[Term]:
    return [side for side in (axiom.law.left, axiom.law.right) if operators(side)]


def _grounded(
    prover: Prover, outer: Axiom, around: Term, inner: Axiom, within: Term, slot: str, rank: int
) -> Iterator[Any]:
    """A side with another for a variable, and different tensors for all others in any order."""
    if ranks(inner.claim.sides, inner.at[0])[within] != (rank,):
        return
    for order in itertools.permutations(range(CONSTANTS)):
        try:
            term = _ground(prover, inner, within, order, {})
            yield _ground(prover, outer, around, order[::-1], {slot: (term, rank)})
        except (NoTranslation, ValueError, z3.Z3Exception):
            return


def _ground(
    prover: Prover,
    axiom: Axiom,
    term: Term,
    order: Sequence[int],
    fixed: Mapping[str, tuple[Any, int]],
) -> Any:
    """The term with constants for its variables."""
    numbers = itertools.cycle(order)
    free = [(n, r) for n, r in axiom.ranks if n not in fixed]
    tensors = {n: (_constant(prover.language, next(numbers), r), r) for n, r in free}
    attributes = {n: z3.Int(f"some {n}") for n in axiom.claim.attributes}
    reading = Translation(
        prover.language, {**tensors, **fixed}, attributes, ranks(axiom.claim.sides, axiom.at[0])
    )
    return reading.term(term)
