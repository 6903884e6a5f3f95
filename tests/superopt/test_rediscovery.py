"""What the paper's case studies need is among the shipped rules, which were found, not written.

The statements in `case_studies.rules` are written by hand, as expectations; the table in
docs/rules.md says which shipped rules lead from the left to the right side of each.  Here that is
proved, from these rules alone: they take the place of the operators' laws in the prover.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from whet.graph.laws import read_law
from whet.ops.base import Law
from whet.superopt.generate.pools import BATCHES, GROUPS, TEN
from whet.superopt.prune.candidates import find_candidates
from whet.superopt.rules.files import read_candidates, shipped
from whet.superopt.rules.rule import Rule
from whet.superopt.verify.assign import assignments
from whet.superopt.verify.axioms import Axiom, axioms_of, claim_of, laws, partial_sides
from whet.superopt.verify.claims import Assignment, Claim, read_assignment
from whet.superopt.verify.extents import equal_extents
from whet.superopt.verify.gates import claim
from whet.superopt.verify.prover import Prover

HERE = Path(__file__).parent
CASES = {r.name: r for r in read_candidates((HERE / "case_studies.rules").read_text())}
DOCUMENT = HERE.parent.parent / "docs" / "rules.md"
HEADING = "## What was rediscovered"
THREE = ("concat(a, b, c,", "split(concat(x, y, z,")
NO_CASE_STUDY = {"split-of-concat", "transpose-twice"}
"""Statements for the gates alone: what is joined is cut again, what is turned is turned back."""


# ----------------------------------------------------------------------------------- the table
@dataclass(frozen=True, slots=True)
class Row:
    """A case study: its statement, where it is claimed, and the shipped rules behind it."""

    case: str
    where: tuple[str, ...]
    rules: tuple[str, ...]


def rows() -> tuple[Row, ...]:
    section = DOCUMENT.read_text().partition(HEADING)[2].partition("\n## ")[0]
    found = []
    for line in section.splitlines():
        cells = [tuple(re.findall(r"`([^`]+)`", cell)) for cell in line.strip("|").split("|")]
        if len(cells) == 4 and len(cells[1]) == 1:
            found.append(Row(cells[1][0], cells[2], cells[3]))
    return tuple(found)


ROWS = rows()


@functools.cache
def by_name() -> dict[str, Rule]:
    return {r.name: r for r in shipped(certified=True)}


def named(row: Row) -> tuple[Rule, ...]:
    return tuple(by_name()[name] for name in row.rules)


# ---------------------------------------------------------------------------- rules in the prover
@functools.cache
def equations(rule: Rule) -> tuple[Axiom, ...]:
    """What the rule says of each of its outputs, at the shapes of its certificate.

    A rule holds where both sides have types.  Here it is used where one side stands, so what
    types demand is said too: the extents that are equal at all shapes of the certificate.
    """
    assert rule.certificate is not None
    ranks = tuple((v.name, v.rank) for v in rule.variables)
    at = tuple(read_assignment(text, dict(ranks)) for text in rule.certificate.shapes)
    same = tuple(f"dim({a}, {i}) == dim({b}, {j})" for (a, i), (b, j) in equal_extents(at))
    found = []
    for left, right in zip(rule.lhs, rule.rhs):
        read = read_law(Law(f"{left} = {right}", rule.numeric, (), (*rule.when, *same)))
        found.append(Axiom(rule.name, read, ranks, at, partial_sides(claim_of(read, ranks))))
    return tuple(found)


class FromRules(Prover):
    """A prover that knows some rules, and none of the operators' laws but what joining and
    cutting three tensors mean: the generator joins two at a time."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        super().__init__({n: w for n, w in laws().items() if w.text.startswith(THREE)})
        self.rules = rules

    def relevant(self, claim: Claim, at: Assignment) -> list[Axiom]:
        joined = [a for name, law in self.laws.items() for a in axioms_of(name, law)]
        ranks = {r for _, r in claim.ranks}
        return [
            *(a for a in joined if {r for _, r in a.ranks} <= ranks),
            *(e for rule in self.rules for e in equations(rule)),
        ]


def follows(row: Row, rules: Sequence[Rule]) -> bool:
    """Whether the case study is proved from these rules."""
    stated = claim(CASES[row.case].guarded(*row.where))
    return FromRules(rules).prove(stated, assignments(stated, 16, 0)).proved


# -------------------------------------------------------------------------------------- the tests
def test_the_table_has_every_case_study() -> None:
    assert {row.case for row in ROWS} == set(CASES) - NO_CASE_STUDY


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case)
def test_case_studies_follow_from_shipped_rules(row: Row) -> None:
    assert follows(row, named(row))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.case)
def test_none_of_the_rules_can_be_missed(row: Row) -> None:
    rules = named(row)
    for missing in rules:
        assert not follows(row, [r for r in rules if r is not missing]), missing.name


def test_the_rules_behind_them_are_what_is_generated() -> None:
    """The same claims, but for guards that the gates found to be needed."""
    used = {name for row in ROWS for name in row.rules}
    candidates = {c.name: c for c in find_candidates([TEN, GROUPS, BATCHES], 3).candidates}
    assert used <= candidates.keys()
    for name in used:
        forms = {(f.variables, f.lhs, f.rhs) for f in candidates[name].forms}
        rule = by_name()[name]
        assert (rule.variables, rule.lhs, rule.rhs) in forms, name
