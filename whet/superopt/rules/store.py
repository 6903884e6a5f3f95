"""Rules written to files (see `whet.superopt.rules.files`), byte for byte alike every time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from whet.core.errors import ArtifactError, fail
from whet.superopt.rules.files import PROOFS, SUFFIX, family, sealed
from whet.superopt.rules.rule import Certificate, Rule
from whet.superopt.verify.conditions import assumed

HEADER = "# Proved rewrite rules: whet rules verify replays the proofs."
PROOFS_HEADER = "# Certificates of the rules in the file beside this one."


class Written(NamedTuple):
    """The texts of two files: rules, and their certificates."""

    rules: str
    proofs: str


def write_rules(rules: Iterable[Rule]) -> Written:
    """The texts of a family's files; unproved rules have no place in them."""
    claims, proofs = [HEADER], [PROOFS_HEADER]
    for rule in sorted(rules, key=lambda r: (r.name, r.hash)):
        if rule.certificate is None:
            fail("WH4001", f"rule '{rule.name}' has no proof and cannot be stored",
                 kind=ArtifactError)  # fmt: skip
        proof = list(_proof(rule.name, rule.certificate))
        claim = [*_claim(rule), f"  proof {sealed(proof)}"]
        claims.append("\n".join([*claim, f"  seal {sealed(claim)}"]))
        proofs.append("\n".join(proof))
    return Written("\n\n".join(claims) + "\n", "\n\n".join(proofs) + "\n")


def _claim(rule: Rule) -> Iterator[str]:
    yield f"rule {rule.name}"
    for v in rule.variables:
        yield f"  {v.name} {v.role} {v.rank}"
    for key, values in (
        ("when", rule.when),
        ("numeric", (rule.numeric,)),
        ("set", ("core" if rule.core else "composite",)),
        ("lhs", rule.lhs),
        ("rhs", rule.rhs),
        ("given", assumed(rule)),
    ):
        yield from (f"  {key} {value}" for value in values)


def _proof(name: str, certificate: Certificate) -> Iterator[str]:
    yield f"proof {name}"
    for key, values in (
        ("axiom", certificate.axioms),
        ("solver", (certificate.solver,)),
        ("prime", (str(certificate.prime),)),
        ("seed", (str(certificate.seed),)),
        ("shape", certificate.shapes),
        ("symbolic", certificate.symbolic),
    ):
        yield from (f"  {key} {value}".rstrip() for value in values)


def write_folder(rules: Sequence[Rule], folder: Path) -> tuple[Path, ...]:
    """Two files per family, every claim once; files of families without rules are removed."""
    by_family: dict[str, list[Rule]] = {}
    for rule in {r.hash: r for r in rules}.values():
        by_family.setdefault(family(rule), []).append(rule)
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in (SUFFIX, PROOFS):
        for old in folder.glob(f"*{suffix}"):
            if old.stem not in by_family:
                old.unlink()
    written = []
    for name, members in sorted(by_family.items()):
        for suffix, text in zip((SUFFIX, PROOFS), write_rules(members), strict=True):
            path = folder / f"{name}{suffix}"
            path.write_text(text)
            written.append(path)
    return tuple(written)
