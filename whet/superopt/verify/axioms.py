"""The operators' laws as axioms: at which ranks they hold, and the shapes that show it.

A law is stated once and may hold at several ranks (`relu` of a concat at all of them, a
matmul of columns only for matrices).  The ranks of its example are claimed; other ranks are
tried, and kept where the law survives the numeric gate.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources

from whet.core.digest import digest_text
from whet.graph.laws import ReadLaw, read_law
from whet.graph.terms import Apply, Term, subterms
from whet.ops.base import REGISTRY, Law
from whet.superopt.verify.assign import fits, search
from whet.superopt.verify.claims import Assignment, Claim, read_assignment
from whet.superopt.verify.extents import telling
from whet.superopt.verify.identity import Counterexample, check_identity

RANKS = range(1, 6)
SHAPES_PER_AXIOM = 16
SHAPES_FOR_FACTS = 48
"""Further shapes that guard against facts about extents that hold by chance."""


@dataclass(frozen=True, eq=False)
class Axiom:
    """A law at fixed ranks, with assignments at which both sides have types.

    `partial` names the sides that may have a type where the other has none: `add(x, y)` for
    `add(x, expand(y, shape=shape(x)))`, when y is the larger one.
    """

    name: str
    law: ReadLaw
    ranks: tuple[tuple[str, int], ...]
    at: tuple[Assignment, ...]
    partial: frozenset[str] = frozenset()

    @property
    def claim(self) -> Claim:
        return claim_of(self.law, self.ranks)

    @property
    def operators(self) -> frozenset[str]:
        return operators(self.law.left) | operators(self.law.right)

    @property
    def text(self) -> str:
        when = f" when {', '.join(self.law.law.when)}" if self.law.law.when else ""
        return f"{self.law.law.text}{when}"


def claim_of(law: ReadLaw, ranks: Iterable[tuple[str, int]]) -> Claim:
    return Claim(tuple(ranks), (law.left,), (law.right,), law.guards)


def laws() -> dict[str, Law]:
    """Every law once, by a name that stays with it: its operator and a part of its digest."""
    found: dict[str, Law] = {}
    known: set[str] = set()
    for name, cls in sorted(REGISTRY.items()):
        for law in cls.axioms if isinstance(cls.axioms, tuple) else ():
            if digest(law) not in known:
                known.add(digest(law))
                found[f"{name}.{digest(law)[:8]}"] = law
    return found


def usable(law: Law) -> bool:
    """Whether the law speaks of all tensors: none of its guards is about elements."""
    return not read_law(law).on_values


def rank_variants(law: ReadLaw) -> tuple[tuple[tuple[str, int], ...], ...]:
    """The ranks of the example, and where these are all alike the same at other ranks."""
    own = tuple((n, len(s)) for n, s in law.shapes.items())
    alike = {r for _, r in own if r}
    if len(alike) != 1:
        return (own,)
    others = (tuple((n, r if q else 0) for n, q in own) for r in RANKS if r not in alike)
    return (own, *others)


def operators(term: Term) -> frozenset[str]:
    return frozenset(t.op for t in subterms(term) if isinstance(t, Apply))


@functools.cache
def axioms_of(name: str, law: Law) -> tuple[Axiom, ...]:
    """The law as axioms at all ranks where it holds: from the record, or found out now."""
    read = read_law(law)
    stored = recorded().get(digest(law))
    if stored is not None:
        return tuple(Axiom(name, read, *entry) for entry in stored)
    return examine(name, law).axioms


@dataclass(frozen=True)
class Examined:
    """The result of testing a law: the ranks at which it holds, or why it is not used."""

    law: Law
    axioms: tuple[Axiom, ...]
    counterexample: Counterexample | None = None
    problem: str = ""


def examine(name: str, law: Law, shapes: int = SHAPES_PER_AXIOM) -> Examined:
    """Test the law at its own ranks and at others.

    At its own ranks a counterexample is an alarm; at others it says only that the law is not
    about these.
    """
    read = read_law(law)
    found: list[Axiom] = []
    own, *others = rank_variants(read)
    for variant in (own, *others):
        seed = int(digest_text(law.text, str(variant))[:8], 16)
        verdict = check_identity(claim_of(read, variant), seed, shapes)
        if verdict.passed:
            claim = claim_of(read, variant)
            more = itertools.islice(search(claim, seed + 1), SHAPES_FOR_FACTS)
            at = tuple(dict.fromkeys((*verdict.at, *more)))
            few = telling(claim.sides, at)
            found.append(Axiom(name, read, variant, few, partial_sides(claim)))
        elif variant == own:
            return Examined(law, (), verdict.counterexample, verdict.problem)
    return Examined(law, tuple(found))


def partial_sides(claim: Claim) -> frozenset[str]:
    """The sides that have a type at some assignment where the other has none."""
    found = set()
    for name, side in (("left", claim.left), ("right", claim.right)):
        alone = dataclasses.replace(claim, left=side, right=())
        if set(alone.attributes) != set(claim.attributes):
            continue  # such a side is no trigger
        tried = itertools.islice(search(alone, 0), SHAPES_PER_AXIOM)
        if not all(fits(claim, at) for at in tried):
            found.add(name)
    return frozenset(found)


# -------------------------------------------------------------------------------------- record
RECORD = "axioms.txt"

Entry = tuple[tuple[tuple[str, int], ...], tuple[Assignment, ...], frozenset[str]]
Recorded = dict[str, tuple[Entry, ...]]


def digest(law: Law) -> str:
    """The digest that tells laws apart: text, guards and the ranks of the example."""
    return digest_text(law.text, *law.when, str(law.example))


def write_record(examined: Mapping[str, Examined]) -> str:
    """The text of the record: every law with the ranks at which it holds and the shapes that
    were tried there.  A law without ranks is not used."""
    lines = ["# Laws, the ranks at which they survived testing, and some of the shapes tried."]
    for name, result in sorted(examined.items()):
        lines += ["", f"law {name} {digest(result.law)}", f"  # {result.law.text}"]
        if result.problem or result.counterexample:
            lines.append(f"  # not used: {result.counterexample or result.problem}")
        for axiom in result.axioms:
            ranks = " ".join(f"{n}={r}" for n, r in axiom.ranks)
            lines.append(f"  ranks {ranks}".rstrip())
            lines += [f"    partial {side}" for side in sorted(axiom.partial)]
            lines += [f"    at {at}".rstrip() for at in axiom.at]
    return "\n".join(lines) + "\n"


@functools.cache
def recorded() -> Recorded:
    """The package's record, by digest of the law."""
    source = resources.files("whet.superopt.verify").joinpath(RECORD)
    return read_record(source.read_text()) if source.is_file() else {}


def read_record(text: str) -> Recorded:
    found: dict[str, list[Entry]] = {}
    current: list[Entry] = []
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "law":
            current = found.setdefault(rest.split()[1], [])
        elif word == "ranks":
            pairs = (piece.split("=") for piece in rest.split())
            current.append((tuple((n, int(r)) for n, r in pairs), (), frozenset()))
        elif word in ("at", "partial"):
            ranks, at, partial = current[-1]
            if word == "at":
                current[-1] = ranks, (*at, read_assignment(rest, dict(ranks))), partial
            else:
                current[-1] = ranks, at, partial | {rest}
    return {k: tuple(v) for k, v in found.items()}
