"""The laws as a whole: lemmas, contradictions, superfluous laws.

A set of equations is contradictory if it makes two different tensors equal.  TASO's authors
met that trap: a `split` that cuts where the last `concat` joined, together with the law that
concat is associative, makes all tensors equal.  Here a split says its sizes, so that the same
law is harmless; the check stays, for every law that is added.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from whet.graph.laws import read_law
from whet.graph.terms import Term, tensor_names
from whet.ops.base import Law
from whet.superopt.verify.assign import assignments
from whet.superopt.verify.axioms import Axiom, axioms_of, claim_of, operators
from whet.superopt.verify.extents import ranks
from whet.superopt.verify.lemmas import LEMMAS
from whet.superopt.verify.logic import NoTranslation, Translation
from whet.superopt.verify.prover import Prover

CONSTANTS = 3
SEEDS = 4000
"""Terms that a search for contradictions starts from."""


def with_lemmas(prover: Prover) -> Prover:
    """A prover that also knows the lemmas that this one proves."""
    proved = {name: lemma for name, lemma in LEMMAS.items() if proves(prover, lemma)}
    return Prover({**prover.laws, **proved}, prover.resources)


def proves(prover: Prover, equation: Law) -> bool:
    """Whether an equation follows from the prover's laws, at the ranks of its example."""
    read = read_law(equation)
    claim = claim_of(read, ((n, len(s)) for n, s in read.shapes.items()))
    return prover.prove(claim, assignments(claim, 8, 0)).proved


def superfluous(known: Mapping[str, Law], among: Iterable[str]) -> tuple[str, ...]:
    """The laws among these that follow from the others; each found one is left out at once."""
    kept = dict(known)
    found = []
    for name in among:
        rest = {n: w for n, w in kept.items() if n != name and w.text != kept[name].text}
        if proves(Prover(rest), kept[name]):
            found.append(name)
            kept = rest
    return tuple(found)


@dataclass(frozen=True)
class Contradiction:
    """Laws from which two different tensors are equal."""

    laws: tuple[str, ...]


def contradiction(
    known: Mapping[str, Law], about: frozenset[str], rank: int = 2
) -> Contradiction | None:
    """Laws over these operators that make different tensors equal; None if none was found.

    Terms are made by putting one law's side for a variable of another's, which is where laws
    meet; then three different tensors of one shape are assumed.
    """
    prover = Prover(dict(known))
    axioms = [
        axiom
        for name, w in prover.laws.items()
        if (operators(read_law(w).left) | operators(read_law(w).right)) <= about
        for axiom in axioms_of(name, w) or _as_stated(name, w)
        if {r for _, r in axiom.ranks} == {rank}
    ]
    language = prover.language
    constants = [language.tensor(f"different {n}", rank) for n in range(CONSTANTS)]
    given: list[Any] = [z3.Distinct(*constants)]
    for axis in range(rank):
        extents = [language.dim(c, rank, z3.IntVal(axis)) for c in constants]
        given += [extents[0] == e for e in extents[1:]]
    present = language.function(f"present/{rank}", language.sort(rank), z3.BoolSort())
    seeds = itertools.islice(_meetings(prover, axioms, constants, rank), SEEDS)
    given += [present(t) for t in dict.fromkeys(seeds)]
    core = prover.core(given, axioms)
    return None if core is None else Contradiction(tuple(sorted({a.name for a in core})))


def _as_stated(name: str, stated: Law) -> tuple[Axiom, ...]:
    """A law that did not survive testing, at the ranks of its example."""
    read = read_law(stated)
    own = tuple((n, len(s)) for n, s in read.shapes.items())
    at = assignments(claim_of(read, own), 12, 0)
    return (Axiom(name, read, own, at),) if at else ()


def _meetings(
    prover: Prover, axioms: Sequence[Axiom], constants: Sequence[Any], rank: int
) -> Iterator[Any]:
    """Sides of laws with sides of laws for one of their variables."""
    sides = [(a, side) for a in axioms for side in (a.law.left, a.law.right) if operators(side)]
    for outer_axiom, outer in sides:
        for inner_axiom, inner in sides:
            for slot in tensor_names(outer):
                for order in itertools.permutations(range(len(constants))):
                    turned = [constants[n] for n in order]
                    try:
                        term = _ground(prover, inner_axiom, inner, turned, {}, rank)
                        yield _ground(prover, outer_axiom, outer, turned[::-1], {slot: term}, rank)
                    except (NoTranslation, ValueError, z3.Z3Exception):
                        break


def _ground(
    prover: Prover,
    axiom: Axiom,
    term: Term,
    constants: Sequence[Any],
    fixed: Mapping[str, Any],
    rank: int,
) -> Any:
    """The term with constants for its variables."""
    names = [n for n, _ in axiom.ranks if n not in fixed]
    tensors = {n: (c, rank) for n, c in zip(names, itertools.cycle(constants))}
    tensors |= {n: (t, rank) for n, t in fixed.items()}
    attributes = {n: z3.Int(f"some {n}") for n in axiom.claim.attributes}
    reading = Translation(
        prover.language, tensors, attributes, ranks(axiom.claim.sides, axiom.at[0])
    )
    return reading.term(term)
